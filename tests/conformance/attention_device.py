#!/usr/bin/env python3
"""What the conformance table cannot say of a GPU: for machines with an NVIDIA GPU and PyTorch, through libwhet.so as an application uses it.

    python3 tests/conformance/attention_device.py LIBRARY [--skip-large]

Each check prints one line; ends with "N passed, N failed" and exits with 1 when something failed.
  graph       100 replays of a captured launch write the same bits, and those of the launch before the capture; a problem that was not
              prepared is refused during a capture, and the capture survives
  large       Q and O of more than 2^31 elements, sampled rows against float64
  misaligned  a tensor at an odd element: an error that names it where 16 bytes were promised
  padding     keys and values beyond seq_kv and between the rows are NaN: the output is that of clean padding, bit for bit
  masked      NaN in values that causal rows do not see (and infinity): those rows are as without them
"""
import ctypes, math, pathlib, sys, tempfile
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent.parent / "bench/attention"))
import torch
from whet_ctypes import Whet, WhetError

passed, failed = 0, 0


def report(name, good, detail=""):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    print("%-46s %s %s" % (name, "ok" if good else "FAILED", detail), flush=True)


def problem(q, k, v, o, causal, lse=None):
    """Arguments for [B, H, S, D] views with any strides."""
    a = whet.attention_args(q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr(), dtype="bf16", batch=q.shape[0], heads_q=q.shape[1],
                            heads_kv=k.shape[1], seq_q=q.shape[2], seq_kv=k.shape[2], dqk=q.shape[3], dv=v.shape[3], causal=causal,
                            lse=lse.data_ptr() if lse is not None else None)
    for name, t in (("q_strides", q), ("k_strides", k), ("v_strides", v), ("o_strides", o)):
        setattr(a, name, (ctypes.c_int64 * 3)(*t.stride()[:3]))
    return a


def launch(*tensors, causal=1, stream=None):
    whet.launch(problem(*tensors, causal), stream)


def reference(q, k, v, b, h, rows, causal=True):
    kh = h * k.shape[1] // q.shape[1]
    visible = torch.arange(k.shape[2], device="cuda")[None] <= rows[:, None] + k.shape[2] - q.shape[2]
    s = q[b, h, rows].double() @ k[b, kh].double().T / math.sqrt(q.shape[3])
    if causal:
        s = s.masked_fill(~visible, -math.inf)
    return torch.softmax(s, 1) @ v[b, kh].double()


def randn(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def graph():
    q, k, v = randn(2, 8, 1000, 128), randn(2, 2, 1000, 128), randn(2, 2, 1000, 128)
    o = torch.empty_like(q)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        launch(q, k, v, o, stream=side.cuda_stream)
    torch.cuda.synchronize()
    first = o.clone()
    captured = torch.cuda.CUDAGraph()
    refused = ""
    with torch.cuda.graph(captured, stream=side):
        launch(q, k, v, o, stream=side.cuda_stream)
        try:
            launch(q[:, :, :999], k, v, o[:, :, :999], stream=side.cuda_stream)
        except WhetError as error:
            refused = str(error)
    same = True
    for _ in range(100):
        o.fill_(math.nan)
        captured.replay()
        same &= torch.equal(o.view(torch.int16), first.view(torch.int16))
    report("graph: 100 replays, bit for bit", same)
    report("graph: an unprepared problem is refused", "captur" in refused, refused[:110])
    # Other addresses and new data in the captured buffers.
    q.copy_(randn(*q.shape))
    captured.replay()
    torch.cuda.synchronize()
    rows = torch.tensor([0, 127, 128, 999], device="cuda")
    want = reference(q, k, v, 1, 5, rows)
    report("graph: replay on new data", (o[1, 5, rows].double() - want).norm() / want.norm() < 0.006)


def large():
    b, h, s, d = 129, 64, 2048, 128
    q, k, v = randn(b, h, s, d), randn(b, 2, s, d), randn(b, 2, s, d)
    o = torch.full_like(q, math.nan)
    launch(q, k, v, o)
    torch.cuda.synchronize()
    worst = 0.0
    rows = torch.tensor([0, 1, 127, 128, 1000, 2047], device="cuda")
    for bb, hh in ((0, 0), (127, 63), (128, 0), (128, 63)):
        want = reference(q, k, v, bb, hh, rows)
        worst = max(worst, float((o[bb, hh, rows].double() - want).norm() / want.norm()))
    finite = all(bool(torch.isfinite(o[bb]).all()) for bb in range(b))
    report("large: %d elements" % q.numel(), worst < 0.006 and finite and q.numel() > 2**31, "relative L2 %.2g" % worst)


def misaligned():
    storage = randn(2 * 300 * 64 + 8)
    q = storage[1:1 + 2 * 300 * 64].view(1, 2, 300, 64)
    k, v = randn(1, 2, 300, 64), randn(1, 2, 300, 64)
    o = torch.full((1, 2, 300, 64), math.nan, device="cuda", dtype=torch.bfloat16)
    try:
        launch(q, k, v, o)
        torch.cuda.synchronize()
        rows = torch.arange(300, device="cuda")
        want = reference(q, k, v, 0, 1, rows)
        error = float((o[0, 1].double() - want).norm() / want.norm())
        report("misaligned: another kernel takes it", error < 0.006, "relative L2 %.2g" % error)
    except WhetError as error:
        report("misaligned: an error that names the tensor", "q" in str(error) and "align" in str(error), str(error)[:140])


def padding():
    for dim in (128, 80, 72, 100):
        q, k, v = randn(1, 4, 333, dim), randn(1, 2, 333, dim), randn(1, 2, 333, dim)
        clean = torch.empty_like(q)
        launch(q, k, v, clean)
        wide = [torch.full((1, t.shape[1], 400, dim + 24), math.nan, device="cuda", dtype=torch.bfloat16) for t in (q, k, v, q)]
        views = [w[:, :, :333, :dim] for w in wide]
        for view, t in zip(views, (q, k, v)):
            view.copy_(t)
        launch(*views)
        torch.cuda.synchronize()
        report("padding: NaN all round, dim %d" % dim, torch.equal(views[3].contiguous().view(torch.int16), clean.view(torch.int16)))


def masked():
    for dim, dv, seq in ((128, 128, 1000), (192, 128, 700), (64, 64, 1500), (256, 256, 300), (128, 128, 2500), (100, 36, 333)):
        q, k, v = randn(2, 4, seq, dim), randn(2, 2, seq, dim), randn(2, 2, seq, dv)
        clean, dirty = (torch.full((2, 4, seq, dv), 7.0, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        launch(q, k, v, clean)
        at = seq * 2 // 3
        v[:, :, at, 3] = math.nan
        v[:, :, at + 9, 5] = math.inf
        k[:, :, seq - 1] = math.nan
        launch(q, k, v, dirty)
        torch.cuda.synchronize()
        gap = (dirty[:, :, :at].double() - clean[:, :, :at].double()).norm() / clean[:, :, :at].double().norm()
        seen = torch.isnan(dirty[:, :, at:, 3]).all() and torch.isnan(dirty[:, :, seq - 1]).all()
        between = dirty[:, :, at:seq - 1]
        others = torch.isfinite(between[..., [c for c in range(dv) if c not in (3, 5)]]).all()
        infinite = torch.isinf(between[:, :, 9:, 5]).all() and torch.isfinite(between[:, :, :9, 5]).all()
        report("masked: dims %d/%d, %d keys" % (dim, dv, seq), gap < 0.003 and seen and others and infinite,
               "rows before: relative L2 %.2g, NaN where seen %d, others finite %d, infinity where seen %d" % (gap, seen, others, infinite))


torch.manual_seed(20261130)
whet = Whet(sys.argv[1], "cuda", cache_directory=tempfile.mkdtemp(prefix="whet-"), tuning="never")
for check in (graph, misaligned, padding, masked) + (() if "--skip-large" in sys.argv else (large,)):
    try:
        check()
    except (WhetError, RuntimeError) as error:
        report(check.__name__, False, str(error).splitlines()[0][:200])
whet.close()
print("%d passed, %d failed" % (passed, failed))
sys.exit(failed > 0)
