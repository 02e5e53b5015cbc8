"""Writes the case lists that were measured for the notebook: correctness.json, errors.json, headline.json, captured_16k.json, captured_4k.json.

    python3 make_fp8_cases.py OUT_DIR"""
import json, os, sys


def problem(batch, heads, seq, dqk=128, dv=128, heads_kv=None, causal=1, lse=0, seq_kv=None, **more):
    return dict(batch=batch, heads_q=heads, heads_kv=heads_kv or heads, seq_q=seq, seq_kv=seq_kv or seq, dqk=dqk, dv=dv, causal=causal, lse=lse, **more)


def case(name, shape, variants, **more):
    return dict(name=name, problem=shape, variants=variants, **more)


TOKENS = [(512, 32), (1024, 16), (2048, 8), (4096, 4), (8192, 2), (16384, 1), (32768, 1)]
PROMOTED, OFTEN, FAST, WIDE = (dict(promote=p, block_kv=b, scale_blocks=1, schedule=1) for p, b in ((16, 128), (8, 128), (0, 128), (0, 192)))
EXACT = dict(OFTEN, lazy=0)
EXP, EXP_EXACT, EXP_WIDE, EXP_THREE = dict(OFTEN, direct=0), dict(EXACT, direct=0), dict(WIDE, direct=0), dict(FAST, direct=0, block_kv=96)
QUEUE = dict(schedule=2)  # the others say 1, whatever is the default


def correctness():
    some = [PROMOTED, EXP_THREE, WIDE, EXP_EXACT, OFTEN, FAST, EXP_WIDE, EXACT]
    return [
        case("60", problem(8, 40, 60, lse=1), some[:3]), case("one tile", problem(8, 40, 128, lse=1), some[:5]),
        case("130/129", problem(3, 40, 130, lse=1, seq_kv=129), some[:3]), case("1000 GQA 5 bshd", problem(8, 20, 1000, heads_kv=4, lse=1, layout="bshd"), some[:5]),
        case("100/334", problem(2, 40, 100, heads_kv=2, seq_kv=334, lse=1), some[::2]), case("733/100", problem(2, 40, 733, heads_kv=2, seq_kv=100, lse=1), some[:4]),
        case("257/300 full", problem(2, 40, 257, heads_kv=2, seq_kv=300, lse=1, causal=0), some[::2]), case("2000 steep", problem(2, 20, 2000, lse=1), some, scale=1.0),
        case("700 negative", problem(2, 20, 700, lse=1, lse_shift=1), some[:2], scale=-0.1), case("700 zero", problem(2, 20, 700, lse=1), some[:2], scale=0.0),
        case("700 ones", problem(2, 20, 700), some[:2], data="ones", bound=0.01),
        case("1000 blocks 64", problem(2, 20, 1000, lse=1, q_scale_rows=64, k_scale_rows=64), some[::2]), case("1000 blocks 128", problem(2, 20, 1000, lse=1, q_scale_rows=128, k_scale_rows=128), some[::2]),
        case("700 192/128", problem(2, 40, 700, 192, 128, lse=1), some[:4]), case("700 64/64", problem(2, 40, 700, 64, 64, lse=1), some[:4]), case("700 80/48", problem(2, 40, 700, 80, 48, lse=1), some[:3]),
        case("2100 queue", problem(3, 20, 2100, lse=1), [dict(v, **QUEUE) for v in some[:3]])]


def errors():
    kinds = [PROMOTED, OFTEN, EXP, EXACT, EXP_EXACT]
    return [case("%s S %d" % (data, seq), problem(1, 8, seq, accuracy=2), kinds, data=data, bound=0.2) for seq in (4096, 16384) for data in ("normal", "peaky", "sink", "late", "mean", "outliers", "growing")]


def headline():
    cases = []
    for heads, dqk in ((32, 128), (16, 192)):
        for seq, batch in TOKENS:
            # Up to 2048 keys class 1 may leave sums to the tensor cores. Short sequences have one schedule.
            base = FAST if seq <= 2048 else PROMOTED
            picks = [base] if seq < 2048 else [base, dict(base, **QUEUE)]
            if seq == 16384:
                picks.append(OFTEN)
            cases.append(case("%d, S %d" % (dqk, seq), problem(batch, heads, seq, dqk, 128, accuracy=2), picks + [EXP_THREE if seq < 2048 else EXP] * (seq != 2048)))
    cases.append(case("128, GQA 5, S 4096", problem(4, 40, 4096, heads_kv=8), [PROMOTED, dict(PROMOTED, **QUEUE)]))
    cases.append(case("128, GQA 8, S 16384", problem(1, 32, 16384, heads_kv=4), [PROMOTED, dict(PROMOTED, **QUEUE)]))
    return cases


def main(out):
    os.makedirs(out, exist_ok=True)
    picks = [PROMOTED, dict(PROMOTED, **QUEUE), EXP]
    lists = {"correctness": correctness(), "errors": errors(), "headline": headline(),
             "captured_16k": [case("layer 14, 16k", problem(1, 12, 16384, heads_kv=2, accuracy=2), picks, bound=0.5)],
             "captured_4k": [case("layer 0, 4k", problem(4, 12, 4096, heads_kv=2), picks, bound=0.5)]}
    for name, cases in lists.items():
        json.dump(cases, open(os.path.join(out, name + ".json"), "w"), indent=1)


if __name__ == "__main__":
    main(sys.argv[1])
