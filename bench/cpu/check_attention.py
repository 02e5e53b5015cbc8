#!/usr/bin/env python3
"""Checks the CPU attention kernels against float64 attention on tests/conformance/attention_cases.jsonl.

    check_attention.py [--kernel cpu] [--compilers clang++,g++] [--features avx512,avx2,generic]
                       [--variants N] [--only PATTERN] [--sanitize address,undefined]

Needs numpy. Inputs end at a page that may not be touched, gaps between rows hold NaN, and what lies in the
gaps of the output must survive.

Data: normal        all N(0, 1)
      peaky         q four times as large: nearly one-hot weights
      sink          the first key attracts every row, its value is small
      late_outlier  the last key has by far the largest score
      growing_max   every key scores higher than the one before
      v_ones        v is 1, so o is 1
      nan_keys   NaN in one key and in another key's value: rows that see either give NaN, no other row does
      nan_query     NaN in one query row
      minus_inf_scores  the first half of the keys scores -inf
      zeros         all inputs are 0
"""
import argparse
import ctypes
import json
import mmap
import random
import re
import sys

import numpy as np

import kernels

CASES = kernels.ROOT / "tests/conformance/attention_cases.jsonl"
LIMIT = {"bf16": 4e-3, "f32": 1e-5}
libc = ctypes.CDLL(None, use_errno=True)
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def to_bf16(x):
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(x), (bits >> 16) | 0x40, rounded).astype(np.uint16)


def from_bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


class Guarded:
    """An array that ends where a page without access begins, filled with NaN."""

    def __init__(self, count, dtype):
        item = np.dtype(dtype).itemsize
        pages = -(-max(1, count) * item // mmap.PAGESIZE)
        self.map = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        libc.mprotect(base + pages * mmap.PAGESIZE, mmap.PAGESIZE, 0)
        offset = pages * mmap.PAGESIZE - count * item
        self.address = base + offset
        self.array = np.frombuffer(self.map, dtype, count, offset)
        self.array[:] = np.nan if item == 4 else 0x7FC1


def tensor(fields, name, heads, seq, dim, dtype):
    """A strided view [b, h, s, d] over guarded memory of the smallest size that holds it."""
    shape = (fields["batch"], heads, seq, dim)
    strides = tuple(fields[f"{name}_stride_{axis}"] for axis in "bhs") + (1,)
    count = 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides))
    memory = Guarded(count, np.uint16 if dtype == "bf16" else np.float32)
    item = memory.array.itemsize
    view = np.lib.stride_tricks.as_strided(memory.array, shape, [s * item for s in strides])
    return memory, view


def make_inputs(case):
    f = case["fields"]
    rng = np.random.default_rng(case["seed"])
    b, hq, hkv = f["batch"], f["heads_q"], f["heads_kv"]
    q = rng.standard_normal((b, hq, f["seq_q"], f["dqk"])).astype(np.float32)
    k = rng.standard_normal((b, hkv, f["seq_kv"], f["dqk"])).astype(np.float32)
    v = rng.standard_normal((b, hkv, f["seq_kv"], f["dv"])).astype(np.float32)
    data, skv = case["data"], f["seq_kv"]
    if data == "peaky":
        q *= 4
    elif data == "sink" and skv:
        q += 1
        k[:, :, 0] = 2
        v[:, :, 0] *= 0.01
    elif data == "late_outlier" and skv:
        q += 1
        k[:, :, -1] = 3
    elif data == "growing_max":
        q = np.abs(q)
        k = 0.1 * k + np.linspace(0, 4, max(1, skv), dtype=np.float32)[None, None, :skv, None]
    elif data == "v_ones":
        v[:] = 1
    elif data == "nan_keys" and skv:
        k[:, :, skv * 2 // 3, f["dqk"] // 2] = np.nan
        v[:, :, skv * 3 // 4, f["dv"] // 2] = np.nan
    elif data == "nan_query" and f["seq_q"]:
        q[:, :, f["seq_q"] // 2, 0] = np.nan
    elif data == "minus_inf_scores":
        q[..., 0] = np.abs(q[..., 0]) + 1
        k[:, :, : skv // 2, 0] = -np.inf
    elif data == "zeros":
        q[:], k[:], v[:] = 0, 0, 0
    return q, k, v


def reference(q, k, v, causal, scale):
    """float64 attention as the operation defines it. Returns o and lse."""
    group = q.shape[1] // k.shape[1]
    o = np.zeros(q.shape[:3] + v.shape[3:])
    lse = np.full(q.shape[:3], -np.inf)
    sq, skv = q.shape[2], k.shape[2]
    visible = np.ones((sq, skv), bool)
    if causal:
        visible = np.arange(skv)[None] <= np.arange(sq)[:, None] + skv - sq
    with np.errstate(all="ignore"):
        for b in range(q.shape[0]):
            for h in range(q.shape[1]):
                s = q[b, h].astype(np.float64) @ k[b, h // group].astype(np.float64).T * scale
                s = np.where(visible, s, -np.inf)
                top = s.max(axis=1, initial=-np.inf)
                base = np.where(np.isneginf(top), 0, top)[:, None]
                p = np.exp(s - base)
                total = p.sum(axis=1, keepdims=True)
                vh = v[b, h // group].astype(np.float64)
                # 0 times a NaN that may not be seen is 0, but one that is seen counts whatever its weight.
                seen_nan = visible.astype(np.float64) @ np.isnan(vh).astype(np.float64) > 0
                out = p @ np.nan_to_num(vh, nan=0.0) / np.where(total == 0, 1, total)
                o[b, h] = np.where(seen_nan, np.nan, out)
                lse[b, h] = np.where(total[:, 0] == 0, -np.inf, base[:, 0] + np.log(total[:, 0]))
    return o, lse


def compare(name, got, want, limit):
    """An empty text, or what is wrong."""
    if not np.array_equal(np.isnan(got), np.isnan(want)):
        return f"{name}: NaN in {np.isnan(got).sum()} places, expected {np.isnan(want).sum()}"
    finite = np.isfinite(want)
    if not np.array_equal(got[~finite & ~np.isnan(want)], want[~finite & ~np.isnan(want)]):
        return f"{name}: infinities differ"
    got, want = got[finite], want[finite]
    scale = np.linalg.norm(want)
    error = np.linalg.norm(got - want)
    if not np.all(np.isfinite(got)) or error > limit * max(scale, 1e-30):
        return f"{name}: relative error {error / max(scale, 1e-30):.2e} above {limit:.0e}"
    # No single element may hide in the norm.
    worst = np.max(np.abs(got - want), initial=0)
    largest = np.max(np.abs(want), initial=0)
    return "" if worst <= 3 * limit * max(largest, 1e-30) else f"{name}: worst element off by {worst:.2e}"


def run_case(case, kernel, scale):
    """Returns (what is wrong or empty, relative error of o)."""
    f = case["fields"]
    dtype = f["dtype"]
    q, k, v = make_inputs(case)
    stored = {}
    for name, values, heads, seq, dim in (("q", q, f["heads_q"], f["seq_q"], f["dqk"]),
                                          ("k", k, f["heads_kv"], f["seq_kv"], f["dqk"]),
                                          ("v", v, f["heads_kv"], f["seq_kv"], f["dv"])):
        memory, view = tensor(f, name, heads, seq, dim, dtype)
        view[...] = to_bf16(values) if dtype == "bf16" else values
        stored[name] = (memory, from_bf16(view) if dtype == "bf16" else view.copy())
    out_memory, out = tensor(f, "o", f["heads_q"], f["seq_q"], f["dv"], dtype)
    untouched = out_memory.array.copy()
    lse_memory = Guarded(f["batch"] * f["heads_q"] * f["seq_q"], np.float32)
    kernel.run([stored["q"][0].address, stored["k"][0].address, stored["v"][0].address,
                out_memory.address, lse_memory.address if f["lse"] else 0, scale], threads=2)
    want, want_lse = reference(stored["q"][1], stored["k"][1], stored["v"][1], f["causal"],
                               float(np.float32(scale)))
    got = (from_bf16(out) if dtype == "bf16" else out).astype(np.float64)
    wrong = compare("o", got, want, LIMIT[dtype])
    if not wrong and f["lse"]:
        wrong = compare("lse", lse_memory.array.reshape(want_lse.shape).astype(np.float64),
                        want_lse, 2e-6)
    if not wrong:
        out[...] = 0x7FC1 if dtype == "bf16" else np.nan
        if not np.array_equal(out_memory.array.view(np.uint8), untouched.view(np.uint8)):
            wrong = "a gap of o was written"
    good = np.isfinite(want)
    error = np.linalg.norm(got[good] - want[good]) / max(np.linalg.norm(want[good]), 1e-30)
    return wrong, error


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kernel", default="cpu")
    parser.add_argument("--compilers", default="clang++,clang++-22,g++")
    parser.add_argument("--features", default="avx512,avx2,generic")
    parser.add_argument("--variants", type=int, default=2, help="drawn at random for each case")
    parser.add_argument("--only", default="", help="regular expression over names")
    parser.add_argument("--fix", default="", help="parameter=value,... that every variant must have")
    parser.add_argument("--sanitize", default="")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    print(f"seed {options.seed}")
    flags = ["-O3", "-Wall", "-Wextra"]
    if options.sanitize:
        flags = ["-O1", "-g", f"-fsanitize={options.sanitize}", "-fno-sanitize-recover=all"]
    fixed = {k: int(v) for k, v in (p.split("=") for p in options.fix.split(",") if p)}
    operation = kernels.Operation("attention_forward")
    ran, failed, worst = 0, 0, {"bf16": 0.0, "f32": 0.0}
    for line in CASES.read_text().splitlines():
        case = json.loads(line)
        if not re.search(options.only, case["name"]):
            continue
        fields = {**case["fields"], "alignment": 2 if case["fields"]["dtype"] == "bf16" else 4}
        for _ in range(options.variants):
            features = rng.choice(options.features.split(","))
            compiler = rng.choice(options.compilers.split(","))
            choices = [v for v in operation.variants(options.kernel, fields,
                                                     kernels.FEATURE_SETS[features])
                       if all(v[k] == value for k, value in fixed.items())]
            if not choices:
                continue
            variant = rng.choice(choices)
            scale = float(np.float32(rng.choice([1, 1, 1, -1]) / fields["dqk"] ** 0.5))
            kernel = kernels.Kernel(operation, options.kernel, fields, variant, compiler, features,
                                    flags)
            wrong, error = run_case(case, kernel, scale)
            ran += 1
            worst[fields["dtype"]] = max(worst[fields["dtype"]], error)
            if wrong:
                failed += 1
                print(f"FAILED {case['name']} {kernel.id} {compiler} {features} scale {scale:.3g}: "
                      f"{wrong}", flush=True)
    print(f"{ran} runs, {failed} failed; worst relative error bf16 {worst['bf16']:.2e}, "
          f"f32 {worst['f32']:.2e}")
    return 1 if failed or not ran else 0


if __name__ == "__main__":
    sys.exit(main())
