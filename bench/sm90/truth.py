"""Attention in float64 on sampled rows, and the tensors that it is asked of. `f` holds the fields of a problem.

    want, lse = reference_rows(q, k, v, f, scale, b, h, sample_rows(f))"""
import json, math, random, struct
import torch


def view(flat, f, name, heads, rows, width):
    return flat.as_strided((f["batch"], heads, rows, width), [f["%s_stride_%s" % (name, d)] for d in "bhs"] + [1])


def reference_rows(q, k, v, f, scale, b, h, rows):
    """Float64 attention and log-sum-exp of some rows of one head."""
    kk, vv = k[b, h // (f["heads_q"] // f["heads_kv"])].double(), v[b, h // (f["heads_q"] // f["heads_kv"])].double()
    s = q[b, h, rows].double() @ kk.T * scale
    if f["causal"]:
        s = s.masked_fill(torch.arange(f["seq_kv"], device="cuda")[None] > rows[:, None] + f["seq_kv"] - f["seq_q"], -math.inf)
    lse = torch.logsumexp(s, 1)
    p = torch.exp(s - torch.where(lse == -math.inf, 0.0, lse)[:, None])
    return p @ vv, lse


def sample_rows(f):
    n = f["seq_q"]
    rows = {0, 1, n - 1, n // 2} | {e + d for e in (64, 128, 192, 256, n // 64 * 64, n // 128 * 128, n // 192 * 192) for d in (-1, 0, 1)}
    rows |= {random.randrange(n) for _ in range(24)}
    return torch.tensor(sorted(r for r in rows if 0 <= r < n), device="cuda")


def sample_heads(f):
    """(batch, head): the corners and two others."""
    corners = {(b, h) for b in (0, f["batch"] - 1) for h in (0, f["heads_q"] - 1)}
    return sorted(corners | {(random.randrange(f["batch"]), random.randrange(f["heads_q"])) for _ in range(2)})


def pairs(f):
    """Pairs of a query and a key that it sees."""
    if not f["causal"]:
        return f["seq_q"] * f["seq_kv"]
    return sum(max(0, min(f["seq_kv"], i + 1 + f["seq_kv"] - f["seq_q"])) for i in range(f["seq_q"]))


def captured(path, f):
    """Post-RoPE Q, K, V of a decoder layer, heads repeated to the problem's count."""
    raw = open(path, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    header, result = json.loads(raw[8:8 + n]), []
    for name, heads in (("q", f["heads_q"]), ("k", f["heads_kv"]), ("v", f["heads_kv"])):
        start, end = header[name]["data_offsets"]
        t = torch.frombuffer(bytearray(raw[8 + n + start:8 + n + end]), dtype=torch.bfloat16).view(header[name]["shape"]).cuda()
        t = t[:, :, :f["seq_q"]]
        result.append(t.repeat(f["batch"], -(-heads // t.shape[1]), 1, 1)[:, :heads].contiguous())
    return result


class RelativeL2:
    """Of all rows together, and the worst row's."""
    def __init__(self):
        self.gap = self.size = self.worst_row = 0.0

    def add(self, got, want):
        gap, size = (got - want).norm(dim=1), want.norm(dim=1)
        self.gap += float((gap ** 2).sum())
        self.size += float((size ** 2).sum())
        self.worst_row = max(self.worst_row, float((gap / size.clamp(min=1e-30)).max()))

    @property
    def error(self):
        return math.sqrt(self.gap / max(self.size, 1e-30))
