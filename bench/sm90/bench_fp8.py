"""Checks and times compiled FP8 attention variants against PyTorch's cuDNN back end in BF16, in one process, on the same data.

    python3 bench_fp8.py DIR [--soak 0.9] [--span 0.4] [--out results.json] [--no-time] [--captured FILE.safetensors]

DIR comes from build_fp8.py. Q, K and V are drawn in BF16 (`data` of a case: normal, peaky, sink, late, mean, outliers, growing, ones) and rounded to
e4m3 with amax scales per head, or per block where the problem has such scales. Errors are relative L2 over sampled rows of some heads against
float64: P error on the rounded inputs, total error on the BF16 ones; how it is timed: compare.py."""
import ctypes, math, os
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from compare import arguments, compare
from launch import Kernel, pointer, tensor_map
from truth import RelativeL2, captured, reference_rows, sample_heads, sample_rows, view


def fp8_kernel(path, variant, tensors, scale):
    f, maps = variant["fields"], []
    values = [pointer(tensors[name]) for name in ("q", "k", "v", "q_scale", "k_scale", "v_scale", "lse_shift", "o", "lse")] + [ctypes.c_float(scale)]
    for m in variant["maps"]:
        a, box, steps = m["argument"], m["box"], None
        if a == "v":
            dims, strides = [f["seq_kv"], f["dv"], f["heads_kv"], f["batch"]], [f["v_stride_d"], f["v_stride_h"], f["v_stride_b"]]
        else:
            heads, rows = (f["heads_q"], f["seq_q"]) if a == "q" else (f["heads_kv"], f["seq_kv"])
            dims, strides = [f["dqk"], rows, heads, f["batch"]], [f["%s_stride_%s" % (a, d)] for d in "shb"]
        if a == "k" and f["seq_kv"] % 2 == 0:  # rows s, s + 1, s + 4, s + 5, ... follow each other
            dims, strides, box, steps = [dims[0], 2, dims[1] - 1, *dims[2:]], [strides[0], *strides], [box[0], 2, *box[1:]], [1, 1, 4, 1, 1]
        maps.append(tensor_map(tensors[a], dims, strides, box, m["swizzle"], steps))
    return Kernel(path, variant, values, maps)


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


class Problem:
    def __init__(self, case, o):
        self.f = f = case["variants"][0]["fields"]
        self.bound = case.get("bound", 0.05)
        self.bf16 = captured(o.captured, f) if o.captured else draw(case.get("data", "normal"), f)
        self.t, rounded = {}, []
        for name, x, rows in zip("qkv", self.bf16, (f["q_scale_rows"], f["k_scale_rows"], 0)):
            e, scale = quantise(x, rows)
            rounded.append(dequantise(e, scale, rows))
            self.t[name + "_scale"] = scale.contiguous()
            self.t[name] = self.laid_out(name, e.view(torch.uint8))
        size = f["batch"] * f["heads_q"] * f["seq_q"]
        self.t["o"] = torch.empty(size * f["dv"], dtype=torch.bfloat16, device="cuda")
        self.out = view(self.t["o"], f, "o", f["heads_q"], f["seq_q"], f["dv"])
        rows_shape = f["batch"], f["heads_q"], f["seq_q"]
        self.t["lse"] = torch.empty(rows_shape, device="cuda") if f["lse"] else None
        self.t["lse_shift"] = torch.randn(rows_shape, device="cuda") if f["lse_shift"] else None
        self.outputs = [self.t["o"]] + ([self.t["lse"]] if f["lse"] else [])
        self.scale = case.get("scale", 1 / math.sqrt(f["dqk"]))
        self.samples = []
        for b, h in sample_heads(f):
            rows = sample_rows(f)
            want, lse = reference_rows(*rounded, f, self.scale, b, h, rows)
            if f["lse_shift"]:
                lse = lse + self.t["lse_shift"][b, h, rows]
            self.samples.append((b, h, rows, want, lse, reference_rows(*self.bf16, f, self.scale, b, h, rows)[0]))

    def laid_out(self, name, e):
        """The bytes as the problem's strides say; V transposed, with NaN behind the last key."""
        f = self.f
        if name == "v":
            flat = torch.full((f["batch"], f["heads_kv"], f["dv"], f["v_stride_d"]), 0x7F, dtype=torch.uint8, device="cuda")
            flat[..., :f["seq_kv"]] = e.transpose(2, 3)
            return flat
        flat = torch.empty(e.numel(), dtype=torch.uint8, device="cuda")
        view(flat, f, name, e.shape[1], e.shape[2], f["dqk"]).copy_(e)
        return flat

    def peer(self):
        f = self.f
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return F.scaled_dot_product_attention(*self.bf16, is_causal=bool(f["causal"]), scale=self.scale, enable_gqa=f["heads_q"] != f["heads_kv"])

    def kernel(self, variant, directory):
        return fp8_kernel(os.path.join(directory, variant["cubin"]), variant, self.t, self.scale)

    def judge(self, row):
        bad = int((~torch.isfinite(self.out)).sum())
        rounded, whole, lse_gap = RelativeL2(), RelativeL2(), 0.0
        for b, h, rows, want, want_lse, want_whole in self.samples:
            got = self.out[b, h, rows].double()
            rounded.add(got, want)
            whole.add(got, want_whole)
            if self.t["lse"] is not None:
                got_lse = self.t["lse"][b, h, rows].double()
                gap = torch.where(got_lse == want_lse, 0.0, (got_lse - want_lse).abs() / (1 + want_lse.abs()))
                lse_gap = max(lse_gap, float(gap.nan_to_num(1e9).max()))
        row["error"], row["total"], row["worst_row"], row["lse"] = rounded.error, whole.error, rounded.worst_row, lse_gap
        row["ok"] = bad == 0 and rounded.error < self.bound and rounded.worst_row < 4 * self.bound and lse_gap < 0.03
        note = "" if row["ok"] else " non-finite %d" % bad
        return "P %.4f total %.4f worst row %.3f lse %.4f%s" % (rounded.error, whole.error, rounded.worst_row, lse_gap, note)


if __name__ == "__main__":
    compare(arguments(__doc__), Problem)
