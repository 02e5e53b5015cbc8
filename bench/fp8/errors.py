"""What FP8 does to attention: P error and total error of each rule for the weights and each way to quantise, emulated in float64 on the host.

    python3 errors.py [--lengths 1024 4096 16384 32768] [--rows 48] [--captured FILE.safetensors ...] [--out errors.json]

Needs torch (CPU). Relative L2 over sampled rows of two heads, causal, tiles of 64 keys; `P error` against exact softmax on the same quantised inputs,
`total error` against attention on the inputs themselves, both in float64. Rules for the weights P (docs/fp8.md):
  exponential   e4m3(2^(x - m + 8)), m the exact running maximum, row sum of the rounded weights
  byte          the byte itself is round(8 (x - m + 15 - 0.043)), no exponential; row sum of what the bytes mean
  byte, blocks  the same with a power of two for each row and 64 keys, undone exactly
  AITER-like    e4m3(2^(x - m)), row sum unrounded
  FA3-like      e4m3(2^(x - m + 8)), row sum unrounded
Two more, by --bounds, which no kernel has; they tell what rounding to e4m3 itself costs:
  best scale    as exponential, but of 16 lifts between two octaves each row has the one with the least error of its own (known only afterwards)
  two bytes     as exponential, and what its rounding lost in a second e4m3: twice the products of P and V
Ways to quantise: `tuned` is the recipe that Whet chooses on these tensors (least error among rotation and scales per head or 64 rows, centred, powers of
two for q and k); `default` is centred, per head, powers of two; `head` one amax scale for each head and tensor (FlashAttention-3's finest); `tensor` one
for each tensor; `one` no scale at all."""
import argparse, json, math, os, sys

import torch

E4M3 = torch.float8_e4m3fn
LOG2E = 1.4426950408889634


def e4m3(x):
    """To nearest even, saturated as the conversions of the hardware do."""
    return x.clamp(-448, 448).float().to(E4M3).double()


DECODE = torch.arange(256, dtype=torch.uint8).view(E4M3).double()


def rotation(dim):
    h = torch.ones(1, 1, dtype=torch.float64)
    part = 64 if dim == 192 else dim
    while h.shape[0] < part:
        h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)])
    h = h / part ** 0.5
    if dim == 192:
        h = torch.kron(torch.eye(3, dtype=torch.float64) - 2 / 3, h)
    d = (torch.arange(dim) & ~24) + 1
    return (1 - 2 * (((d * 0x9E3779B1) >> 31) & 1)).double()[:, None] * h.T


def rounded(x, rows, power_of_two, multiplier=1.0):
    """[heads, seq, dim] through e4m3 and back, one scale for each head (rows 0), block of rows, or for all (rows -1); None: no scale."""
    if rows is None:
        return e4m3(x)
    top = x.abs().amax(-1)
    if rows == -1:
        top = top.amax().expand_as(top)
    elif rows == 0:
        top = top.amax(-1, keepdim=True).expand_as(top)
    else:
        blocks = torch.nn.functional.pad(top, (0, -x.shape[1] % rows)).view(x.shape[0], -1, rows).amax(-1)
        top = blocks.repeat_interleave(rows, 1)[:, :x.shape[1]]
    s = (top * multiplier / 448).clamp_min(2.0 ** -120)
    if power_of_two:
        s = torch.exp2(torch.ceil(torch.log2(s)))
    s = (s / multiplier)[..., None]
    return e4m3(x / s) * s


def recipe(q, k, v, scale, rotate, rows):
    k = k - k.mean(1, keepdim=True)
    if rotate:
        r = rotation(q.shape[-1])
        q, k = q @ r, k @ r
    folded = scale * LOG2E
    multiplier = folded / 2.0 ** round(math.log2(folded))
    return rounded(q, rows, True, multiplier), rounded(k, rows, True), rounded(v, 0, False)


def quantised(q, k, v, scale, way, rows):
    """The three tensors of a way, and its name in full."""
    if way == "default":
        return recipe(q, k, v, scale, False, 0), "centred, per head"
    if way == "tuned":
        best = None
        for rotate in (False, True) if q.shape[-1] in (64, 128, 192, 256) else (False,):
            for block in (0, 64):
                tensors = recipe(q, k, v, scale, rotate, block)
                error = relative(exact(*tensors, scale, rows), exact(q, k, v, scale, rows))
                if best is None or error < 0.9 * best[0]:
                    best = (error, tensors, "centred%s, %s" % (", rotated" if rotate else "", "per 64 rows" if block else "per head"))
        return best[1], best[2]
    block = {"head": 0, "tensor": -1, "one": None}[way]
    return tuple(rounded(x, block, False) for x in (q, k, v)), way


def logits(q, k, scale, rows):
    """In log2; -inf where a key is not visible. [heads, rows, keys]; query heads share the key heads."""
    group = q.shape[0] // k.shape[0]
    x = torch.einsum("hrd,hkd->hrk", q[:, rows], k.repeat_interleave(group, 0)) * (scale * LOG2E)
    offset = k.shape[1] - q.shape[1]
    return x.masked_fill(torch.arange(k.shape[1])[None] > rows[:, None] + offset, float("-inf"))


def exact(q, k, v, scale, rows):
    w = torch.softmax(logits(q, k, scale, rows) / LOG2E, -1)
    return w @ v.repeat_interleave(q.shape[0] // k.shape[0], 0)


def relative(a, b):
    return float((a - b).norm() / b.norm())


def best_scale(q, k, v, scale, rows):
    truth = exact(q, k, v, scale, rows)
    tries = torch.stack([online(q, k, v, scale, rows, "exponential", lift=8 - i / 16) for i in range(16)])
    best = (tries - truth).norm(dim=-1, keepdim=True).argmin(0, keepdim=True)
    return tries.gather(0, best.expand_as(tries[:1]))[0]


def online(q, k, v, scale, rows, rule, tile=64, lift=8):
    """Attention with that rule's weights, tile by tile as a kernel goes."""
    if rule == "best scale":
        return best_scale(q, k, v, scale, rows)
    x = logits(q, k, scale, rows)
    v = v.repeat_interleave(q.shape[0] // k.shape[0], 0)
    m = torch.full((*x.shape[:2], 1), float("-inf"), dtype=torch.float64)
    l = torch.zeros_like(m)
    o = torch.zeros(*x.shape[:2], v.shape[-1], dtype=torch.float64)
    for start in range(0, x.shape[2], tile):
        t = x[..., start:start + tile]
        top = t.amax(-1, keepdim=True)
        new = torch.maximum(m, top)
        shrink = torch.where(new.isinf(), torch.ones_like(new), torch.exp2(m - new))
        base = torch.where(new.isinf(), torch.zeros_like(new), new)
        if rule == "AITER-like":
            p = torch.exp2(t - base)
            w, total = e4m3(p), p
        elif rule == "FA3-like":
            p = torch.exp2(t - base)
            w, total = e4m3(p * 256) / 256, p
        elif rule == "exponential":
            w = e4m3(torch.exp2(t - base + lift)) / 2 ** lift
            total = w
        elif rule == "two bytes":
            p = torch.exp2(t - base)
            w = e4m3(p * 256) / 256
            w = w + e4m3((p - w) * 4096) / 4096
            total = w
        else:
            block = torch.where(top.isinf(), torch.zeros_like(top), torch.ceil(top - base)) if rule == "byte, blocks" else torch.zeros_like(base)
            y = (8 * (t - base - block + 15 - 0.043)).nan_to_num(neginf=-1e9)
            w = DECODE[torch.round(y).clamp(0, 126).long()] / 256 * torch.exp2(block)
            total = w
        o = o * shrink + w @ v[:, start:start + tile]
        l = l * shrink + total.sum(-1, keepdim=True)
        m = new
    return o / l


RULES = ["exponential", "byte", "byte, blocks", "FA3-like", "AITER-like"]
KINDS = ["normal", "peaky", "sink", "late outlier", "outlier channels", "growing maximum", "v = 1", "v with a mean", "biased k"]


def draw(kind, seq, dim=128, heads=2):
    g = torch.Generator().manual_seed(20261130)
    q, k, v = (torch.randn(heads, seq, dim, generator=g).double() for _ in range(3))
    mu = torch.randn(dim, generator=g).double()
    if kind == "peaky":
        q *= 2.5
    elif kind in ("sink", "late outlier"):
        at = 0 if kind == "sink" else seq - 1 - seq // 16
        q += 0.8 * mu
        k[:, at] = 1.2 * mu
        v[:, at] *= 0.05
    elif kind == "outlier channels":
        q[..., 5::32] *= 10
        k[..., 5::32] *= 10
    elif kind == "growing maximum":
        k *= torch.linspace(0.5, 3, seq).double()[None, :, None]
    elif kind == "v = 1":
        v[:] = 1
    elif kind == "v with a mean":
        v += 1
    elif kind == "biased k":
        k[..., 5::32] += 30
    return tuple(x.bfloat16().double() for x in (q, k, v))


def captured(path):
    """q, k and v of a safetensors file, [1, heads, seq, dim], as [heads, seq, dim]."""
    data = open(path, "rb").read()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    dtypes = {"BF16": torch.bfloat16, "F32": torch.float32, "F16": torch.float16}
    tensors = []
    for name in ("q", "k", "v"):
        begin, end = header[name]["data_offsets"]
        flat = torch.frombuffer(bytearray(data[8 + size + begin:8 + size + end]), dtype=dtypes[header[name]["dtype"]])
        tensors.append(flat.view(header[name]["shape"]).double().flatten(0, -3))  # batch and heads together
    return tuple(tensors)


def report(name, tensors, scale, count, rules):
    q, k, v = tensors
    seq = q.shape[1]
    rows = torch.linspace(min(seq - 1, seq // 64), seq - 1, count).round().long().unique()
    truth = exact(q, k, v, scale, rows)
    entry = {"inputs": name, "seq": seq, "heads": q.shape[0], "ways": {}}
    for way in ("tuned", "default", "head", "tensor", "one"):
        (qq, kk, vv), label = quantised(q, k, v, scale, way, rows)
        on_inputs = exact(qq, kk, vv, scale, rows)
        result = {"recipe": label, "exact P": {"total": relative(on_inputs, truth)}}
        for rule in rules if way in ("tuned", "head") else []:
            o = online(qq, kk, vv, scale, rows, rule)
            result[rule] = {"P": relative(o, on_inputs), "total": relative(o, truth)}
        entry["ways"][way] = result
    return entry


def show(entry, rules):
    w = entry["ways"]
    pct = lambda x: "%6.2f" % (100 * x)
    print("%-42s %6d | P of %s: %s | total: %s exact %s default %s head %s tensor %s one %s" % (
        entry["inputs"], entry["seq"], w["tuned"]["recipe"], " ".join(pct(w["tuned"][r]["P"]) for r in rules),
        " ".join(pct(w["tuned"][r]["total"]) for r in RULES[:3]), pct(w["tuned"]["exact P"]["total"]), pct(w["default"]["exact P"]["total"]),
        pct(w["head"]["exact P"]["total"]), pct(w["tensor"]["exact P"]["total"]), pct(w["one"]["exact P"]["total"])), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="*", default=[1024, 4096, 16384, 32768])
    parser.add_argument("--kinds", nargs="*", default=KINDS)
    parser.add_argument("--rows", type=int, default=48)
    parser.add_argument("--captured", nargs="*", default=[])
    parser.add_argument("--bounds", action="store_true")
    parser.add_argument("--out")
    options = parser.parse_args()
    rules = RULES + (["best scale", "two bytes"] if options.bounds else [])
    torch.set_num_threads(2)
    print("inputs, length | P error of the tuned recipe, %%, by rule: %s | total error, %%: the first three rules, then exact P by way" % ", ".join(rules))
    entries = []
    for seq in options.lengths:
        for kind in options.kinds:
            entries.append(report(kind, draw(kind, seq), 128 ** -0.5, options.rows, rules))
            show(entries[-1], rules)
    for path in options.captured:
        q, k, v = captured(path)
        entries.append(report(os.path.basename(path), (q, k, v), q.shape[-1] ** -0.5, options.rows, rules))
        show(entries[-1], rules)
    if options.out:
        json.dump(entries, open(options.out, "w"), indent=1)


if __name__ == "__main__":
    main()
