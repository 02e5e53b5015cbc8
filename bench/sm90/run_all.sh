#!/bin/sh
# Compiles, checks and times everything behind the Hopper attention notebook. Run on a machine with the GPU, NVRTC and PyTorch; five minutes.
#   run_all.sh WORK_DIR RESULTS_DIR [CAPTURED_DIR]
set -e
here=$(dirname "$0")
python3 "$here/make_cases.py" "$1/cases"
for list in correctness headline captured_16k captured_4k space_4k; do
  python3 "$here/build_variants.py" "$1/cases/$list.json" "$1/$list"
done
timeout 90 python3 "$here/bench_variants.py" "$1/correctness" --no-time --out "$2/correctness.json"
timeout 280 python3 "$here/bench_variants.py" "$1/headline" --span 0.3 --out "$2/headline.json"
set -- "$1" "$2" "${3:-/nonexistent}"
for pair in 16k:layer14_s16384 4k:layer0_s4096; do
  for file in "$3"/*"${pair#*:}".safetensors; do
    if [ -e "$file" ]; then
      timeout 60 python3 "$here/bench_variants.py" "$1/captured_${pair%%:*}" --captured "$file" --span 0.3 --out "$2/captured_${pair%%:*}.json"
    fi
  done
done
for file in "$3"/*layer0_s4096.safetensors; do
  if [ -e "$file" ]; then captured="--captured $file"; fi
done
# shellcheck disable=SC2086 # no file is no argument
timeout 150 python3 "$here/winner_by_data.py" "$1/space_4k" ${captured:-} --out "$2/winners.json"
