"""Writes the case lists that were measured for the notebook: correctness.json, headline.json, captured_16k.json, captured_4k.json, space_4k.json.

    python3 make_cases.py OUT_DIR"""
import json, os, sys
from build_variants import variants_of

TOKENS = [(512, 32), (1024, 16), (2048, 8), (4096, 4), (8192, 2), (16384, 1), (32768, 1)]


def problem(batch, heads, seq, dqk=128, dv=128, heads_kv=None, causal=1, lse=0, seq_kv=None, layout="bhsd"):
    return dict(batch=batch, heads_q=heads, heads_kv=heads_kv or heads, seq_q=seq, seq_kv=seq_kv or seq, dqk=dqk, dv=dv, causal=causal, lse=lse, layout=layout)


def case(name, shape, variants, **more):
    return dict(name=name, problem=shape, variants=variants, **more)


def spread(shape, count):
    """Some variants from all over the space, the likeliest first."""
    found = variants_of(shape)
    return found[::max(1, len(found) // count)][:count]


def likely(shape, count):
    """The likeliest variants that differ in more than the size of the chunk of heads."""
    chosen = {}
    for variant in variants_of(shape):
        chosen.setdefault(json.dumps({k: v for k, v in variant.items() if k != "cache_mib"}), variant)
    return list(chosen.values())[:count]


def both_schedules(shape):
    found = variants_of(shape)
    return [found[0]] + [v for v in found if {k: x for k, x in v.items() if k not in ("schedule", "cache_mib")} == {
        k: x for k, x in found[0].items() if k not in ("schedule", "cache_mib")} and v["schedule"] != found[0]["schedule"]][:1]


def correctness():
    shapes = [("one row", problem(2, 3, 1, lse=1)), ("60", problem(8, 40, 60, lse=1)), ("one tile", problem(8, 40, 128, lse=1)),
              ("129 keys", problem(3, 40, 130, lse=1, seq_kv=129)), ("1000, GQA 5, bshd", problem(8, 20, 1000, heads_kv=4, lse=1, layout="bshd")),
              ("more keys", problem(2, 40, 100, heads_kv=2, seq_kv=333, lse=1)), ("more rows", problem(2, 40, 733, heads_kv=2, seq_kv=100, lse=1)),
              ("not causal", problem(2, 40, 257, heads_kv=2, seq_kv=300, lse=1, causal=0)), ("queue", problem(3, 20, 2100, lse=1))]
    shapes += [("%d/%d" % (dqk, dv), problem(2, 40, 700, dqk, dv, lse=1)) for dqk, dv in (
        (8, 8), (32, 32), (64, 64), (72, 40), (80, 80), (96, 96), (112, 112), (160, 160), (192, 128), (192, 192), (40, 200), (256, 256))]
    cases = [case(name, shape, spread(shape, 3)) for name, shape in shapes]
    for name, scale in (("steep", 1.0), ("negative scale", -2.0), ("zero scale", 0.0)):
        shape = problem(2, 20, 2000, lse=1)
        cases.append(case(name, shape, spread(shape, 4), scale=scale))
    return cases


def headline():
    """The default of every shape, and the other schedule where works are short or the head dimension is small."""
    cases = []
    for seq, batch in TOKENS:
        shape = problem(batch, 32, seq)
        cases.append(case("128, S %d" % seq, shape, both_schedules(shape)[:2 if seq <= 1024 else 1]))
    for seq, batch in TOKENS:
        shape = problem(batch, 16, seq, 192, 128)
        cases.append(case("192/128, S %d" % seq, shape, likely(shape, 1)))
    for dim in (64, 72, 80, 96, 112, 160, 192, 256):
        shape = problem(4, max(1, round(4096 / dim)), 4096, dim, dim)
        cases.append(case("%d, S 4096" % dim, shape, both_schedules(shape) if dim in (80, 112) else likely(shape, 1)))
    for name, shape in (("64, S 1000", problem(16, 64, 1000, 64, 64)), ("128, S 1000", problem(16, 32, 1000)), ("128, S 3001", problem(5, 32, 3001)),
                        ("128, GQA 5", problem(4, 40, 4096, heads_kv=8)), ("128, bshd", problem(4, 32, 4096, layout="bshd")),
                        ("128, not causal", problem(4, 32, 4096, causal=0))):
        cases.append(case(name, shape, both_schedules(shape) if name in ("128, S 1000", "128, S 3001") else likely(shape, 1)))
    return cases


def main(out):
    os.makedirs(out, exist_ok=True)
    deep, shallow, space = problem(1, 12, 16384, heads_kv=2), problem(4, 12, 4096, heads_kv=2), problem(4, 32, 4096)
    lists = {"correctness": correctness(), "headline": headline(), "captured_16k": [case("layer 14, 16k", deep, both_schedules(deep))],
             "captured_4k": [case("layer 0, 4k", shallow, both_schedules(shallow))], "space_4k": [case("128, S 4096", space, variants_of(space))]}
    for name, cases in lists.items():
        json.dump(cases, open(os.path.join(out, name + ".json"), "w"), indent=1)


if __name__ == "__main__":
    main(sys.argv[1])
