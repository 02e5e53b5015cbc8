#!/usr/bin/env python3
"""Attention problems of real models as a problem list for `whet tune --problems` and `whet pack`.

  model_problems.py models.jsonl > bench/attention/models_causal.jsonl

models.jsonl: one JSON object a line with model, q_heads, kv_heads, dqk, dv, causal, window, softcap, sink and
typical_seq, as read from public model configurations. Taken are the causal rows that the operation supports (no
window, soft cap or sink, head dimensions up to 256), whole and with the heads divided over 8 devices where they divide;
one prefill each, of the longest typical length up to 8192. Each distinct problem once, with the models it stands for.
"""
import json
import sys


def problems(rows):
    found, left_out = {}, []
    for r in rows:
        if not r['causal']:
            continue
        if r['window'] or r['softcap'] or r['sink'] or max(r['dqk'], r['dv']) > 256:
            left_out.append(r['model'])
            continue
        seq = max([s for s in r['typical_seq'] if s <= 8192] or [min(r['typical_seq'])])
        for devices in (1, 8):
            if r['q_heads'] % devices:
                continue
            heads_q, heads_kv = r['q_heads'] // devices, max(1, r['kv_heads'] // devices)
            if heads_q % heads_kv:
                continue
            key = (heads_q, heads_kv, seq, r['dqk'], r['dv'])
            found.setdefault(key, []).append(r['model'] + (' / 8' if devices == 8 else ''))
    return found, left_out


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    found, left_out = problems([json.loads(line) for line in open(sys.argv[1]) if line.strip()])
    print('# %d problems; left out (window, soft cap, sink, head dimension): %s' % (len(found), ', '.join(left_out)))
    for (heads_q, heads_kv, seq, dqk, dv), models in sorted(found.items()):
        print('# ' + ', '.join(models))
        print(json.dumps({'operation': 'attention_forward', 'dtype': 'bf16', 'batch': 1, 'heads_q': heads_q, 'heads_kv': heads_kv,
                          'seq_q': seq, 'dqk': dqk, 'dv': dv, 'causal': 1}))


if __name__ == '__main__':
    main()
