"""Compiles variants of the FP8 Hopper attention kernel with NVRTC, as build_variants.py does for BF16.

    python3 build_fp8.py cases.json OUT_DIR [-v]        # needs libnvrtc, no GPU"""
import sys

from build_variants import main


def fp8_problem(batch, heads_q, heads_kv, seq_q, seq_kv, dqk, dv, causal=1, lse=0, layout="bhsd", q_scale_rows=0, k_scale_rows=0, lse_shift=0, accuracy=1):
    """The fields of an FP8 problem: q, k and o contiguous as [B, H, S, D] or [B, S, H, D], v as [B, H, D, S] with rows padded to 16 bytes."""
    f = {"dtype": "e4m3", "batch": batch, "heads_q": heads_q, "heads_kv": heads_kv, "seq_q": seq_q, "seq_kv": seq_kv, "dqk": dqk, "dv": dv, "causal": causal, "lse": lse,
         "q_scale_rows": q_scale_rows, "k_scale_rows": k_scale_rows, "lse_shift": lse_shift, "accuracy": accuracy}
    for name, heads, rows, width in (("q", heads_q, seq_q, dqk), ("k", heads_kv, seq_kv, dqk), ("o", heads_q, seq_q, dv)):
        f[name + "_stride_b"] = heads * rows * width
        f[name + "_stride_h"] = rows * width if layout == "bhsd" else width
        f[name + "_stride_s"] = width if layout == "bhsd" else heads * width
    f["v_stride_d"] = -(-seq_kv // 16) * 16
    f["v_stride_h"] = dv * f["v_stride_d"]
    f["v_stride_b"] = heads_kv * f["v_stride_h"]
    return f


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], template="attention_forward_fp8", problem=lambda case: fp8_problem(**case)))
