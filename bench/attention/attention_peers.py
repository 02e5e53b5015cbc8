#!/usr/bin/env python3
"""Is Whet's attention faster than the peers', in the same run, on the same tensors?

    bazel build --config=release //:libwhet.so
    python3 bench/attention/attention_peers.py --platform cpu  --library bazel-bin/libwhet.so --json cpu.json
    python3 bench/attention/attention_peers.py --platform cuda --library libwhet.so --suite d128,mla,odd --json h200.json

CPU: peers are PyTorch's scaled_dot_product_attention and, where installed, OpenVINO's, with as many threads. Rounds alternate between the
candidates; the median counts; the processor's own peak (f32 multiply-adds alone, fma_peak.cc) is one of them. CUDA: peers are PyTorch's cuDNN and FlashAttention back ends; each candidate runs at its own steady clock
(--soak seconds of uninterrupted work first), then is timed with events over at least --time seconds.
Every output is compared in this run with float64 attention on sampled rows, and a candidate that is wrong fails the bench.
FLOPs: 2 (Dqk + Dv) x B x Hq x visible pairs.
"""

import argparse
import ctypes
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from whet_ctypes import Whet  # noqa: E402

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

SUITES = {
    "cpu": [dict(b=1, hq=8, hkv=8, sq=s, d=128, dv=128, causal=True) for s in (1024, 2048, 4096)]
    + [dict(b=1, hq=12, hkv=12, sq=256, d=32, dv=32, causal=False)],
    "d128": [dict(b=16384 // s if s <= 16384 else 1, hq=32, hkv=32, sq=s, d=128, dv=128, causal=True)
             for s in (512, 1024, 2048, 4096, 8192, 16384, 32768)],
    "mla": [dict(b=16384 // s if s <= 16384 else 1, hq=16, hkv=16, sq=s, d=192, dv=128, causal=True)
            for s in (512, 1024, 2048, 4096, 8192, 16384, 32768)],
    "short": [dict(b=16384 // s, hq=32, hkv=32, sq=s, d=128, dv=128, causal=True) for s in (1024, 4096, 16384)]
    + [dict(b=4, hq=16, hkv=16, sq=4096, d=192, dv=128, causal=True), dict(b=4, hq=51, hkv=51, sq=4096, d=80, dv=80, causal=True)],
    "odd": [dict(b=4, hq=max(1, 4096 // d), hkv=max(1, 4096 // d), sq=4096, d=d, dv=d, causal=True) for d in (80, 96, 112, 160)]
    + [dict(b=16, hq=32, hkv=32, sq=1000, d=128, dv=128, causal=True), dict(b=5, hq=32, hkv=32, sq=3001, d=128, dv=128, causal=True),
       dict(b=4, hq=40, hkv=8, sq=4096, d=128, dv=128, causal=True)],
}


def flops(p):
    pairs = p["sq"] * (p["sq"] + 1) // 2 if p["causal"] else p["sq"] * p["sq"]
    return 2 * (p["d"] + p["dv"]) * p["b"] * p["hq"] * pairs


def relative_error(p, q, k, v, o, rows=24):
    """Largest relative L2 error over sampled heads, on rows that include the first and the last."""
    picks = sorted({round(i * (p["sq"] - 1) / (rows - 1)) for i in range(rows)})
    worst = 0.0
    for b, h in {(0, 0), (p["b"] - 1, p["hq"] - 1)}:
        kh = h * p["hkv"] // p["hq"]
        qq = q[b, h, picks].double()
        logits = qq @ k[b, kh].double().T / math.sqrt(p["d"])
        if p["causal"]:
            index = torch.arange(p["sq"], device=q.device)
            logits = logits.masked_fill(index[None, :] > index[picks][:, None], -math.inf)
        expected = torch.softmax(logits, -1) @ v[b, kh].double()
        got = o[b, h, picks].double()
        worst = max(worst, ((got - expected).norm() / expected.norm()).item())
    return worst


def torch_candidate(backend, q, k, v, p):
    gqa = p["hq"] != p["hkv"]
    out = {}

    def run():
        from torch.nn.attention import sdpa_kernel
        if backend is None:
            out["o"] = F.scaled_dot_product_attention(q, k, v, is_causal=p["causal"], enable_gqa=gqa)
        else:
            with sdpa_kernel(backend):
                out["o"] = F.scaled_dot_product_attention(q, k, v, is_causal=p["causal"], enable_gqa=gqa)
    return run, lambda: out["o"]


def openvino_candidate(q, k, v, p, threads):
    import numpy as np
    import openvino as ov
    import openvino.opset13 as ops
    shapes = [list(t.shape) for t in (q, k, v)]
    params = [ops.parameter(s, ov.Type.f32) for s in shapes]
    halves = [ops.convert(x, ov.Type.bf16) for x in params]
    node = ops.scaled_dot_product_attention(*halves, causal=p["causal"])
    model = ov.Model([ops.convert(node, ov.Type.f32)], params)
    compiled = ov.Core().compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "bf16"})
    request = compiled.create_infer_request()
    inputs = [np.ascontiguousarray(t.float().numpy()) for t in (q, k, v)]
    out = {}

    def run():
        out["o"] = request.infer(inputs, share_inputs=True, share_outputs=True)[0]
    return run, lambda: torch.from_numpy(out["o"].copy())


def fma_peak(threads):
    """A function that does f32 multiply-adds alone for some milliseconds, and how many operations that is."""
    with tempfile.TemporaryDirectory() as directory:
        library = os.path.join(directory, "fma_peak.so")
        subprocess.run(["c++", "-std=c++20", "-O3", "-march=native", "-shared", "-fPIC", "-pthread",
                        str(pathlib.Path(__file__).with_name("fma_peak.cc")), "-o", library], check=True)
        peak = ctypes.CDLL(library).FmaPeak
    peak.restype = ctypes.c_double
    peak.argtypes = [ctypes.c_int, ctypes.c_int64]
    rounds = 4_000_000
    return lambda: peak(threads, rounds), peak(threads, rounds)


def time_cpu(candidates, seconds):
    """Alternating rounds, so that a change of clock or a neighbour meets all alike. Nanoseconds, median."""
    samples = {name: [] for name in candidates}
    for run, _ in candidates.values():
        run()
    end = time.perf_counter() + seconds * len(candidates)
    while time.perf_counter() < end or min(map(len, samples.values())) < 5:
        for name, (run, _) in candidates.items():
            begin = time.perf_counter_ns()
            run()
            samples[name].append(time.perf_counter_ns() - begin)
    return {name: statistics.median(s) for name, s in samples.items()}


def time_cuda(run, soak, seconds):
    """At the steady clock: the queue never runs dry from the first soak launch to the last timed one. Nanoseconds, median of groups."""
    run()
    torch.cuda.synchronize()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(3):
        run()
    end.record()
    torch.cuda.synchronize()
    one_ms = max(begin.elapsed_time(end) / 3, 1e-3)
    group = max(1, int(5 / one_ms))  # about 5 ms between two events
    for _ in range(int(soak * 1e3 / one_ms) + 1):
        run()
    marks = [torch.cuda.Event(enable_timing=True)]
    marks[0].record()
    for _ in range(max(8, int(seconds * 1e3 / (group * one_ms)))):
        for _ in range(group):
            run()
        marks.append(torch.cuda.Event(enable_timing=True))
        marks[-1].record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) / group for a, b in zip(marks, marks[1:])) * 1e6


def tensors(p, device, data):
    shape = lambda h, d: (p["b"], h, p["sq"], d)  # noqa: E731
    if data == "normal":
        torch.manual_seed(1)
        make = lambda *s: torch.randn(*s, device=device).to(torch.bfloat16)  # noqa: E731
        return make(*shape(p["hq"], p["d"])), make(*shape(p["hkv"], p["d"])), make(*shape(p["hkv"], p["dv"]))
    from safetensors.torch import load_file
    loaded = load_file(data)
    out = []
    for name, h, d in (("q", p["hq"], p["d"]), ("k", p["hkv"], p["d"]), ("v", p["hkv"], p["dv"])):
        t = loaded[name][:, :, : p["sq"], :d].to(device)
        reps = (math.ceil(p["b"] / t.shape[0]), math.ceil(h / t.shape[1]), 1, 1)
        out.append(t.repeat(*reps)[: p["b"], :h].contiguous())
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--platform", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--library", required=True)
    parser.add_argument("--suite", help="comma-separated: " + ", ".join(SUITES))
    parser.add_argument("--data", default="normal", help="normal, or a .safetensors file with q, k, v [B, H, S, D]")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--soak", type=float, default=0.9)
    parser.add_argument("--time", type=float, default=0.4, help="seconds per candidate")
    parser.add_argument("--budget", type=float, default=60, help="seconds of tuning per problem")
    parser.add_argument("--cache", help="directory; default: a fresh temporary one")
    parser.add_argument("--no-openvino", action="store_true")
    parser.add_argument("--json")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    suites = (args.suite or ("cpu" if args.platform == "cpu" else "d128,mla")).split(",")
    cache = args.cache or tempfile.mkdtemp(prefix="whet-bench-")
    whet = Whet(args.library, args.platform, cache_directory=cache, tuning="blocking", tuning_budget_s=args.budget,
                cpu_threads=args.threads if args.platform == "cpu" else 0)
    device = "cuda" if args.platform == "cuda" else "cpu"
    rows, wrong = [], 0
    for suite in suites:
        for p in SUITES[suite]:
            q, k, v = tensors(p, device, args.data)
            o = torch.full((p["b"], p["hq"], p["sq"], p["dv"]), math.nan, dtype=torch.bfloat16, device=device)
            call = whet.attention_args(q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr(), dtype="bf16", batch=p["b"],
                                       heads_q=p["hq"], heads_kv=p["hkv"], seq_q=p["sq"], seq_kv=p["sq"], dqk=p["d"],
                                       dv=p["dv"], causal=p["causal"])
            stream = torch.cuda.current_stream().cuda_stream if device == "cuda" else None
            candidates = {"whet": (lambda: whet.launch(call, stream), lambda: o)}
            if device == "cuda":
                from torch.nn.attention import SDPBackend
                candidates["cudnn"] = torch_candidate(SDPBackend.CUDNN_ATTENTION, q, k, v, p)
                candidates["flash"] = torch_candidate(SDPBackend.FLASH_ATTENTION, q, k, v, p)
            else:
                candidates["torch"] = torch_candidate(None, q, k, v, p)
                if not args.no_openvino:
                    try:
                        candidates["openvino"] = openvino_candidate(q, k, v, p, args.threads)
                    except ImportError:
                        pass
            usable = {}
            row = dict(p, suite=suite, data=args.data)
            for name, (run, output) in candidates.items():
                try:
                    run()
                    if device == "cuda":
                        torch.cuda.synchronize()
                    row[name + "_error"] = relative_error(p, q, k, v, output())
                    usable[name] = (run, output)
                except (RuntimeError, ValueError) as e:
                    if name == "whet":
                        raise
                    row[name + "_absent"] = str(e).splitlines()[0][:100]
            if device == "cuda":
                times = {name: time_cuda(run, args.soak, args.time) for name, (run, _) in usable.items()}
            else:
                run_peak, peak_flops = fma_peak(args.threads)
                times = time_cpu(dict(usable, fma_peak=(run_peak, None)), args.time)
                row["fma_peak_gflops"] = peak_flops / times.pop("fma_peak")
                row["share_of_peak"] = flops(p) / times["whet"] / row["fma_peak_gflops"]
            event = next((e for e in reversed(whet.events)), {})
            row.update(variant=event.get("variant"), first_call_s=event.get("seconds"), gain=event.get("gain"))
            for name, ns in times.items():
                row[name + "_gflops"] = flops(p) / ns
                if not row[name + "_error"] < 1.2e-2:
                    row[name + "_wrong"] = True
                    wrong += name == "whet"
            best = max((row[n + "_gflops"] for n in times if n != "whet"), default=math.nan)
            row["ratio_to_best_peer"] = row["whet_gflops"] / best
            rows.append(row)
            unit = 1000 if device == "cuda" else 1
            print(f'{suite} B{p["b"]} H{p["hq"]}/{p["hkv"]} S{p["sq"]} D{p["d"]}/{p["dv"]}{" causal" if p["causal"] else ""}: '
                  + ", ".join(f'{n} {row[n + "_gflops"] / unit:.0f} (err {row[n + "_error"]:.1e})' for n in times)
                  + f' {"TFLOP/s" if unit == 1000 else "GFLOP/s"}; whet {row["ratio_to_best_peer"]:.2f}x the best peer, '
                  + (f'{row["share_of_peak"]:.0%} of the FMA peak ({row["fma_peak_gflops"]:.0f}); ' if "share_of_peak" in row else "")
                  + f'{row["variant"]}, first call {row["first_call_s"] or 0:.1f} s', flush=True)
            del q, k, v, o, candidates, usable
        ratios = [r["ratio_to_best_peer"] for r in rows if r["suite"] == suite]
        print(f"{suite}: geometric mean {math.exp(statistics.fmean(map(math.log, ratios))):.3f}x the best peer, least {min(ratios):.3f}x",
              flush=True)
    result = dict(platform=args.platform, data=args.data, threads=args.threads, torch=torch.__version__,
                  device=torch.cuda.get_device_name() if device == "cuda" else None, rows=rows)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(result, indent=1))
    whet.close()
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
