"""Writes the case lists that were measured for the notebook: correctness.json, headline.json, captured_16k.json, captured_4k.json.

    python3 make_cases.py OUT_DIR"""
import json, os, sys


def problem(batch, heads, seq, dqk=128, dv=128, heads_kv=None, causal=1, lse=0, seq_kv=None, layout="bhsd"):
    return dict(batch=batch, heads_q=heads, heads_kv=heads_kv or heads, seq_q=seq, seq_kv=seq_kv or seq, dqk=dqk, dv=dv, causal=causal, lse=lse, layout=layout)


def case(name, shape, variants, **more):
    return dict(name=name, problem=shape, variants=variants, **more)


TOKENS = [(512, 32), (1024, 16), (2048, 8), (4096, 4), (8192, 2), (16384, 1), (32768, 1)]
WIDE = dict(block_kv=128)
GUESS = dict(block_kv=128, speculate=1)
ROUNDS = dict(schedule=1)
THREE = dict(warpgroups=3)


def correctness():
    some = [dict(GUESS, **ROUNDS), dict(GUESS, block_kv=64, stages=3, **ROUNDS), dict(THREE, block_kv=64, stages=3, **ROUNDS),
            dict(WIDE, speculate=0, q_registers=1, **ROUNDS), dict(THREE, block_kv=112, overlap=0, speculate=0, **ROUNDS), dict(warpgroups=1, block_kv=64, **ROUNDS)]
    return [
        case("one row", problem(2, 3, 1, lse=1), some), case("60", problem(8, 40, 60, lse=1), some), case("one tile", problem(8, 40, 128, lse=1), some),
        case("129 keys", problem(3, 40, 130, lse=1, seq_kv=129), some), case("1000, GQA 5, bshd", problem(8, 20, 1000, heads_kv=4, lse=1, layout="bshd"), some),
        case("more keys", problem(2, 40, 100, heads_kv=2, seq_kv=333, lse=1), some), case("more rows", problem(2, 40, 733, heads_kv=2, seq_kv=100, lse=1), some),
        case("not causal", problem(2, 40, 257, heads_kv=2, seq_kv=300, lse=1, causal=0), some), case("steep", problem(2, 20, 2000, lse=1), some, scale=1.0), case("queue", problem(3, 20, 2100, lse=1), [GUESS, dict(THREE, block_kv=64)]),
        case("negative scale", problem(2, 20, 700, lse=1), some, scale=-2.0), case("zero scale", problem(2, 20, 700, lse=1), some, scale=0.0),
    ] + [case("%d/%d" % (dqk, dv), problem(2, 40, 700, dqk, dv, lse=1), variants) for dqk, dv, variants in (
        (8, 8, some[:3]), (32, 32, some[:3]), (64, 64, some), (72, 40, some[:5]), (80, 80, some), (96, 96, some[:5]), (112, 112, some[:5]), (160, 160, [dict(block_kv=96, **ROUNDS), dict(block_kv=112, **ROUNDS)]),
        (192, 128, [dict(GUESS, **ROUNDS), dict(block_kv=96, **ROUNDS), dict(block_kv=112, speculate=0, q_registers=1, **ROUNDS)]), (192, 192, [dict(block_kv=96, **ROUNDS)]),
        (256, 256, [dict(block_kv=64, speculate=0, **ROUNDS), dict(block_kv=80, speculate=0, **ROUNDS)]))]


def headline():
    cases = []
    for seq, batch in TOKENS:
        picks = [dict(GUESS, **ROUNDS), dict(GUESS)] if seq > 1024 else [dict(GUESS, **ROUNDS)]
        cases.append(case("128, S %d" % seq, problem(batch, 32, seq), picks))
    for seq, batch in TOKENS:
        picks = [dict(GUESS, schedule=1, cache_mib=28)] + ([dict(GUESS)] if seq > 4096 else [])
        cases.append(case("192/128, S %d" % seq, problem(batch, 16, seq, 192, 128), picks))
    for dim, picks in ((64, [dict(THREE, block_kv=96), dict(THREE, block_kv=128, speculate=0)]), (72, [dict(THREE, block_kv=112, speculate=0), GUESS]), (80, [dict(THREE, block_kv=112, speculate=0), GUESS]),
                       (96, [GUESS, dict(THREE, block_kv=96, speculate=0)]), (112, [GUESS, dict(THREE, block_kv=80, speculate=0)]), (160, [dict(block_kv=96, speculate=1)]), (192, [dict(block_kv=96, speculate=1)]),
                       (256, [dict(block_kv=64, speculate=0)])):
        cases.append(case("%d, S 4096" % dim, problem(4, max(1, round(4096 / dim)), 4096, dim, dim), picks))
    cases += [
        case("64, S 1000", problem(16, 64, 1000, 64, 64), [dict(THREE, block_kv=96, speculate=1, schedule=1), dict(GUESS, **ROUNDS)]),
        case("128, S 1000", problem(16, 32, 1000), [dict(GUESS, **ROUNDS)]), case("128, S 3001", problem(5, 32, 3001), [dict(GUESS, **ROUNDS), GUESS]),
        case("128, GQA 5", problem(4, 30, 4096, heads_kv=6), [dict(GUESS, **ROUNDS), GUESS]), case("128, bshd", problem(4, 32, 4096, layout="bshd"), [dict(GUESS, **ROUNDS)]),
        case("128, not causal", problem(4, 32, 4096, causal=0), [GUESS, dict(GUESS, **ROUNDS)])]
    return cases


def main(out):
    os.makedirs(out, exist_ok=True)
    lists = {"correctness": correctness(), "headline": headline(),
             "captured_16k": [case("layer 14, 16k", problem(1, 12, 16384, heads_kv=2), [GUESS])],
             "captured_4k": [case("layer 0, 4k", problem(4, 12, 4096, heads_kv=2), [GUESS])]}
    for name, cases in lists.items():
        json.dump(cases, open(os.path.join(out, name + ".json"), "w"), indent=1)


if __name__ == "__main__":
    main(sys.argv[1])
