"""Does the data choose the winner? The whole variant space of one problem, each variant at its own steady clock, on each kind of data; and what it costs
to deploy the winner found on zeros, on normal data, or by short timing after idle (the boost clock).

    python3 make_cases.py DIR/cases; python3 build_variants.py DIR/cases/space_4k.json DIR/space_4k
    python3 winner_by_data.py DIR/space_4k [--captured FILE.safetensors] [--soak 0.45] [--span 0.15] [--out results.json]

Every variant's output is compared with cuDNN on every kind of data in the run that times it; a wrong one ends the script with 1. Normal data is
measured a second time at the end: what its regrets change by between the two is the noise of the table."""
import argparse, json, math, os, statistics, sys, time
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from bench_variants import attention_kernel
from timing import finish_or_die, steady
from truth import captured, view


def make(kind, shape, path, f):
    """Q, K, V as float32 [B, H, S, D]."""
    def normal(s):
        return torch.randn(s, device="cuda")
    q, k, v = (normal(shape[n]) for n in "qkv")
    if kind == "uniform":
        return [2 * torch.rand(shape[n], device="cuda") - 1 for n in "qkv"]
    if kind == "zeros":
        return [torch.zeros(shape[n], device="cuda") for n in "qkv"]
    if kind == "sparse":
        return [t * (torch.rand(t.shape, device="cuda") < 0.1) for t in (q, k, v)]
    if kind == "sink":  # one direction that every query likes, and the first key has it
        d = q.shape[-1]
        q[..., 0] += 6
        k[:, :, 0] = 0
        k[:, :, 0, 0] = 2 * math.sqrt(d)
    if kind == "outlier channels":
        k[..., :4] *= 16
        q[..., :4] *= 4
    if kind == "smooth":  # neighbours along the sequence are alike
        def walk(t):
            kernel = torch.hann_window(65, device="cuda").view(1, 1, -1)
            flat = t.transpose(2, 3).reshape(-1, 1, t.shape[2])
            smooth = F.conv1d(flat, kernel / kernel.norm(), padding=32)
            return smooth.view(*t.shape[:2], t.shape[3], t.shape[2]).transpose(2, 3)
        q, k, v = walk(q), walk(k), walk(v)
    if kind == "captured":
        return [t.float() for t in captured(path, f)]
    return [q, k, v]


def boost(kernel):
    """Seconds of a launch as a short benchmark sees it: after idle, a few warm-up launches, then about 10 ms."""
    torch.cuda.synchronize()
    time.sleep(0.25)
    for _ in range(3):
        kernel()
    times = []
    for _ in range(10):
        a, b = torch.cuda.Event(True), torch.cuda.Event(True)
        a.record(); kernel(); b.record()
        times.append((a, b))
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in times) / 1e3


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dir")
    parser.add_argument("--captured", default="")
    parser.add_argument("--soak", type=float, default=0.45)
    parser.add_argument("--span", type=float, default=0.15)
    parser.add_argument("--out", default="")
    o = parser.parse_args()
    case = json.load(open(os.path.join(o.dir, "manifest.json")))[0]
    f = case["variants"][0]["fields"]
    shapes = {"q": (f["heads_q"], f["seq_q"], f["dqk"]), "k": (f["heads_kv"], f["seq_kv"], f["dqk"]), "v": (f["heads_kv"], f["seq_kv"], f["dv"]), "o": (f["heads_q"], f["seq_q"], f["dv"])}
    flat = {n: torch.zeros(f["batch"] * math.prod(s), device="cuda", dtype=torch.bfloat16) for n, s in shapes.items()}
    t = {n: view(flat[n], f, n, *s) for n, s in shapes.items()}
    full = {n: (f["batch"], *s) for n, s in shapes.items()}
    kernels = [(v["variant"], attention_kernel(os.path.join(o.dir, v["cubin"]), v, {**flat, "lse": None}, 1 / math.sqrt(f["dqk"]))) for v in case["variants"]]
    kinds = ["normal", "uniform", "sparse", "sink", "outlier channels", "smooth"] + (["captured"] if o.captured else []) + ["zeros", "normal again"]
    seconds, clocks, wrong = {}, {}, 0
    for kind in kinds:
        torch.manual_seed(7)
        for n, data in zip("qkv", make(kind, full, o.captured, f)):
            t[n].copy_(data)
            del data
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            want = F.scaled_dot_product_attention(t["q"], t["k"], t["v"], is_causal=True, enable_gqa=f["heads_q"] != f["heads_kv"]).float()
        seconds[kind], clocks[kind] = {}, {}
        for name, kernel in kernels:
            flat["o"].fill_(math.nan)
            kernel()
            finish_or_die(kind, name)
            error = float((t["o"].float() - want).norm() / want.norm().clamp(min=1e-30))
            if not error < 0.01:
                print("WRONG", kind, name, error, flush=True)
                wrong += 1
                continue
            row = steady(kernel, o.soak, o.span)
            seconds[kind][name], clocks[kind][name] = row["seconds"], row["mhz"]
        best = min(seconds[kind], key=seconds[kind].get)
        print("%-17s best %.4f ms at %d MHz  %s" % (kind, seconds[kind][best] * 1e3, clocks[kind][best], best), flush=True)
        if kind == "normal":
            seconds["boost clock"] = {name: boost(kernel) for name, kernel in kernels}
            best = min(seconds["boost clock"], key=seconds["boost clock"].get)
            print("%-17s best %.4f ms             %s" % ("boost, normal", seconds["boost clock"][best] * 1e3, best), flush=True)

    def winner(kind):
        return min(seconds[kind], key=seconds[kind].get)
    print("\nregret (%) of deploying the winner found on ..., when the data is ...")
    print("%-17s" % "" + "".join("%17s" % k for k in kinds))
    regret = {}
    for source in ["zeros", "normal", "boost clock"] + [k for k in kinds if k not in ("zeros", "normal")]:
        regret[source] = {k: 100 * (seconds[k][winner(source)] / min(seconds[k].values()) - 1) for k in kinds}
        print("%-17s" % source + "".join("%17.2f" % regret[source][k] for k in kinds))
    print("\nmedian ms per variant")
    for name, _ in kernels:
        print(" ".join("%.4f" % (1e3 * seconds[k].get(name, math.nan)) for k in kinds), name)
    if o.out:
        json.dump({"device": torch.cuda.get_device_name(), "fields": f, "seconds": seconds, "mhz": clocks, "regret_percent": regret}, open(o.out, "w"), indent=1)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
