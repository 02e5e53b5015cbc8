#!/usr/bin/env python3
"""Checks the CPU RMSNorm kernel against float64, then times it beside PyTorch (when torch can be imported).

    rms_norm.py [--compiler g++] [--features avx512]
"""
import argparse
import random
import sys

import numpy as np

import kernels
from check_attention import Guarded, from_bf16, to_bf16

LIMIT = {"bf16": 3e-3, "f32": 1e-6}


def run(operation, dtype, rows, columns, residual, stride, variant, compiler, features, seed):
    """What is wrong, or an empty text."""
    rng = np.random.default_rng(seed)
    kind = np.uint16 if dtype == "bf16" else np.float32
    store = to_bf16 if dtype == "bf16" else (lambda a: a.astype(np.float32))
    widen = from_bf16 if dtype == "bf16" else (lambda a: a)
    x = Guarded((rows - 1) * stride + columns if rows else 0, kind)
    view = np.lib.stride_tricks.as_strided(x.array, (rows, columns),
                                           (stride * x.array.itemsize, x.array.itemsize))
    view[...] = store(rng.standard_normal((rows, columns)) * 3)
    r, w, y = Guarded(rows * columns, kind), Guarded(columns, kind), Guarded(rows * columns, kind)
    r.array[:] = store(rng.standard_normal(rows * columns))
    w.array[:] = store(1 + 0.2 * rng.standard_normal(columns))
    h = widen(view.copy())
    if residual:
        h = widen(store(h + widen(r.array).reshape(rows, columns)))
    want = h.astype(np.float64) / np.sqrt((h.astype(np.float64) ** 2).mean(1, keepdims=True) + 1e-5)
    want *= widen(w.array).astype(np.float64)
    fields = {"dtype": dtype, "rows": rows, "columns": columns, "residual": residual,
              "x_stride": stride, "alignment": 2 if dtype == "bf16" else 4}
    kernel = kernels.Kernel(operation, "cpu", fields, variant, compiler, features)
    kernel.run([x.address, r.address if residual else 0, w.address, y.address, 1e-5], threads=2)
    if residual and not np.array_equal(widen(r.array).reshape(rows, columns), h):
        return "residual is not round(x + residual)"
    got = widen(y.array).reshape(rows, columns)
    error = np.linalg.norm(got - want) / max(np.linalg.norm(want), 1e-30)
    return "" if error <= LIMIT[dtype] else f"relative error {error:.2e}"


def measure(operation, compiler, features):
    import torch
    torch.set_num_threads(1)
    import time
    for dtype, rows, columns, residual in (("bf16", 1024, 4096, 0), ("bf16", 1024, 4096, 1),
                                           ("f32", 1024, 4096, 0), ("bf16", 4096, 896, 0)):
        kind = {"bf16": torch.bfloat16, "f32": torch.float32}[dtype]
        x, r = torch.randn(rows, columns).to(kind), torch.randn(rows, columns).to(kind)
        w, y = torch.ones(columns).to(kind), torch.empty(rows, columns, dtype=kind)
        fields = {"dtype": dtype, "rows": rows, "columns": columns, "residual": residual,
                  "x_stride": columns}
        kernel = kernels.Kernel(operation, "cpu", fields, {}, compiler, features)
        args = [x.data_ptr(), r.data_ptr() if residual else 0, w.data_ptr(), y.data_ptr(), 1e-5]

        def peer():
            h = x + r if residual else x
            return torch.nn.functional.rms_norm(h, (columns,), w, 1e-5)

        ours, theirs = [], []
        with torch.no_grad():
            for _ in range(20):
                ours += kernel.run(args, 1, 2)
                for _ in range(2):
                    start = time.thread_time()
                    peer()
                    theirs.append(time.thread_time() - start)
        moved = rows * columns * x.element_size() * (4 if residual else 2)
        ours, theirs = np.array(ours), np.array(theirs)
        print(f"{dtype} {rows}x{columns} residual={residual} 1 thread: {ours.min() * 1e3:.3f} ms "
              f"({moved / ours.min() / 1e9:.1f} GB/s, median {np.median(ours) * 1e3:.3f}), PyTorch "
              f"{torch.__version__} {theirs.min() * 1e3:.3f} ms: {theirs.min() / ours.min():.2f}x")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--compiler", default="clang++")
    parser.add_argument("--features", default="avx512")
    options = parser.parse_args()
    operation = kernels.Operation("rms_norm")
    rng = random.Random(7)
    failed = 0
    shapes = [(0, 8), (1, 1), (1, 7), (3, 16), (5, 31), (17, 64), (20, 100), (33, 896), (65, 1027)]
    for i, (rows, columns) in enumerate(shapes * 2):
        for residual in (0, 1):
            dtype = rng.choice(["bf16", "f32"])
            features = rng.choice(["avx512", "avx2", "generic"])
            compiler = rng.choice(["clang++", "clang++-22", "g++"])
            fields = {"dtype": dtype, "rows": rows, "columns": columns, "residual": residual,
                      "x_stride": columns}
            variant = rng.choice(list(operation.variants("cpu", fields, [])))
            wrong = run(operation, dtype, rows, columns, residual, columns + (i % 2) * 5, variant,
                        compiler, features, i)
            if wrong:
                failed += 1
                print(f"FAILED {dtype} {rows}x{columns} residual={residual} {compiler} {features}: "
                      f"{wrong}")
    print(f"{len(shapes) * 4} runs, {failed} failed", flush=True)
    try:
        measure(operation, options.compiler, options.features)
    except ImportError:
        print("no torch: not timed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
