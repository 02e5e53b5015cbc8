"""Writes the case lists that were measured for the notebook: correctness.json, errors.json, headline.json, captured_16k.json, captured_4k.json.

    python3 make_cases.py OUT_DIR"""
import json, os, sys


def problem(batch, heads, seq, dqk=128, dv=128, heads_kv=None, causal=1, lse=0, seq_kv=None, **more):
    return dict(batch=batch, heads_q=heads, heads_kv=heads_kv or heads, seq_q=seq, seq_kv=seq_kv or seq, dqk=dqk, dv=dv, causal=causal, lse=lse, **more)


def case(name, shape, variants, **more):
    return dict(name=name, problem=shape, variants=variants, **more)


TOKENS = [(512, 32), (1024, 16), (2048, 8), (4096, 4), (8192, 2), (16384, 1), (32768, 1)]
DIRECT, EXP = dict(direct=1), dict(direct=0)
ROUNDS = dict(schedule=1)
THREE = dict(warpgroups=3, block_kv=96)
WIDE = dict(block_kv=192, stages=2)
EXACT = dict(promote=4)


def correctness():
    some = [dict(v, **ROUNDS) for v in (dict(DIRECT, **EXACT), dict(EXP, **WIDE), dict(interleave=0), dict(block_kv=160, lazy=0), dict(THREE, direct=0), dict(scale_blocks=1, **EXACT))]
    odd = [dict(s, interleave=0) for s in some]
    return [
        case("60", problem(8, 40, 60, lse=1), some[:3]), case("one tile", problem(8, 40, 128, lse=1), some[:5]),
        case("130/129", problem(3, 40, 130, lse=1, seq_kv=129), odd[:5:2]), case("1000 GQA 5 bshd", problem(8, 20, 1000, heads_kv=4, lse=1, layout="bshd"), some[:5]),
        case("100/334", problem(2, 40, 100, heads_kv=2, seq_kv=334, lse=1), some[::2]), case("733/100", problem(2, 40, 733, heads_kv=2, seq_kv=100, lse=1), some[1:5]),
        case("257/300 full", problem(2, 40, 257, heads_kv=2, seq_kv=300, lse=1, causal=0), some[::2]), case("2000 steep", problem(2, 20, 2000, lse=1), some, scale=1.0),
        case("700 negative", problem(2, 20, 700, lse=1, lse_shift=1), some[:2], scale=-0.1), case("700 zero", problem(2, 20, 700, lse=1), some[:2], scale=0.0),
        case("700 ones", problem(2, 20, 700), some[:2], data="ones", bound=0.01),
        case("1000 blocks 64", problem(2, 20, 1000, lse=1, q_scale_rows=64, k_scale_rows=64), some[:3]), case("1000 blocks 128", problem(2, 20, 1000, lse=1, q_scale_rows=128, k_scale_rows=128), some[:2]),
        case("700 192/128", problem(2, 40, 700, 192, 128, lse=1), some[1:2] + some[3:4]), case("700 64/64", problem(2, 40, 700, 64, 64, lse=1), some[:5:2]), case("700 80/48", problem(2, 40, 700, 80, 48, lse=1), some[:2]),
        case("2100 queue", problem(3, 20, 2100, lse=1), [DIRECT, THREE])]


def errors():
    kinds = [dict(v, **EXACT) for v in (DIRECT, EXP, dict(lazy=0), dict(EXP, lazy=0), dict(scale_blocks=1))] + [DIRECT]
    return [case("%s S %d" % (data, seq), problem(1, 8, seq), kinds, data=data, bound=0.2) for seq in (4096, 16384) for data in ("normal", "peaky", "sink", "late", "mean", "outliers", "growing")]


def main(out):
    os.makedirs(out, exist_ok=True)
    lists = {"correctness": correctness(), "errors": errors()}
    for name, cases in lists.items():
        json.dump(cases, open(os.path.join(out, name + ".json"), "w"), indent=1)


if __name__ == "__main__":
    main(sys.argv[1])
