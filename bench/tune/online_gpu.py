#!/usr/bin/env python3
"""Are a GPU's live calls right while they are being tuned on (tuning mode "online"), and what do they cost?

    python3 bench/tune/online_gpu.py --library bazel-bin/libwhet.so [--calls 1500] [--cache DIR]     # needs torch

Attention forward, BF16, causal: each call on one of four sets of tensors, its output poisoned before and every element compared with PyTorch's on that set after.
Calls follow each other without a pause; each tenth of them gets a median of device time. What was settled comes as an event."""
import argparse, os, statistics, sys, tempfile
import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../attention"))
from whet_ctypes import Whet  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--calls", type=int, default=1500)
    parser.add_argument("--cache", help="a directory; without it a fresh one")
    parser.add_argument("--seq", type=int, default=4096)
    options = parser.parse_args()
    torch.manual_seed(1)
    heads, dim = 32, 128
    sets = [[torch.randn(1, heads, options.seq, dim, device="cuda", dtype=torch.bfloat16) for _ in range(3)] for _ in range(4)]
    expected = [torch.nn.functional.scaled_dot_product_attention(*s, is_causal=True).float() for s in sets]
    o = torch.empty_like(sets[0][0])
    with tempfile.TemporaryDirectory() as fresh:
        whet = Whet(options.library, "cuda", cache_directory=options.cache or fresh, tuning="online")
        errors = torch.empty(options.calls, device="cuda")  # read at the end: the queue does not run dry
        events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(options.calls)]
        stream = torch.cuda.current_stream().cuda_stream
        for i, (begin, end) in enumerate(events):
            q, k, v = sets[i % 4]
            o.fill_(float("nan"))
            begin.record()
            whet.attention(q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr(), dtype="bf16", batch=1, heads_q=heads, heads_kv=heads, seq_q=options.seq,
                           seq_kv=options.seq, dqk=dim, dv=dim, causal=True, stream=stream)
            end.record()
            errors[i] = (o.float() - expected[i % 4]).norm() / expected[i % 4].norm()
            if i % 32 == 31:
                end.synchronize()
        torch.cuda.synchronize()
        wrong, worst = int((~(errors < 1e-2)).sum()), errors.max().item()
        times = [begin.elapsed_time(end) for begin, end in events]
        tenth = max(1, options.calls // 10)
        print("%d calls, %d wrong, largest relative L2 difference to PyTorch %.1e" % (options.calls, wrong, worst))
        print("median ms of each tenth:", " ".join("%.3f" % statistics.median(times[i:i + tenth]) for i in range(0, options.calls, tenth)))
        print("first call %.2f ms; slowest of the others %.2f ms; all calls %.1f %% above as many of the last tenth's" % (
            times[0], max(times[1:]), 100 * (sum(times[1:]) / (len(times) - 1) / statistics.median(times[-tenth:]) - 1)))
        for event in whet.events:
            print("settled:", event)
        whet.close()
    return wrong != 0


if __name__ == "__main__":
    sys.exit(main())
