"""FP8 attention that a machine has without Whet, beside PyTorch's cuDNN back end in BF16, in one process: causal, 16k tokens, normal data in e4m3.

    python3 fp8_peers.py [--seqs 4096 16384] [--out peers.json]

  cudnn     cuDNN's sdpa_fp8 through its Python front end (nvidia-cudnn-frontend), e4m3 output: its fastest
  triton    a plain Triton kernel of this file, the best of a few block shapes
  flex      torch's flex_attention, compiled, on e4m3 tensors
One that is not there or refuses is said so. Each output is compared with float64 on sampled rows before it is timed."""
import argparse, json, math
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from timing import finish_or_die, steady

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

SCALE = {128: 128 ** -0.5, 192: 192 ** -0.5}

if triton:
    @triton.jit
    def attention(q_at, k_at, v_at, o_at, factor, value_scale, S: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, DV: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
        """q and k [heads, S, D], v transposed [heads, DV, S]; factor includes log2 e."""
        head = tl.program_id(1)
        block = tl.num_programs(0) - 1 - tl.program_id(0)
        rows, columns, channels = block * M + tl.arange(0, M), tl.arange(0, DP), tl.arange(0, DV)
        q = tl.load(q_at + (head * S + rows[:, None]) * D + columns[None], mask=columns[None] < D, other=0.0)
        top, total, o = tl.full([M], -float("inf"), tl.float32), tl.zeros([M], tl.float32), tl.zeros([M, DV], tl.float32)
        for start in range(0, (block + 1) * M, N):
            keys = start + tl.arange(0, N)
            k = tl.load(k_at + (head * S + keys[None]) * D + columns[:, None], mask=columns[:, None] < D, other=0.0)
            s = tl.dot(q, k) * factor
            if start + N > block * M:
                s = tl.where(keys[None] <= rows[:, None], s, -float("inf"))
            new = tl.maximum(top, tl.max(s, 1))
            p = tl.math.exp2(s - new[:, None] + 8)
            shrink = tl.math.exp2(top - new)
            total = total * shrink + tl.sum(p, 1)
            v = tl.load(v_at + (head * DV + channels[:, None]) * S + keys[None])
            o = tl.dot(p.to(tl.float8e4nv), tl.trans(v), o * shrink[:, None])
            top = new
        tl.store(o_at + (head * S + rows[:, None]) * DV + channels[None], (o * (value_scale / total)[:, None]).to(tl.bfloat16))


def triton_calls(t):
    """A call for each block shape that compiles."""
    heads, s, d = t["q8"].shape[0] * t["q8"].shape[1], t["q8"].shape[2], t["q8"].shape[3]
    o = torch.empty(*t["q8"].shape[:3], t["dv"], device="cuda", dtype=torch.bfloat16)
    vt = t["v8"].transpose(2, 3).contiguous()
    factor = SCALE[d] * math.log2(math.e) * t["qs"] * t["ks"]
    for m, n, warps, stages in ((128, 128, 8, 2), (128, 64, 8, 3)):
        def call(m=m, n=n, warps=warps, stages=stages):
            attention[(s // m, heads)](t["q8"], t["k8"], vt, o, factor, t["vs"], s, d, triton.next_power_of_2(d), t["dv"], m, n, num_warps=warps, num_stages=stages)
            return o
        yield "%d/%d, %d warps, %d stages" % (m, n, warps, stages), call


def cudnn_call(t):
    import cudnn
    kind = cudnn.data_type
    g = cudnn.pygraph(io_data_type=kind.FP8_E4M3, intermediate_data_type=kind.FLOAT, compute_data_type=kind.FLOAT)
    shape, vshape = list(t["q8"].shape), list(t["v8"].shape)
    q8, k8, v8 = (t[n].view(torch.uint8) for n in ("q8", "k8", "v8"))
    like = lambda x, name: g.tensor(dim=list(x.shape), stride=list(x.stride()), data_type=kind.FP8_E4M3, name=name)
    one = lambda name: g.tensor(dim=[1, 1, 1, 1], stride=[1, 1, 1, 1], data_type=kind.FLOAT, name=name)
    q, k, v = like(q8, "q"), like(k8, "k"), like(v8, "v")
    names = ("descale_q", "descale_k", "descale_v", "descale_s", "scale_s", "scale_o")
    scalars = {n: one(n) for n in names}
    values = dict(zip(names, (t["qs"], t["ks"], t["vs"], 1 / 256, 256.0, 64.0)))
    o, _, amax_s, amax_o = g.sdpa_fp8(q=q, k=k, v=v, **scalars, is_inference=True, attn_scale=SCALE[shape[3]], use_causal_mask=True, name="sdpa_fp8")
    out = torch.empty(*shape[:3], vshape[3], device="cuda", dtype=torch.uint8)
    o.set_output(True).set_dim(list(out.shape)).set_stride(list(out.stride())).set_data_type(kind.FP8_E4M3)
    for a in (amax_s, amax_o):
        a.set_output(True).set_dim([1, 1, 1, 1]).set_stride([1, 1, 1, 1]).set_data_type(kind.FLOAT)
    g.validate(); g.build_operation_graph(); g.create_execution_plans([cudnn.heur_mode.A]); g.check_support(); g.build_plans()
    room = torch.empty(g.get_workspace_size(), device="cuda", dtype=torch.uint8)
    device = {n: torch.full((1, 1, 1, 1), float(values[n]), device="cuda") for n in names}
    sums = [torch.zeros(1, 1, 1, 1, device="cuda") for _ in range(2)]
    pack = {q: q8, k: k8, v: v8, o: out, amax_s: sums[0], amax_o: sums[1], **{scalars[n]: device[n] for n in names}}
    def call():
        g.execute(pack, room)
        return out.view(torch.float8_e4m3fn), 1 / 64
    return call


def flex_call(t):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    s = t["q8"].shape[2]
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, s, s)
    compiled = torch.compile(flex_attention)
    scale = SCALE[t["q8"].shape[3]] * t["qs"] * t["ks"]
    return lambda: (compiled(t["q8"], t["k8"], t["v8"], block_mask=mask, scale=scale), t["vs"])


def relative(t, out, scale):
    worst, rows = 0.0, torch.tensor([0, 100, t["seq"] // 2, t["seq"] - 1], device="cuda")
    for h in (0, t["q8"].shape[1] - 1):
        s = t["q8"][0, h, rows].double() @ t["k8"][0, h].double().T * (SCALE[t["q8"].shape[3]] * t["qs"] * t["ks"])
        s = s.masked_fill(torch.arange(t["seq"], device="cuda")[None] > rows[:, None], -math.inf)
        want = torch.softmax(s, 1) @ t["v8"][0, h].double() * t["vs"]
        worst = max(worst, float((out[0, h, rows].double() * scale - want).norm() / want.norm()))
    return worst


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seqs", type=int, nargs="*", default=[4096, 16384])
    parser.add_argument("--out", default="")
    o = parser.parse_args()
    results = []
    for dqk, heads in ((128, 32), (192, 16)):
        for seq in o.seqs:
            b = 16384 // seq
            bf = [torch.randn(b, heads, seq, d, device="cuda").bfloat16() for d in (dqk, dqk, 128)]
            t = {"seq": seq, "dv": 128}
            for name, x in zip("qkv", bf):
                t[name + "s"] = float(x.abs().max()) / 448
                t[name + "8"] = (x.float() / t[name + "s"]).to(torch.float8_e4m3fn)
            flops = 2 * (dqk + 128) * b * heads * seq * (seq + 1) / 2
            def bf16():
                with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                    return F.scaled_dot_product_attention(*bf, is_causal=True)
            base = steady(bf16, 0.4, 0.2)["seconds"]
            print("%d/128, S %d: cuDNN BF16 %.1f TFLOP/s" % (dqk, seq, flops / base / 1e12), flush=True)
            def measure(name, call):
                try:
                    got = call()
                    finish_or_die(name)
                    out, scale = got if isinstance(got, tuple) else (got, 1.0)
                    error = relative(t, out.float(), scale)
                    row = steady(call, 0.4, 0.2)
                    row.update(peer=name, dqk=dqk, seq=seq, error=error, tflops=flops / row["seconds"] / 1e12, ratio=base / row["seconds"])
                    results.append(row)
                    print("  %-34s %7.1f TFLOP/s x%.3f relative L2 %.3f" % (name, row["tflops"], row["ratio"], error), flush=True)
                except Exception as error:
                    print("  %-34s refuses: %s" % (name, str(error).strip().splitlines()[-1][:160] if str(error).strip() else type(error).__name__), flush=True)
            for name, make in (("cuDNN e4m3", cudnn_call), ("flex_attention e4m3", flex_call)):
                try:
                    call = make(t)
                except Exception as error:
                    print("  %-34s is not there: %s" % (name, str(error).strip().splitlines()[-1][:160]), flush=True)
                    continue
                measure(name, call)
            for shape, call in triton_calls(t) if triton else ():
                measure("Triton e4m3, " + shape, call)
    if o.out:
        json.dump(results, open(o.out, "w"), indent=1)


if __name__ == "__main__":
    main()
