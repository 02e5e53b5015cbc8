#!/bin/sh
# Compiles, checks and times everything behind the notebook of FP8 attention on Hopper. Run on a machine with the GPU, NVRTC and PyTorch.
#   run_all_fp8.sh WORK_DIR RESULTS_DIR [CAPTURED_DIR]
set -e
here=$(dirname "$0")
python3 "$here/make_fp8_cases.py" "$1/cases"
for list in correctness errors headline captured_16k captured_4k; do
  python3 "$here/build_fp8.py" "$1/cases/$list.json" "$1/$list"
done
timeout 90 python3 "$here/bench_fp8.py" "$1/correctness" --no-time --out "$2/correctness.json"
timeout 120 python3 "$here/bench_fp8.py" "$1/errors" --no-time --out "$2/errors.json"
timeout 300 python3 "$here/bench_fp8.py" "$1/headline" --out "$2/headline.json"
timeout 30 python3 "$here/fp8_speed_of_light.py" "$1/loops" --out "$2/speed_of_light.json"
for pair in 16k:layer14_s16384 4k:layer0_s4096; do
  for file in "${3:-/nonexistent}"/*"${pair#*:}".safetensors; do
    [ -e "$file" ] && timeout 60 python3 "$here/bench_fp8.py" "$1/captured_${pair%%:*}" --captured "$file" --out "$2/captured_${pair%%:*}.json"
  done
done
