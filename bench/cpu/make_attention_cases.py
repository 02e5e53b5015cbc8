#!/usr/bin/env python3
"""Writes the attention cases that every platform is checked against, one JSON object a line:

    make_attention_cases.py > tests/conformance/attention_cases.jsonl

Each has a name, the problem's fields with their strides spelt out, the name of a data distribution
(check_attention.py says what each means) and a seed. The list is fixed by the seed below; edit here, not in the list.
"""
import json
import random

GAP = {"bhsd": (0, 0), "bshd": (0, 0), "bhsd_gap": (3, 5), "bshd_gap": (8, 24)}


def strides(layout, heads, seq, dim):
    """Of batch, head and position; a gap follows every row, and another every sequence or token."""
    row_gap, outer_gap = GAP[layout]
    row = dim + row_gap
    if layout.startswith("bhsd"):
        head = max(1, seq) * row + outer_gap
        return heads * head, head, row
    position = heads * row + outer_gap
    return max(1, seq) * position, row, position


def case(name, dtype, b, hq, hkv, sq, skv, dqk, dv, causal, lse=1, layout="bhsd", data="normal",
         seed=1):
    fields = {"dtype": dtype, "batch": b, "heads_q": hq, "heads_kv": hkv, "seq_q": sq,
              "seq_kv": skv, "dqk": dqk, "dv": dv, "causal": causal, "lse": lse}
    for tensor, heads, seq, dim in (("q", hq, sq, dqk), ("k", hkv, skv, dqk), ("v", hkv, skv, dv),
                                    ("o", hq, sq, dv)):
        for axis, stride in zip("bhs", strides(layout, heads, seq, dim)):
            fields[f"{tensor}_stride_{axis}"] = stride
    return {"name": name, "fields": fields, "data": data, "seed": seed}


def cases():
    # Every head dimension that a tile or a vector could trip over.
    for i, (dqk, dv) in enumerate([(1, 1), (3, 3), (8, 8), (31, 33), (32, 32), (40, 40), (64, 64),
                                   (72, 72), (80, 80), (96, 96), (100, 100), (128, 128), (160, 160),
                                   (192, 128), (255, 255), (256, 256), (1, 256), (256, 1)]):
        for dtype in ("bf16", "f32"):
            yield case(f"dims_{dqk}_{dv}_{dtype}", dtype, 1, 2, 1, 70, 85, dqk, dv, i % 2,
                       layout=list(GAP)[i % 4], seed=10 + i)
    # Lengths around tile edges, both ways round, down to nothing.
    lengths = [(0, 0), (0, 5), (5, 0), (1, 1), (1, 2), (2, 1), (1, 64), (1, 129), (64, 1), (7, 300),
               (300, 7), (63, 64), (64, 63), (65, 64), (127, 129), (128, 128), (129, 127),
               (255, 257), (256, 256), (257, 255), (33, 512), (513, 40)]
    for i, (sq, skv) in enumerate(lengths):
        for causal in (0, 1):
            for dtype, dim in (("bf16", 64), ("f32", 40)):
                yield case(f"lengths_{sq}_{skv}_{'causal' if causal else 'full'}_{dtype}", dtype, 1,
                           2, 2, sq, skv, dim, dim, causal, layout=list(GAP)[(i + causal) % 4],
                           seed=100 + i)
    # Grouped heads and batches.
    for i, (hq, hkv) in enumerate([(1, 1), (4, 1), (5, 1), (8, 1), (8, 2), (10, 2), (12, 4)]):
        for b in (1, 3):
            yield case(f"heads_{hq}_{hkv}_batch_{b}", "bf16" if (i + b) % 2 else "f32", b, hq, hkv,
                       50 + i, 77, 64, 64, i % 2, layout=list(GAP)[i % 4], lse=b % 2, seed=200 + i)
    # Data that strains the softmax, and NaN where it must and must not be seen.
    for i, data in enumerate(["normal", "peaky", "sink", "late_outlier", "growing_max", "v_ones",
                              "nan_keys", "nan_query", "minus_inf_scores", "zeros"]):
        for dtype in ("bf16", "f32"):
            for causal in (0, 1):
                yield case(f"data_{data}_{dtype}_{'causal' if causal else 'full'}", dtype, 1, 4, 2,
                           140, 330, 64, 64, causal, layout="bshd_gap", data=data, seed=300 + i)
    yield case("empty_batch", "bf16", 0, 2, 1, 8, 8, 16, 16, 1)
    # What is measured is checked too.
    for sq in (1024, 2048):
        yield case(f"causal_{sq}_128", "bf16", 1, 2, 2, sq, sq, 128, 128, 1, lse=0, seed=400)
    yield case("minilm", "bf16", 1, 12, 12, 256, 256, 32, 32, 0, lse=0, seed=401)
    yield case("latent", "bf16", 1, 2, 2, 512, 512, 192, 128, 1, lse=0, seed=402)
    # And a random sample of the rest.
    rng = random.Random(20261130)
    for i in range(60):
        hkv = rng.choice([1, 2, 3])
        yield case(f"random_{i}", rng.choice(["bf16", "f32"]), rng.choice([1, 1, 2]),
                   hkv * rng.choice([1, 2, 4, 5, 8]), hkv, rng.randint(1, 260), rng.randint(1, 400),
                   rng.randint(1, 256), rng.randint(1, 256), rng.randint(0, 1), rng.randint(0, 1),
                   rng.choice(list(GAP)),
                   rng.choice(["normal", "normal", "peaky", "late_outlier", "growing_max",
                               "nan_keys"]), seed=500 + i)


if __name__ == "__main__":
    for each in cases():
        print(json.dumps(each))
