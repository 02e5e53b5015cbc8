#!/usr/bin/env python3
"""Error that rounding the weights to e4m3 adds to attention, by the rules of the AMD FP8 kernels and by other published rules.

  fp8_weight_error.py [--keys 8192] [--rows 64] [--seed 0]          needs numpy

A float model of what kernel_templates/attention_forward_fp8/gfx950.hip and gfx942.hip do to the scores of a row, tile by tile of 64
keys: the reference's moves, the way a weight becomes a byte, the sum from rounded weights. Printed is the relative L2 difference
of the outputs to exact softmax on the same e4m3 inputs, in percent.
"""
import argparse

import numpy as np


def table(fnuz):
    """The values of the bytes 0..127."""
    code = np.arange(128)
    e, m = code >> 3, code & 7
    value = np.where(e > 0, (8 + m) * 2.0 ** (e - 1), m) * 2.0 ** (-10 if fnuz else -9)
    if not fnuz:
        value[127] = np.nan
    return value


def encode(x, fnuz=False):
    """Nearest e4m3 byte of x >= 0, ties to even."""
    t = table(fnuz)[:127 + fnuz]
    middle = (t[1:] + t[:-1]) / 2
    i = np.searchsorted(middle, x)
    tie = (i < len(middle)) & (x == middle[np.minimum(i, len(middle) - 1)])
    return i + (tie & (i % 2 == 1))


def quantise(x, fnuz=False):
    scale = np.abs(x).max() / (240 if fnuz else 448)
    return np.sign(x) * table(fnuz)[encode(np.abs(x) / scale, fnuz)] * scale


def ours(x, v, exponential, lazy, fnuz=False, e8m0=True):
    """x: logits in powers of two, rows x keys."""
    lift, bias, last = (7, 8, 127) if fnuz else (8, 7, 126)
    values = table(fnuz)
    limit = (7.9 if fnuz else 8.8) if exponential else (last + .4) / 8 - bias
    deepest = -100 if e8m0 else -80
    high = limit if lazy else lift + 1 / 64
    rest = lift - 2 * bool(lazy)   # where a tile's largest weight is put when the reference moves
    rows = x.shape[0]
    m = np.full(rows, -np.inf)   # what is subtracted, so that lift is the weight's exponent at a logit of m
    depth = np.zeros(rows)       # of m below the highest reference
    total, out = np.zeros(rows), np.zeros((rows, v.shape[1]))
    for at in range(0, x.shape[1], 64):
        tile = x[:, at:at + 64]
        top = tile.max(1)
        if at == 0:
            m = top + lift - rest
        above = top - m + lift - rest   # rest + above is the exponent of the tile's largest weight
        up, down = rest + above > high, (above < -10) & (depth > deepest)
        whole = np.ceil(above)
        record = up & (depth + whole > (64 if lazy and e8m0 else 0)) & ~(lazy and not e8m0)
        shift = np.where(record, np.maximum(above, -depth), np.where(up, whole, np.where(down, np.maximum(whole, deepest - depth), 0)))
        factor = 2.0 ** -shift
        m = m + shift
        depth = np.where(record, 0, np.where(up, depth + whole if e8m0 else np.minimum(depth + whole, 0), np.where(down, depth + shift, depth)))
        total, out = total * factor, out * factor[:, None]
        y = tile - m[:, None] + lift
        if exponential:
            code = encode(2.0 ** y, fnuz)
        else:
            b = 8 * (y + bias) - .344
            code = np.clip(np.rint(b), 0, last).astype(int)
        p = values[code]
        total, out = total + p.sum(1), out + p @ v[at:at + 64]
    return out / total[:, None]


def published(x, v, lift, threshold, rounded_sum):
    """Weights 2^(x - m + lift) of a reference that moves when outgrown by more than the threshold."""
    values = table(False)
    m = np.full(x.shape[0], -np.inf)
    total, out = np.zeros(x.shape[0]), np.zeros((x.shape[0], v.shape[1]))
    for at in range(0, x.shape[1], 64):
        tile = x[:, at:at + 64]
        top = tile.max(1)
        new = np.where(top > m + threshold, np.maximum(top, m), m)
        factor = np.where(np.isinf(m), 0, 2.0 ** (np.where(np.isinf(m), new, m) - new))
        m, total, out = new, total * factor, out * factor[:, None]
        p = 2.0 ** (tile - m[:, None] + lift)
        q = values[encode(np.minimum(p, 448))]
        total, out = total + (q if rounded_sum else p).sum(1), out + q @ v[at:at + 64]
    return out / total[:, None]


def inputs(kind, rows, keys, dim, rng):
    q, k, v = rng.standard_normal((rows, dim)), rng.standard_normal((keys, dim)), rng.standard_normal((keys, dim))
    if kind == 'peaky':
        q *= 2.5
    if kind in ('sink', 'late'):
        mean = rng.standard_normal(dim)
        q += .8 * mean
        at = 0 if kind == 'sink' else keys - 1
        k[at] = 1.2 * mean
        v[at] = .05
    if kind == 'outliers':
        q[:, :4] *= 4
        k[:, :4] *= 4
    if kind == 'growing':
        k *= np.linspace(.5, 3, keys)[:, None]
    if kind == 'V mean 1':
        v += 1
    if kind == 'V = 1':
        v[:] = 1
    return q, k, v


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument('--keys', type=int, default=8192)
    ap.add_argument('--rows', type=int, default=64)
    ap.add_argument('--seed', type=int, default=0)
    a = ap.parse_args()
    kinds = ('normal', 'peaky', 'sink', 'late', 'outliers', 'growing', 'V mean 1', 'V = 1')
    rules = {
        'P <= 1, sum not rounded (AITER v3)': lambda x, v: published(x, v, 0, 0, False),
        'lift 2^4, threshold 4 (FlyDSL)': lambda x, v: published(x, v, 4, 4, False),
        'exponential, lazy 0': lambda x, v: ours(x, v, True, 0),
        'exponential, lazy 1': lambda x, v: ours(x, v, True, 1),
        'byte, lazy 0': lambda x, v: ours(x, v, False, 0),
        'byte, lazy 1': lambda x, v: ours(x, v, False, 1),
        'gfx942 exponential, lazy 0': lambda x, v: ours(x, v, True, 0, True, e8m0=False),
        'gfx942 byte, lazy 0': lambda x, v: ours(x, v, False, 0, True, e8m0=False),
    }
    print('%-36s' % 'rule' + ''.join('%10s' % k for k in kinds))
    result = {name: [] for name in rules}
    for kind in kinds:
        q, k, v = inputs(kind, a.rows, a.keys, 128, np.random.default_rng(a.seed))
        for name, rule in rules.items():
            fnuz = name.startswith('gfx942')
            x = quantise(q, fnuz) @ quantise(k, fnuz).T * (1.4426950408889634 / 128 ** .5)
            w = quantise(v, fnuz)
            p = 2.0 ** (x - x.max(1, keepdims=True))
            want = p @ w / p.sum(1, keepdims=True)
            got = rule(x, w)
            result[name].append(100 * np.linalg.norm(got - want) / np.linalg.norm(want))
    for name, errors in result.items():
        print('%-36s' % name + ''.join('%10.3f' % e for e in errors))


if __name__ == '__main__':
    main()
