#!/usr/bin/env python3
"""The conformance tables through libwhet.so's C interface (whet_template_find, whet_problem_parse, whet_launch), against float64 in PyTorch.

    python3 tests/conformance/table_device.py LIBRARY CASES.jsonl [--platform cuda] [--part 0/8]

attention_device is the whole check: every kind of data, guards and several variants. This one asks whether an application that goes through the C
interface gets the same: extents, flags, strides and scales of each case, normal data or a kind made here; special values are left to the other.
Outputs begin as NaN. Ends with "N passed, N failed" and exits with 1 when something failed."""
import argparse, ctypes as c, json, math, os, sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench/attention"))
import torch
from whet_ctypes import Whet, WhetError

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn}
LIMITS = {"f32": 2e-5, "f16": 6e-3, "bf16": 6e-3}
CLASSES = [0.035, 0.05, 0.1]


def complete(f, fp8):
    """The case with contiguous strides where it names none."""
    f = dict(f)
    padded = (f["seq_kv"] + 15) // 16 * 16
    for name, heads, rows, row, last in (("q", "heads_q", f["seq_q"], f["dqk"], "s"), ("k", "heads_kv", f["seq_kv"], f["dqk"], "s"),
                                         ("v", "heads_kv", *((f["dv"], padded, "d") if fp8 else (f["seq_kv"], f["dv"], "s"))), ("o", "heads_q", f["seq_q"], f["dv"], "s")):
        for stride, value in ((last, row), ("h", rows * row), ("b", f[heads] * rows * row)):
            f.setdefault("%s_stride_%s" % (name, stride), value)
    return f


def strided(shape, strides, dtype, device):
    size = 1 + sum((n - 1) * s for n, s in zip(shape, strides)) if min(shape) > 0 else 1
    return torch.full((size + 16,), math.nan, device=device).to(dtype).as_strided(shape, strides)


def data(kind, name, shape, device):
    x = torch.randn(shape, device=device)
    if kind == "zeros":
        return x * 0
    if kind == "v_ones" and name == "v":
        return x * 0 + 1
    if kind == "v_mean" and name == "v":
        return x + 1
    return x * 2.5 if kind == "peaky" and name == "q" else x


def run(whet, case, device):
    lib, name = whet.lib, case.get("operation", "attention_forward")
    fp8 = name == "attention_forward_fp8"
    f = complete(case["fields"], fp8)
    b, hq, hk, sq, sk, dqk, dv = (f[n] for n in ("batch", "heads_q", "heads_kv", "seq_q", "seq_kv", "dqk", "dv"))
    dtype = DTYPES[f["dtype"]]
    template = c.c_void_p()
    whet._check(lib.whet_template_find(whet.handle, name.encode(), c.byref(template)))
    fields = (c.c_int64 * lib.whet_template_field_count(template))()
    whet._check(lib.whet_problem_parse(template, ",".join("%s=%s" % item for item in f.items()).encode(), fields))
    t, kind = {}, case["data"]
    for n, shape, last in (("q", (b, hq, sq, dqk), "s"), ("k", (b, hk, sk, dqk), "s"), ("v", (b, hk, dv, sk) if fp8 else (b, hk, sk, dv), "d" if fp8 else "s"), ("o", (b, hq, sq, dv), "s")):
        strides = tuple(f["%s_stride_%s" % (n, s)] for s in ("b", "h", last)) + (1,)
        t[n] = strided(shape, strides, torch.bfloat16 if fp8 and n == "o" else dtype, device)
        if n != "o" and t[n].numel():
            t[n].copy_(data(kind, n, shape, device).to(dtype))
    lse = torch.full((b, hq, sq), math.nan, device=device) if f.get("lse") else None
    scale, exact = 1 / math.sqrt(dqk), f.get("exact_exponents")
    value = {n: t[n].double() for n in "qkv"}
    order, shift = ["q", "k", "v"], None
    if fp8:
        value["v"] = value["v"].transpose(2, 3)
        for n, heads, rows in (("q", hq, sq), ("k", hk, sk)):
            per = f.get(n + "_scale_rows", 0)
            blocks = 1 if per == 0 else max(1, -(-rows // per))
            s = torch.exp2(torch.randint(-1, 2, (b, heads, blocks), device=device).float()) if exact else 0.75 + 0.5 * torch.rand(b, heads, blocks, device=device)
            if exact and n == "q":
                folded = scale * math.log2(math.e)
                s *= 2.0 ** round(math.log2(folded)) / folded
            t[n + "_scale"] = s
            value[n] *= s.double().repeat_interleave(per, 2)[:, :, :rows, None] if per else s.double()[:, :, :1, None]
        t["v_scale"] = 0.75 + 0.5 * torch.rand(b, hk, device=device)
        value["v"] *= t["v_scale"].double()[:, :, None, None]
        if f.get("lse_shift"):
            shift = t["lse_shift"] = torch.randn(b, hq, sq, device=device)
        order += ["q_scale", "k_scale", "v_scale", "lse_shift"]
    pointers = [c.c_void_p(t[n].data_ptr() if n in t else None) for n in order + ["o"]] + [c.c_void_p(lse.data_ptr() if lse is not None else None), c.c_float(scale)]
    args = (c.c_void_p * len(pointers))(*(c.cast(c.byref(p), c.c_void_p) for p in pointers))
    whet._check(lib.whet_launch(whet.handle, template, fields, c.c_size_t(len(fields)), args, None))
    if device == "cuda":
        torch.cuda.synchronize()
    limit = CLASSES[f.get("accuracy", 1)] if fp8 else LIMITS[f["dtype"]]
    worst = 0.0
    for i in range(b):
        for h in range(hq):
            logits = value["q"][i, h] @ value["k"][i, h * hk // hq].T * scale
            if f["causal"]:
                logits = logits.masked_fill(torch.arange(sk, device=device)[None] > torch.arange(sq, device=device)[:, None] + sk - sq, -math.inf)
            m = logits.amax(1, keepdim=True).clamp(min=-1e300) if sk else torch.zeros(sq, 1, device=device).double()
            p = torch.exp(logits - m)
            total = p.sum(1, keepdim=True)
            want = p @ value["v"][i, h * hk // hq] / total.clamp(min=1e-300)
            off = (t["o"][i, h].double() - want).norm() / want.norm().clamp(min=1e-30) if sq else torch.zeros(())
            worst = max(worst, off.item() if off == off else math.inf)
            if lse is not None and sq:
                want = (m + torch.log(total))[:, 0] + (shift[i, h].double() if shift is not None else 0)
                gone, seen = total[:, 0] == 0, total[:, 0] > 0
                off = (lse[i, h].double() - want)[seen].abs().max().item() if seen.any() else 0.0
                if not bool((lse[i, h][gone] == -math.inf).all()) or not off < (0.08 if fp8 else 0.01):
                    raise WhetError("log-sum-exp is off by %g" % off)
    if not worst <= limit:
        raise WhetError("relative L2 %.3g, allowed %.3g" % (worst, limit))
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("cases")
    parser.add_argument("--platform", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--part", default="0/1", help="I/N: each N-th case from the I-th on")
    parser.add_argument("--cache", default="", help="where compiled code is kept; nowhere by default")
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    whet = Whet(options.library, options.platform, cache_directory=options.cache, tuning="never")
    pointer = c.c_void_p
    whet.lib.whet_template_find.argtypes = [pointer, c.c_char_p, c.POINTER(pointer)]
    whet.lib.whet_template_field_count.argtypes, whet.lib.whet_template_field_count.restype = [pointer], c.c_size_t
    whet.lib.whet_problem_parse.argtypes = [pointer, c.c_char_p, c.POINTER(c.c_int64)]
    whet.lib.whet_launch.argtypes = [pointer, pointer, c.POINTER(c.c_int64), c.c_size_t, c.POINTER(pointer), pointer]
    torch.manual_seed(part)
    passed, failed, worst = 0, 0, 0.0
    for case in [json.loads(line) for line in open(options.cases)][part::parts]:
        try:
            worst = max(worst, run(whet, case, options.platform))
            passed += 1
        except WhetError as error:
            failed += 1
            print("FAILED %s: %s" % (case["name"], str(error)[:200]), flush=True)
    whet.close()
    print("largest relative L2 difference to float64 %.3g\n%d passed, %d failed" % (worst, passed, failed))
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
