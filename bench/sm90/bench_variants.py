"""Checks and times compiled attention variants against PyTorch's cuDNN back end, in one process, on the same tensors.

    python3 bench_variants.py DIR [--soak 0.9] [--span 0.4] [--out results.json] [--no-time] [--captured FILE.safetensors]

DIR comes from build_variants.py. Every element of an output is compared with cuDNN, sampled rows with float64; how it is timed: compare.py."""
import ctypes, math, os
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from compare import arguments, compare
from launch import Kernel, pointer, tensor_map
from truth import RelativeL2, captured, reference_rows, sample_heads, sample_rows, view


def attention_kernel(path, variant, tensors, scale):
    """`tensors`: q, k, v, o and lse (or None), flat or not."""
    f, maps = variant["fields"], []
    values = [pointer(tensors[name]) for name in ("q", "k", "v", "o", "lse")] + [ctypes.c_float(scale)]
    for m in variant["maps"]:
        a = m["argument"]
        heads, rows = (f["heads_q"], f["seq_q"]) if a in "qo" else (f["heads_kv"], f["seq_kv"])
        maps.append(tensor_map(tensors[a], [f["dqk"] if a in "qk" else f["dv"], rows, heads, f["batch"]], [f["%s_stride_%s" % (a, d)] for d in "shb"], m["box"], m["swizzle"]))
    return Kernel(path, variant, values, maps)


class Problem:
    def __init__(self, case, o):
        self.f = f = case["variants"][0]["fields"]
        shapes = {"q": (f["heads_q"], f["seq_q"], f["dqk"]), "k": (f["heads_kv"], f["seq_kv"], f["dqk"]), "v": (f["heads_kv"], f["seq_kv"], f["dv"]), "o": (f["heads_q"], f["seq_q"], f["dv"])}
        self.flat = {n: torch.randn(f["batch"] * math.prod(s), device="cuda").bfloat16() for n, s in shapes.items()}
        self.t = t = {n: view(self.flat[n], f, n, *s) for n, s in shapes.items()}
        if o.captured:
            for n, data in zip("qkv", captured(o.captured, f)):
                t[n].copy_(data)
        self.lse = torch.empty(f["batch"], f["heads_q"], f["seq_q"], device="cuda") if f["lse"] else None
        self.outputs = [self.flat["o"]] + ([self.lse] if f["lse"] else [])
        self.scale = case.get("scale", 1 / math.sqrt(f["dqk"]))
        self.samples = []
        for b, h in sample_heads(f):
            rows = sample_rows(f)
            self.samples.append((b, h, rows, *reference_rows(t["q"], t["k"], t["v"], f, self.scale, b, h, rows)))
        self.peer, self.want = None, None
        if self.scale > 0 and (f["seq_q"] == f["seq_kv"] or not f["causal"]):
            try:
                self.want = self.cudnn().float()
                self.peer = self.cudnn
            except Exception as error:
                print("cuDNN declines", case["name"], str(error).splitlines()[0])

    def cudnn(self):
        f, t = self.f, self.t
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return F.scaled_dot_product_attention(t["q"], t["k"], t["v"], is_causal=bool(f["causal"]), scale=self.scale, enable_gqa=f["heads_q"] != f["heads_kv"])

    def kernel(self, variant, directory):
        return attention_kernel(os.path.join(directory, variant["cubin"]), variant, {**self.flat, "lse": self.lse}, self.scale)

    def judge(self, row):
        o, l2, wrong_lse = self.t["o"], RelativeL2(), 0
        for b, h, rows, want, want_lse in self.samples:
            l2.add(o[b, h, rows].double(), want)
            if self.lse is not None:
                got = self.lse[b, h, rows].double()
                wrong_lse += int((~((got == want_lse) | ((got - want_lse).abs() < 1e-3 * (1 + want_lse.abs())))).sum())
        bad = int((~torch.isfinite(o)).sum())
        row["error"], row["worst_row"] = l2.error, l2.worst_row
        row["against_cudnn"] = float((o.float() - self.want).norm() / self.want.norm()) if self.want is not None else None
        row["ok"] = bad == 0 and l2.error < 0.01 and l2.worst_row < 0.03 and wrong_lse == 0 and (self.want is None or row["against_cudnn"] < 0.01)
        if row["ok"]:
            return "err %.4f" % l2.error
        return "non-finite %d error %g worst row %g cudnn %s lse %d" % (bad, l2.error, l2.worst_row, row["against_cudnn"], wrong_lse)


if __name__ == "__main__":
    compare(arguments(__doc__), Problem)
