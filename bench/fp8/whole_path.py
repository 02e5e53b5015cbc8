#!/usr/bin/env python3
"""Is quantise + attention in FP8, one call from BF16 tensors, faster than cuDNN's BF16 attention on the same tensors?

    bazel build --config=release --config=shared //:libwhet.so
    python3 bench/fp8/whole_path.py --library bazel-bin/libwhet.so [--tuning blocking --budget 30] [--seq 8192 16384] --json whole_path.json

For each shape (16,384 tokens, causal; 32 heads of 128, 16 heads of 192/128) every candidate runs at its own steady clock (--soak seconds without a
pause), then is timed with events; candidates take turns A B B A. Candidates: cuDNN in BF16 (through PyTorch), Whet's whole call, and its two halves: the
keys and values, which a prefill of many chunks quantises once, and the queries with attention. Where the time goes is whet_fp8_attention_time's answer:
each part alone, launched and waited for. Outputs are poisoned, then compared with float64 attention on sampled rows of the BF16 tensors, before and
after: a whole call that is off by more than --limit fails the bench. Data: normal, or with --captured the tensors of safetensors files (q, k and v,
[batch, heads, sequence, head dimension] in BF16), repeated to as many tokens; "tuned" is the recipe that is chosen on them."""
import argparse, json, math, os, statistics, struct, sys, time
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from whet_fp8 import WhetFp8  # noqa: E402

SHAPES = [dict(name="128/128", heads=32, dqk=128, dv=128), dict(name="192/128", heads=16, dqk=192, dv=128)]
RECIPES = {"default": "center=1,rotate=0,scale_rows=0", "both remedies": "center=1,rotate=1,scale_rows=64", "tuned": None}


def inputs(options):
    """What is attended to, one (name, q, k, v) after the other."""
    for path in options.captured:
        with open(path, "rb") as f:
            header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
            data, tensors = f.read(), []
        for name in "qkv":
            begin, end = header[name]["data_offsets"]
            tensors.append(torch.frombuffer(bytearray(data[begin:end]), dtype=torch.bfloat16).view(header[name]["shape"]).cuda())
        repeats = max(1, 32 * 16384 // tensors[0][..., 0].numel())
        yield os.path.basename(path), *(t.repeat(repeats, 1, 1, 1) for t in tensors)
    for shape in SHAPES if not options.captured else ():
        if shape["name"] not in options.shapes:
            continue
        for seq in options.seq:
            sizes = [(max(1, 16384 // seq), shape["heads"], seq, shape[dim]) for dim in ("dqk", "dqk", "dv")]
            yield shape["name"], *(torch.randn(size, device="cuda", dtype=torch.bfloat16) for size in sizes)


def flops(batch, heads, seq, dqk, dv):
    return 2 * (dqk + dv) * batch * heads * seq * (seq + 1) // 2


def relative_error(q, k, v, o, rows=24):
    picks = sorted({round(i * (q.shape[2] - 1) / (rows - 1)) for i in range(rows)})
    worst = 0.0
    for b, h in {(0, 0), (q.shape[0] - 1, q.shape[1] - 1)}:
        key_head = h * k.shape[1] // q.shape[1]
        logits = q[b, h, picks].double() @ k[b, key_head].double().T / math.sqrt(q.shape[-1])
        index = torch.arange(q.shape[2], device=q.device)
        logits = logits.masked_fill(index[None] > index[picks][:, None], -math.inf)
        expected = torch.softmax(logits, -1) @ v[b, key_head].double()
        worst = max(worst, ((o[b, h, picks].double() - expected).norm() / expected.norm()).item())
    return worst


def soak(call, seconds):
    end = time.monotonic() + seconds
    event = torch.cuda.Event()
    while time.monotonic() < end:
        for _ in range(4):
            call()
        event.record()
        event.synchronize()


def milliseconds(call, seconds, at_least=6):
    """Median of pairs of calls; the queue never runs dry."""
    call()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record(); call(); call(); end.record(); end.synchronize()
    count = max(at_least, int(seconds * 1e3 / (begin.elapsed_time(end) / 2)) // 2)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    events[0].record()
    for e in events[1:]:
        call(); call()
        e.record()
    events[-1].synchronize()
    return statistics.median(a.elapsed_time(b) / 2 for a, b in zip(events, events[1:]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--seq", type=int, nargs="*", default=[8192, 16384])
    parser.add_argument("--shapes", nargs="*", default=[s["name"] for s in SHAPES])
    parser.add_argument("--recipes", nargs="*", default=["default", "both remedies"], choices=list(RECIPES))
    parser.add_argument("--captured", nargs="*", default=[], help="safetensors files")
    parser.add_argument("--tuning", default="never")
    parser.add_argument("--budget", type=float, default=0, help="seconds of tuning for each problem")
    parser.add_argument("--cache", default="", help="where compiled code is kept; nowhere by default")
    parser.add_argument("--soak", type=float, default=0.6)
    parser.add_argument("--span", type=float, default=0.25)
    parser.add_argument("--limit", type=float, default=0.09)
    parser.add_argument("--json")
    options = parser.parse_args()
    whet = WhetFp8(options.library, "cuda", cache_directory=options.cache, tuning=options.tuning, tuning_budget_s=options.budget)
    torch.manual_seed(3)
    results, failed = [], 0
    for name, q, k, v in inputs(options):
        (batch, heads, seq, dqk), dv = q.shape, v.shape[3]
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            peer = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=heads != k.shape[1])
            peer_error = relative_error(q, k, v, peer())
            soak(peer, options.soak)
            peer_ms = [milliseconds(peer, options.span)]
        work = flops(batch, heads, seq, dqk, dv) / 1e9
        for recipe in options.recipes:
            o = torch.full((batch, heads, seq, dv), float("nan"), device="cuda", dtype=torch.bfloat16)
            a = whet.attention(recipe=RECIPES[recipe], batch=batch, heads_q=heads, heads_kv=k.shape[1], seq_q=seq, seq_kv=seq, dqk=dqk, dv=dv, causal=True)
            pointers = [t.data_ptr() for t in (q, k, v, o)]
            if RECIPES[recipe] is None:
                a.tune(*pointers[:3])
            whole = lambda: a.run(*pointers)
            begin = time.monotonic()
            whole()
            torch.cuda.synchronize()
            print("%s S %d, %s: first call %.1f s" % (name, seq, recipe, time.monotonic() - begin), file=sys.stderr, flush=True)
            before = relative_error(q, k, v, o)
            soak(whole, options.soak)
            ms = [milliseconds(whole, options.span), milliseconds(whole, options.span)]
            keys = milliseconds(lambda: a.keys(*pointers[1:3]), options.span / 2)
            queries = milliseconds(lambda: a.forward(pointers[0], pointers[3]), options.span / 2)
            parts = {part.replace("_ns", "_us"): ns / 1e3 for part, ns in a.times(*pointers).items()}
            o.fill_(float("nan"))
            whole()
            torch.cuda.synchronize()
            after = relative_error(q, k, v, o)
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                soak(peer, options.soak / 2)
                peer_ms.append(milliseconds(peer, options.span))
            wrong = not (before <= options.limit and after <= options.limit)
            failed += wrong
            mine, theirs = statistics.mean(ms), statistics.mean(peer_ms[-2:])
            row = dict(shape=name, seq=seq, batch=batch, heads=heads, recipe=a.recipe(), ratio=theirs / mine, whole_ms=ms, cudnn_ms=peer_ms[-2:],
                       tflops=work / mine, cudnn_tflops=work / theirs, keys_values_ms=keys, queries_attention_ms=queries, parts=parts,
                       error_before=before, error_after=after, cudnn_error=peer_error, failed=bool(wrong),
                       variants=[e["variant"] for e in whet.events[-4:]])
            results.append(row)
            print("%-8s S %5d  %-14s %6.3f ms, cuDNN BF16 %6.3f ms: %.2fx (%4.0f against %3.0f TFLOP/s); keys and values %.3f, queries and attention %.3f ms; %s; error %.2f %%%s" % (
                name, seq, recipe, mine, theirs, row["ratio"], row["tflops"], row["cudnn_tflops"], keys, queries,
                ", ".join("%s %.0f" % (n.replace("quantize_", ""), us) for n, us in parts.items()), 100 * after, "  FAILED" if wrong else ""), flush=True)
            a.close()
    if options.json:
        with open(options.json, "w") as f:
            json.dump(dict(device=torch.cuda.get_device_name(), failed=failed, rows=results), f, indent=1)
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
