"""What do NaN in the values cost? With finite inputs the kernel only looks at what it writes; otherwise a warp looks for the cause, and computes anew what a
key beyond a row's last has spoilt.

    python3 nan_cost.py libwhet.so      # D 128, H 32, S 16384, causal; milliseconds of one launch"""
import math, pathlib, sys, tempfile
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "attention"))
import torch
from whet_ctypes import Whet

whet = Whet(sys.argv[1], "cuda", cache_directory=tempfile.mkdtemp(prefix="whet-"), tuning="never")
q, k, clean = (torch.randn(1, 32, 16384, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3))
o = torch.empty_like(q)
kinds = {"finite": lambda v: v, "one NaN in the middle": lambda v: v[:, :, 8192, 5].fill_(math.nan), "one key of NaN in the middle": lambda v: v[:, :, 8192].fill_(math.nan),
         "one key of NaN at the end": lambda v: v[:, :, 16383].fill_(math.nan), "1 % NaN": lambda v: v.masked_fill_(torch.rand_like(v) < 0.01, math.nan), "all NaN": lambda v: v.fill_(math.nan),
         "NaN from the middle on": lambda v: v[:, :, 8192:].fill_(math.nan)}
for name, spoil in kinds.items():
    v = clean.clone()
    spoil(v)
    call = whet.attention_args(q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr(), dtype="bf16", batch=1, heads_q=32, heads_kv=32, seq_q=16384, seq_kv=16384, dqk=128, dv=128, causal=1)
    times = []
    for _ in range(4):
        a, b = torch.cuda.Event(True), torch.cuda.Event(True)
        a.record(); whet.launch(call); b.record()
        torch.cuda.synchronize()
        times.append(a.elapsed_time(b))
    print("%-30s %9.2f ms, %d of %d elements NaN" % (name, min(times[1:]), int(torch.isnan(o).sum()), o.numel()), flush=True)
whet.close()
