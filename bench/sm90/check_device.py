"""What no timing shows of the Hopper attention kernels, on compiled variants and without the runtime: for a machine with the GPU.

    python3 check_device.py DIR       # DIR is for the cubins; needs NVRTC and PyTorch

Each check prints a line; ends with "N passed, N failed" and exits with 1 when something failed.
  graph    100 replays of a captured launch write the same bits
  masked   NaN and infinity in values that causal rows do not see: those rows are as without them; where they are seen, they are seen
  padding  keys and values beyond seq_kv and between the rows are NaN: the output is that of clean padding, bit for bit
  large    Q and O of more than 2^31 elements, sampled rows against float64"""
import math, os, sys
import torch

from bench_variants import attention_kernel
from build_variants import attention_problem, build, specialise, variants_of
from timing import finish_or_die
from truth import reference_rows

directory = sys.argv[1]
passed, failed = 0, 0


def report(name, good, detail=""):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    print("%-60s %s %s" % (name, "ok" if good else "FAILED", detail), flush=True)


def kernel(problem, variant, q, k, v, o):
    made = specialise("attention_forward", "sm90", problem, variant, 132)
    name = "%016x" % (hash(made["source"]) & (1 << 64) - 1)
    digest, log, right = build((directory, name, made["source"]))
    if not right:
        raise RuntimeError(log)
    made["fields"]["lse"] = 0
    return attention_kernel(os.path.join(directory, digest + ".cubin"), made, {"q": q, "k": k, "v": v, "o": o, "lse": None}, 1 / math.sqrt(q.shape[3]))


def problem_of(q, k, v, o, causal=1):
    p = attention_problem(q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.shape[3], v.shape[3], causal)
    for name, t in zip("qkvo", (q, k, v, o)):
        p.update({"%s_stride_%s" % (name, d): s for d, s in zip("bhs", t.stride())})
    return p


def randn(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def same(a, b):
    return torch.equal(a.contiguous().view(torch.int16), b.contiguous().view(torch.int16))


def some(problem):
    """The default and two others, as far from it as the space has them."""
    found = variants_of(problem)
    return [found[0], found[len(found) // 2], found[-1]]


def graph():
    for heads, seq, dim, dv in ((32, 1000, 128, 128), (16, 700, 192, 128), (30, 2100, 64, 64)):
        q, k, v = randn(4, heads, seq, dim), randn(4, heads // 2, seq, dim), randn(4, heads // 2, seq, dv)
        o = torch.empty(4, heads, seq, dv, device="cuda", dtype=torch.bfloat16)
        p = problem_of(q, k, v, o)
        for variant in some(p)[:2]:
            run = kernel(p, variant, q, k, v, o)
            run()
            torch.cuda.synchronize()
            first, captured, equal = o.clone(), torch.cuda.CUDAGraph(), True
            with torch.cuda.graph(captured):
                run()
            for _ in range(100):
                o.fill_(math.nan)
                captured.replay()
                equal &= same(o, first)
            report("graph: %d/%d, S %d, 100 replays" % (dim, dv, seq), equal)


def masked():
    for dim, dv, seq in ((128, 128, 1000), (192, 128, 700), (64, 64, 1500), (256, 256, 300), (128, 128, 2500), (112, 96, 520), (72, 80, 333)):
        q, k, v = randn(2, 4, seq, dim), randn(2, 2, seq, dim), randn(2, 2, seq, dv)
        o = torch.empty(2, 4, seq, dv, device="cuda", dtype=torch.bfloat16)
        p = problem_of(q, k, v, o)
        clean_k, clean_v, at = k.clone(), v.clone(), seq * 2 // 3
        for variant in some(p):
            run = kernel(p, variant, q, k, v, o)
            k.copy_(clean_k), v.copy_(clean_v), o.fill_(7)
            run()
            torch.cuda.synchronize()
            clean = o.clone()
            v[:, :, at, 3], v[:, :, at + 9, 5], k[:, :, seq - 1] = math.nan, math.inf, math.nan
            o.fill_(7)
            run()
            finish_or_die("masked", dim, dv, variant)
            gap = (o[:, :, :at].double() - clean[:, :, :at].double()).norm() / clean[:, :, :at].double().norm()
            seen = torch.isnan(o[:, :, at:, 3]).all() and torch.isnan(o[:, :, seq - 1]).all()
            between = o[:, :, at:seq - 1]
            others = torch.isfinite(between[..., [c for c in range(dv) if c not in (3, 5)]]).all()
            infinite = torch.isinf(between[:, :, 9:, 5]).all() and torch.isfinite(between[:, :, :9, 5]).all()
            report("masked: %d/%d, S %d" % (dim, dv, seq), gap < 0.003 and seen and others and infinite, "gap %.2g seen %d others %d infinite %d %s" % (
                gap, seen, others, infinite, variant))


def padding():
    for dim in (128, 80, 72, 192):
        q, k, v = randn(1, 4, 333, dim), randn(1, 2, 333, dim), randn(1, 2, 333, dim)
        clean = torch.empty_like(q)
        kernel(problem_of(q, k, v, clean), {}, q, k, v, clean)()
        wide = [torch.full((1, t.shape[1], 400, dim + 24), math.nan, device="cuda", dtype=torch.bfloat16) for t in (q, k, v, q)]
        views = [w[:, :, :333, :dim] for w in wide]
        for view, t in zip(views, (q, k, v)):
            view.copy_(t)
        kernel(problem_of(*views), {}, *views)()
        torch.cuda.synchronize()
        outside = wide[3].clone()
        outside[:, :, :333, :dim] = math.nan
        report("padding: NaN all round, dim %d" % dim, same(views[3], clean) and bool(torch.isnan(outside).all()))


def large():
    b, h, s, d = 129, 64, 2048, 128
    q, k, v = randn(b, h, s, d), randn(b, 2, s, d), randn(b, 2, s, d)
    o = torch.full_like(q, math.nan)
    p = problem_of(q, k, v, o)
    kernel(p, {}, q, k, v, o)()
    torch.cuda.synchronize()
    rows, worst = torch.tensor([0, 1, 127, 128, 1000, 2047], device="cuda"), 0.0
    for bb, hh in ((0, 0), (127, 63), (128, 0), (128, 63)):
        want, _ = reference_rows(q, k, v, p, 1 / math.sqrt(d), bb, hh, rows)
        worst = max(worst, float((o[bb, hh, rows].double() - want).norm() / want.norm()))
    report("large: %d elements" % q.numel(), worst < 0.006 and all(bool(torch.isfinite(o[bb]).all()) for bb in range(b)), "relative L2 %.2g" % worst)


torch.manual_seed(20261130)
os.makedirs(directory, exist_ok=True)
for check in (graph, masked, padding, large):
    try:
        check()
    except Exception as error:
        report(check.__name__, False, str(error).splitlines()[0][:200])
print("%d passed, %d failed" % (passed, failed))
sys.exit(failed > 0)
