"""Checks and times compiled FP8 attention variants against PyTorch's cuDNN back end in BF16, in one process, on the same data.

    python3 bench_fp8.py DIR [--soak 0.9] [--span 0.4] [--out results.json] [--no-time] [--captured FILE.safetensors]

DIR comes from build_fp8.py. Q, K and V are drawn in BF16 (`data` of a case: normal, peaky, sink, late, mean, outliers, growing, ones) and rounded to
e4m3 with amax scales per head, or per block where the problem has such scales. Errors are relative L2 over sampled rows of some heads against
float64: P error on the rounded inputs, total error on the BF16 ones. Poisoned output, steady clocks: see bench/sm90/bench_variants.py."""
import argparse, ctypes, json, math, os, random, sys, time
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../sm90"))
import bench_variants as base
from bench_variants import check, cuda, finish_or_die, pairs, sample_rows, steady, view


def tensor_map(tensor, strides, dims, box, swizzle, pairs_of_four):
    """A CUtensorMap of bytes; dims and strides are D, S, H, B. With pairs, rows s, s + 1, s + 4, s + 5, ... follow each other."""
    room = ctypes.create_string_buffer(128 + 64)
    address = (ctypes.addressof(room) + 63) & ~63
    u64, u32 = ctypes.c_uint64, ctypes.c_uint32
    steps = [1] * 4
    if pairs_of_four:
        dims = [dims[0], 2, dims[1] - 1, *dims[2:]]
        strides = [strides[0], *strides]
        box, steps = [box[0], 2, *box[1:]], [1, 1, 4, 1, 1]
    n = len(dims)
    check(cuda.cuTensorMapEncodeTiled(
        ctypes.c_void_p(address), 0, n, ctypes.c_void_p(tensor.data_ptr()), (u64 * n)(*dims), (u64 * (n - 1))(*strides), (u32 * n)(*box),
        (u32 * n)(*steps), 0, {0: 0, 32: 1, 64: 2, 128: 3}[swizzle], 3, 0), "cuTensorMapEncodeTiled %s %s %s" % (dims, strides, box))
    return room, address


class Kernel(base.Kernel):
    def __init__(self, path, variant, tensors, scale):
        self.module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        check(cuda.cuModuleLoad(ctypes.byref(self.module), path.encode()), "cuModuleLoad")
        check(cuda.cuModuleGetFunction(ctypes.byref(self.function), self.module, variant["entry"].encode()), "cuModuleGetFunction")
        launch, f = variant["launch"], variant["fields"]
        check(cuda.cuFuncSetAttribute(self.function, 8, launch["shared_bytes"]), "shared memory")
        self.launch = launch
        values, self.keep = [], []
        for name in ("q", "k", "v", "q_scale", "k_scale", "v_scale", "lse_shift", "o", "lse"):
            values.append(ctypes.c_void_p(tensors[name].data_ptr() if tensors.get(name) is not None else 0))
        values.append(ctypes.c_float(scale))
        pointers = [ctypes.addressof(v) for v in values]
        for m in variant["maps"]:
            a = m["argument"]
            if a == "v":
                dims, strides = [f["seq_kv"], f["dv"], f["heads_kv"], f["batch"]], [f["v_stride_d"], f["v_stride_h"], f["v_stride_b"]]
            else:
                heads, rows = (f["heads_q"], f["seq_q"]) if a == "q" else (f["heads_kv"], f["seq_kv"])
                dims, strides = [f["dqk"], rows, heads, f["batch"]], [f["%s_stride_%s" % (a, d)] for d in "shb"]
            room, address = tensor_map(tensors[a], strides, dims, m["box"], m["swizzle"], a == "k" and f["seq_kv"] % 2 == 0)
            self.keep.append(room)
            pointers.append(address)
        self.keep.append(values)
        self.arguments = (ctypes.c_void_p * len(pointers))(*pointers)


def draw(kind, f):
    """Q, K, V as [B, H, S, D] in BF16."""
    make = lambda h, s, d: torch.randn(f["batch"], h, s, d, device="cuda")
    q, k, v = make(f["heads_q"], f["seq_q"], f["dqk"]), make(f["heads_kv"], f["seq_kv"], f["dqk"]), make(f["heads_kv"], f["seq_kv"], f["dv"])
    if kind == "peaky":
        q *= 2.5
    elif kind == "sink":  # all rows agree on the first key, whose value is small
        mu = torch.randn(f["dqk"], device="cuda")
        q += 0.8 * mu
        k[:, :, 0] = 1.2 * mu
        v[:, :, 0] *= 0.05
    elif kind == "late":  # the same of the last key
        mu = torch.randn(f["dqk"], device="cuda")
        q += 0.8 * mu
        k[:, :, -1] = 1.2 * mu
        v[:, :, -1] *= 0.05
    elif kind == "mean":
        v += 1
    elif kind == "outliers":
        q[..., 5:9] *= 10
        k[..., 5:9] *= 10
    elif kind == "growing":
        k *= torch.linspace(0.5, 3, f["seq_kv"], device="cuda")[:, None]
    elif kind == "ones":
        v[:] = 1
    return q.bfloat16(), k.bfloat16(), v.bfloat16()


def quantise(x, rows):
    """e4m3 bytes of [B, H, S, D] and scales [B, H, blocks]; rows 0: one scale for a head."""
    b, h, s, d = x.shape
    n = rows or s
    blocks = -(-s // n)
    y = F.pad(x.float(), (0, 0, 0, blocks * n - s)).view(b, h, blocks, n * d)
    scale = (y.abs().amax(-1) / 448).clamp(min=1e-12)
    e = (y / scale[..., None]).to(torch.float8_e4m3fn).view(b, h, blocks * n, d)[:, :, :s]
    return e, scale


def dequantise(e, scale, rows):
    n = rows or e.shape[2]
    return e.float() * scale.repeat_interleave(n, 2)[:, :, :e.shape[2], None]


def rows_of(q, k, v, f, scale, b, h, rows):
    return base.reference_rows(q, k, v, f, scale, b, h, rows)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dir")
    parser.add_argument("--soak", type=float, default=0.9)
    parser.add_argument("--span", type=float, default=0.4)
    parser.add_argument("--out", default="")
    parser.add_argument("--no-time", action="store_true")
    parser.add_argument("--captured", default="")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds after which no further case starts")
    o = parser.parse_args()
    torch.zeros(1, device="cuda")
    began, results = time.time(), []
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "cudnn", torch.backends.cudnn.version(), flush=True)
    for case in json.load(open(os.path.join(o.dir, "manifest.json"))):
        if not case["variants"]:
            continue
        if time.time() - began > o.budget:
            print("out of time before", case["name"])
            break
        f = case["variants"][0]["fields"]
        kind = case.get("data", "normal")
        torch.manual_seed(random.randrange(1 << 30))
        bf = base.captured(o.captured, f) if o.captured else draw(kind, f)
        t = {}
        rounded = []
        for name, x, rows in (("q", bf[0], f["q_scale_rows"]), ("k", bf[1], f["k_scale_rows"]), ("v", bf[2], 0)):
            e, s = quantise(x, rows)
            rounded.append(dequantise(e, s, rows))
            t[name + "_scale"] = s.contiguous()
            if name == "v":
                flat = torch.full((f["batch"], f["heads_kv"], f["dv"], f["v_stride_d"]), 0x7F, dtype=torch.uint8, device="cuda")  # NaN behind the end
                flat[..., :f["seq_kv"]] = e.view(torch.uint8).transpose(2, 3)
            else:
                heads, n = (f["heads_q"], f["seq_q"]) if name == "q" else (f["heads_kv"], f["seq_kv"])
                flat = torch.empty(e.numel(), dtype=torch.uint8, device="cuda")
                view(flat, f, name, heads, n, f["dqk"]).copy_(e.view(torch.uint8))
            t[name] = flat
        t["o"] = torch.empty(f["batch"] * f["heads_q"] * f["seq_q"] * f["dv"], dtype=torch.bfloat16, device="cuda")
        out = view(t["o"], f, "o", f["heads_q"], f["seq_q"], f["dv"])
        t["lse"] = torch.empty(f["batch"], f["heads_q"], f["seq_q"], device="cuda") if f["lse"] else None
        t["lse_shift"] = torch.randn(f["batch"], f["heads_q"], f["seq_q"], device="cuda") if f["lse_shift"] else None
        scale = case.get("scale", 1 / math.sqrt(f["dqk"]))
        flops = 2 * (f["dqk"] + f["dv"]) * f["batch"] * f["heads_q"] * pairs(f)

        def peer():
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                return F.scaled_dot_product_attention(*bf, is_causal=bool(f["causal"]), scale=scale, enable_gqa=f["heads_q"] != f["heads_kv"])
        heads = sorted({(b, h) for b in (0, f["batch"] - 1) for h in (0, f["heads_q"] - 1)} | {(random.randrange(f["batch"]), random.randrange(f["heads_q"])) for _ in range(2)})
        samples = []
        for b, h in heads:
            rows = sample_rows(f)
            want, lse = rows_of(*rounded, f, scale, b, h, rows)
            if f["lse_shift"]:
                lse = lse + t["lse_shift"][b, h, rows]
            samples.append((b, h, rows, want, lse, rows_of(*bf, f, scale, b, h, rows)[0]))
        del rounded
        base_time = None
        if not o.no_time:
            base_time = steady(peer, o.soak, o.span)
            print("%-22s cuDNN %7.1f TFLOP/s  %8.4f ms  %4d MHz %3.0f W" % (case["name"], flops / base_time["seconds"] / 1e12, base_time["seconds"] * 1e3, base_time["mhz"], base_time["watt"]), flush=True)
        rows_out = []
        for variant in case["variants"]:
            row = {"label": variant["label"], "variant": variant["variant"]}
            kernel = None
            try:
                kernel = Kernel(os.path.join(o.dir, variant["cubin"]), variant, t, scale)
                t["o"].fill_(math.nan)
                if t["lse"] is not None:
                    t["lse"].fill_(math.nan)
                kernel()
                finish_or_die(case["name"], row["label"])
                bad = int((~torch.isfinite(out)).sum())
                num = den = tnum = tden = lse_error = worst = 0.0
                for b, h, rows, ref, ref_lse, full in samples:
                    got = out[b, h, rows].double()
                    num += float(((got - ref) ** 2).sum()); den += float((ref ** 2).sum())
                    tnum += float(((got - full) ** 2).sum()); tden += float((full ** 2).sum())
                    gap = (got - ref).norm(dim=1) / ref.norm(dim=1).clamp(min=1e-30)
                    worst = max(worst, float(gap.max()))
                    if os.environ.get("ROWS") and (b, h) == heads[0]:
                        print(" ".join("%d:%.3f" % (r, g) for r, g in zip(rows.tolist(), gap.tolist())))
                    if t["lse"] is not None:
                        got_lse = t["lse"][b, h, rows].double()
                        gap = torch.where(got_lse == ref_lse, 0.0, (got_lse - ref_lse).abs() / (1 + ref_lse.abs()))
                        lse_error = max(lse_error, float(gap.nan_to_num(1e9).max()))
                row["error"], row["total"], row["worst_row"], row["lse"] = math.sqrt(num / max(den, 1e-30)), math.sqrt(tnum / max(tden, 1e-30)), worst, lse_error
                row["ok"] = bad == 0 and row["error"] < case.get("bound", 0.05) and worst < 4 * case.get("bound", 0.05) and lse_error < 0.03
                note = "" if row["ok"] else "WRONG non-finite %d worst row %.3f lse %.4f" % (bad, worst, lse_error)
                if not row["ok"] or o.no_time:
                    print("%-22s P %.4f total %.4f worst %.3f lse %.4f %s %s" % (case["name"], row["error"], row["total"], worst, lse_error, row["label"], note), flush=True)
                if not o.no_time and (row["error"] < 1 or os.environ.get("FORCE")):
                    row.update(steady(kernel, o.soak, o.span))
                    row["tflops"] = flops / row["seconds"] / 1e12
                    row["ratio"] = base_time["seconds"] / row["seconds"]
                    print("%-22s %7.1f x%.3f %4d MHz %3.0f W spr %.3f P %.4f tot %.4f %s" % (case["name"], row["tflops"], row["ratio"], row["mhz"], row["watt"], row["spread"], row["error"], row["total"], row["label"]), flush=True)
            except Exception as error:
                row["failed"] = str(error)
                print("FAILED", case["name"], row["label"], error, flush=True)
                if "CUDA" in str(error) or "illegal" in str(error):
                    json.dump(results, open(o.out, "w"), indent=1) if o.out else None
                    sys.exit(3)
            finally:
                if kernel:
                    torch.cuda.synchronize(); kernel.close()
            rows_out.append(row)
        again = steady(peer, o.soak / 2, o.span / 2) if base_time else None
        results.append({"case": case["name"], "data": kind, "fields": f, "flops": flops, "cudnn": base_time, "cudnn_again": again, "rows": rows_out})
        timed = [r for r in rows_out if "tflops" in r]
        if timed:
            best = max(timed, key=lambda r: r["tflops"])
            print("%-22s BEST %7.1f x%.3f (cuDNN again x%.3f)  %s" % (case["name"], best["tflops"], best["ratio"], base_time["seconds"] / again["seconds"], best["label"]), flush=True)
        del t, bf, samples, out
    if o.out:
        json.dump(results, open(o.out, "w"), indent=1)


if __name__ == "__main__":
    main()
