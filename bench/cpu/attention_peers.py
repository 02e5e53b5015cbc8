#!/usr/bin/env python3
"""CPU attention beside PyTorch and OpenVINO, in one process, run in turn: variant by variant, then the best again.

    attention_peers.py [--threads 1] [--dtype bf16] [--compiler clang++-22] [--tune] [--json out.json]

Every variant is checked against float64 before it is timed. Inputs are N(0, 1); FLOPs are 2 (Dqk + Dv) per
visible pair. With one thread all times are CPU seconds of the thread, else wall seconds. The peak is that of
this machine's FMA units in the same run.
"""
import argparse
import json
import time

import numpy as np
import torch

import kernels

SHAPES = [  # batch, heads_q, heads_kv, sequence, dqk, dv, causal
    (1, 8, 8, 1024, 128, 128, 1), (1, 8, 8, 2048, 128, 128, 1), (1, 8, 8, 4096, 128, 128, 1),
    (1, 12, 12, 256, 32, 32, 0), (1, 12, 2, 1024, 128, 128, 1), (1, 16, 16, 1024, 192, 128, 1),
    (1, 14, 2, 1024, 64, 64, 1)]
TORCH = {"bf16": torch.bfloat16, "f32": torch.float32}

PEAK = """
#include <stdint.h>
typedef float V __attribute__((vector_size(64)));
extern "C" void Peak(const void*, void* const* args) {
  V a[24] = {};
  const V x = *(const V*)args[0];
  for (int k = 0; k < 50000; ++k) {
    #pragma GCC unroll 24
    for (int i = 0; i < 24; ++i) a[i] = a[i] * x + x;
    #pragma GCC unroll 24
    for (int i = 0; i < 24; ++i) asm volatile("" : "+v"(a[i]));
  }
}
"""


def fields_of(shape, dtype):
    b, hq, hkv, s, dqk, dv, causal = shape
    fields = {"dtype": dtype, "batch": b, "heads_q": hq, "heads_kv": hkv, "seq_q": s, "seq_kv": s,
              "dqk": dqk, "dv": dv, "causal": causal}
    for name, heads, dim in (("q", hq, dqk), ("k", hkv, dqk), ("v", hkv, dv), ("o", hq, dv)):
        fields.update({f"{name}_stride_b": heads * s * dim, f"{name}_stride_h": s * dim,
                       f"{name}_stride_s": dim})
    return fields


class Timed:
    """A thing to run, and the seconds its runs took."""

    def __init__(self, name, call, self_timed=False):
        self.name, self.call, self.self_timed, self.seconds = name, call, self_timed, []

    def once(self, clock):
        if self.self_timed:
            self.seconds += self.call()
            return
        start = clock()
        self.call()
        self.seconds.append(clock() - start)

    def best(self):
        return min(self.seconds)

    def median(self):
        return float(np.median(self.seconds))


def openvino_call(q, k, v, causal, threads):
    """None where OpenVINO is not installed. In f32 where the CPU has no bf16 instructions: its bf16 is not
    meant for such a CPU (2 GFLOP/s)."""
    try:
        import openvino as ov
        from openvino import opset13 as ops
    except ImportError:
        return None
    bf16 = q.dtype == torch.bfloat16 and "avx512_bf16" in open("/proc/cpuinfo").read()
    if not bf16:
        q, k, v = q.float(), k.float(), v.float()
    kind = ov.Type.bf16 if bf16 else ov.Type.f32
    tensors, parameters = [], []
    for t in (q, k, v):
        parameters.append(ops.parameter(list(t.shape), kind))
        if bf16:
            raw = t.view(torch.int16).numpy()
            tensor = ov.Tensor(kind, list(t.shape))
            np.asarray(tensor.data).view(np.int16).reshape(raw.shape)[...] = raw
        else:
            tensor = ov.Tensor(t.numpy())
        tensors.append(tensor)
    node = ops.scaled_dot_product_attention(*parameters, causal=bool(causal))
    model = ov.Model([node], parameters)
    compiled = ov.Core().compile_model(model, "CPU", {
        "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "bf16" if bf16 else "f32"})
    request = compiled.create_infer_request()
    for i, tensor in enumerate(tensors):
        request.set_input_tensor(i, tensor)
    return request.infer


def measure(operation, shape, options, peak):
    b, hq, hkv, s, dqk, dv, causal = shape
    kind = TORCH[options.dtype]
    torch.manual_seed(1)
    q, k = torch.randn(b, hq, s, dqk).to(kind), torch.randn(b, hkv, s, dqk).to(kind)
    v, o = torch.randn(b, hkv, s, dv).to(kind), torch.empty(b, hq, s, dv, dtype=kind)
    # PyTorch and OpenVINO get their keys and values already repeated: that time is not theirs.
    k_all = k.repeat_interleave(hq // hkv, 1)
    v_all = v.repeat_interleave(hq // hkv, 1)
    scale = dqk ** -0.5
    pairs = s * (s + 1) // 2 if causal else s * s
    flops = 2 * (dqk + dv) * b * hq * pairs
    attend = torch.nn.functional.scaled_dot_product_attention
    want = attend(q.double(), k_all.double(), v_all.double(), is_causal=bool(causal))

    fields = fields_of(shape, options.dtype)
    flags = kernels.FEATURE_SETS[options.features]
    args = [q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr(), 0, scale]
    fixed = {n: int(v) for n, v in (p.split("=") for p in options.fix.split(",") if p)}
    variants = [fixed]
    if options.tune:
        variants = [v for v in operation.variants("cpu", fields, flags)
                    if all(v[n] == value for n, value in fixed.items())]
    ours = []
    for variant in variants:
        kernel = kernels.Kernel(operation, "cpu", fields, variant, options.compiler,
                                options.features)
        o.fill_(float("nan"))
        kernel.run(args, options.threads, 1)
        error = ((o.double() - want).norm() / want.norm()).item()
        if not error < 4e-3:
            raise RuntimeError(f"{kernel.id}: relative error {error}")
        entry = Timed(kernel.id, lambda kernel=kernel: kernel.run(args, options.threads, 1), True)
        entry.error = error
        ours.append(entry)
    clock = time.thread_time if options.threads == 1 else time.perf_counter
    # Screening, variants in turn; then finals of the best beside the peers, in turn.
    rounds = max(3, min(15, int(0.25 / (flops / 100e9))))
    if len(ours) > 1:
        for _ in range(rounds):
            for entry in ours:
                entry.once(clock)
    ranking = sorted(ours, key=lambda e: e.best()) if len(ours) > 1 else ours
    screened = {e.name: e.best() for e in ours} if len(ours) > 1 else {}
    finalist = ranking[0]
    finalist.seconds = []
    peers = [Timed("pytorch", lambda: attend(q, k_all, v_all, is_causal=bool(causal)))]
    infer = openvino_call(q, k_all, v_all, causal, options.threads)
    if infer is not None:
        # Its threads are its own, so CPU seconds of the caller say nothing: wall time.
        peers.append(Timed("openvino", infer))
    with torch.no_grad():
        for _ in range(max(7, min(60, int(2.0 / (flops / 50e9))))):
            finalist.once(clock)
            peers[0].once(clock)
            for peer in peers[1:]:
                peer.once(time.perf_counter)
    result = {"shape": dict(zip(("batch", "heads_q", "heads_kv", "seq", "dqk", "dv", "causal"),
                                shape)),
              "dtype": options.dtype, "threads": options.threads, "variant": finalist.name,
              "error": finalist.error, "flops": flops,
              "share_of_peak": flops / finalist.best() / peak,
              "runs": {e.name: {"min_s": e.best(), "median_s": e.median()}
                       for e in [finalist, *peers]},
              "screened": screened}
    line = (f"B{b} H{hq}/{hkv} S{s} D{dqk}/{dv} {'causal' if causal else 'full'} {options.dtype} "
            f"{options.threads} thread(s): {flops / finalist.best() / 1e9:.0f} GFLOP/s (median "
            f"{flops / finalist.median() / 1e9:.0f}), {100 * result['share_of_peak']:.0f} % of peak")
    for peer in peers:
        line += (f"; {peer.name} {flops / peer.best() / 1e9:.0f} (median "
                 f"{flops / peer.median() / 1e9:.0f}), ratio {peer.best() / finalist.best():.2f} "
                 f"(median {peer.median() / finalist.median():.2f})")
    print(line, flush=True)
    print(f"    {finalist.name}", flush=True)
    if screened:
        times = sorted(screened.items(), key=lambda e: e[1])
        default = kernels.Kernel(operation, "cpu", fields, fixed, options.compiler,
                                 options.features).id
        print(f"    {len(times)} variants: default {screened[default] / times[0][1]:.2f}, median "
              f"{times[len(times) // 2][1] / times[0][1]:.2f}, slowest "
              f"{times[-1][1] / times[0][1]:.2f} times the best", flush=True)
        for name, seconds in times[:4]:
            print(f"      {seconds / times[0][1]:.3f} {name}", flush=True)
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--compiler", default="clang++-22")
    parser.add_argument("--features", default="avx512")
    parser.add_argument("--tune", action="store_true", help="all variants, not only the default")
    parser.add_argument("--fix", default="", help="parameter=value,... of every variant")
    parser.add_argument("--shapes", default="", help="indices, 0,1,...")
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    operation = kernels.Operation("attention_forward")
    peak_kernel = kernels.Kernel.__new__(kernels.Kernel)
    peak_kernel.grid = (kernels.ctypes.c_uint32 * 3)(4 * options.threads, 1, 1)
    peak_kernel.shared_bytes = 0
    library = kernels.ctypes.CDLL(kernels.shared_object(
        "g++", ["-O3", *[f"-m{f}" for f in kernels.FEATURE_SETS[options.features]]], [PEAK]))
    peak_kernel.entry = kernels.ctypes.cast(library.Peak, kernels.ctypes.c_void_p)
    ones = np.zeros(64, np.float32)
    aligned = ones.ctypes.data + -ones.ctypes.data % 64
    seconds = min(peak_kernel.run_pack([aligned], options.threads, 40))
    peak = 4 * options.threads * 50000 * 24 * 16 * 2 / seconds
    print(f"peak {peak / 1e9:.0f} GFLOP/s f32 FMA on {options.threads} thread(s); PyTorch "
          f"{torch.__version__}", flush=True)
    chosen = [int(i) for i in options.shapes.split(",") if i] or range(len(SHAPES))
    results = [measure(operation, SHAPES[i], options, peak) for i in chosen]
    if options.json:
        with open(options.json, "w") as out:
            json.dump({"peak_flops": peak, "torch": torch.__version__, "compiler": options.compiler,
                       "features": options.features, "results": results}, out, indent=1)


if __name__ == "__main__":
    main()
