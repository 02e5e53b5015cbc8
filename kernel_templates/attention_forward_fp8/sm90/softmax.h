// The running softmax of a warpgroup's rows over score tiles in registers, and the two ways from a score to an e4m3 probability.
//
// Scores become levels, level = slope * score + bias, so that the largest probability of a row so far has level kTop and becomes 2^kLift: a power
// of two, which e4m3 holds exactly, with room above for what comes before the next look at the maximum.
//   exponential  a level is a binary logarithm: p = 2^level, rounded to e4m3
//   direct       a level is the byte itself: e4m3's bits are 8 (log2 p + 7) with the mantissa taken as linear, so rounding the level to an
//                integer of 0...255 is all. kCentre moves the error of the linear mantissa (0 to +6 %) to both sides of zero.
#pragma once

#include "attention_forward_fp8/sm90/shape.h"

namespace attention {

constexpr int kLift = !TUNE_LAZY ? 8 : kScaleBlocks ? 5 : 6;  // log2 of the largest probability
constexpr float kCentre = -0.043f;                            // in binary digits
constexpr float kStep = kDirect ? 8.0f : 1.0f;                // levels to a factor of two
constexpr float kTop = kDirect ? 8.0f * (kLift + 7 + kCentre) : static_cast<float>(kLift);
// How far a level may rise above kTop before the reference moves: hardly, or as far as e4m3 goes (448 = 2^8.8). Moving costs as much as the
// rest of the softmax, and all 64 rows wait for the one that moves: `lazy` has references start lower, and then hardly any does.
constexpr float kRoom = (TUNE_LAZY ? 8.75f - kLift : 0.03f) * kStep;
// Where a maximum goes that has passed the room: higher than the first, since it is a dominant one now, and the keys of its tile need the range
// below it more than the next ones need room.
constexpr float kMovedTop = kTop + (TUNE_LAZY && kScaleBlocks ? 2.0f : 0.0f) * kStep;
// With scale_blocks: how far a tile's maximum may lie below kTop before the reference goes down to it, and how far below the row's highest
// it may go at all.
constexpr float kWindow = (TUNE_LAZY ? 7.0f : 8.0f) * kStep;
constexpr float kDepth = 60.0f * kStep;
// The ends of the range, as integers. Negative floats are in reverse order then, so a lane knows no more of a maximum below zero than that it
// is there, and a floor below zero is only looked for from zero down.
WHET_DEVICE int limit() { return __float_as_int(kTop + kRoom); }
WHET_DEVICE int floor_level() { return __float_as_int(fmaxf(0.0f, kTop - kWindow)); }

// What a thread knows of its two rows: lane / 4 and lane / 4 + 8 of the 16 rows of its warp.
struct Softmax {
  float bias[2];    // -inf while no key was visible: all levels are -inf then
  float total[2];   // this lane's share of the sum of the probabilities
  float shrink[2];  // what output and total must be multiplied by before the next P V
  float depth[2];   // with scale_blocks: levels that the reference lies below the row's highest
  float risen
      [2];     // with promote: 2^-(levels by which the row's highest rose since the last promotion)
  bool blank;  // no key was visible to some row of the warp
  bool shrinks;
};

WHET_DEVICE bool is_blank(float bias) { return bias == whet::negative_infinity(); }

WHET_DEVICE float max_nan(float a, float b) {
  float top;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(top) : "f"(a), "f"(b));
  return top;
}
WHET_DEVICE float quad_max(float x) {
  x = max_nan(x, whet::shuffle_xor<1>(x));
  return max_nan(x, whet::shuffle_xor<2>(x));
}
WHET_DEVICE int quad_max(int x) {
  x = max(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return max(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

WHET_DEVICE void clear(Softmax& state) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    state.bias[r] = whet::negative_infinity();
    state.shrink[r] = 1.0f;
    state.depth[r] = 0.0f;
    state.risen[r] = 1.0f;
  }
  state.blank = true;
}

// A NaN stays one.
WHET_DEVICE float row_top(const float (&s)[kScores], int r) {
  float part[2] = {s[2 * r], s[2 * r + 1]};
#pragma unroll
  for (int i = 4; i < kScores; i += 4)
#pragma unroll
    for (int c = 0; c < 2; ++c) part[c] = max_nan(part[c], s[i + 2 * r + c]);
  return quad_max(max_nan(part[0], part[1]));
}

// The reference of rows that have seen no key before.
WHET_DEVICE void find_reference(const float (&s)[kScores], Softmax& state,
                                const float (&slope)[kKScales]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float part[2] = {whet::negative_infinity(), whet::negative_infinity()};
#pragma unroll
    for (int i = 0; i < kScores; i += 4)
#pragma unroll
      for (int c = 0; c < 2; ++c)
        part[c] = max_nan(part[c], s[i + 2 * r + c] * slope[scale_of(i + 2 * r + c)]);
    const float top = quad_max(max_nan(part[0], part[1]));
    if (is_blank(state.bias[r]) && top != whet::negative_infinity()) state.bias[r] = kTop - top;
  }
  state.blank = __any_sync(0xffffffffu, is_blank(state.bias[0]) || is_blank(state.bias[1]));
}

// Whole powers of two only, so that all that is multiplied by them stays exact.
WHET_DEVICE float whole_steps(float levels) { return floorf(levels * (1.0f / kStep)) * kStep; }

// Moves the reference of rows whose levels have left the range; `top` are this lane's highest as integers.
WHET_DEVICE void move_reference(float (&s)[kScores], Softmax& state, const int (&top)[2]) {
  float move[2];
  bool low = false;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = quad_max(top[r]);
    move[r] = row > limit() ? whole_steps(kMovedTop - __int_as_float(row)) : 0.0f;
    low |= row < floor_level();
  }
  if constexpr (kScaleBlocks) {
    if (__any_sync(0xffffffffu, low)) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float exact = row_top(s, r);
        if (exact < kTop - kWindow && exact != whet::negative_infinity())
          move[r] = fminf(whole_steps(kTop - exact), kDepth - state.depth[r]);
      }
    }
    // A lane that sees little of its row brings the warp here, too.
    state.shrinks = __any_sync(0xffffffffu, move[0] != 0.0f || move[1] != 0.0f);
    if (!state.shrinks) return;
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    state.bias[r] += move[r];
    state.shrink[r] = whet::exp2_fast(move[r] * (1.0f / kStep));
    if constexpr (kScaleBlocks) {
      const float depth = state.depth[r] + move[r];
      state.depth[r] = fmaxf(0.0f, depth);
      if constexpr (kPromote)
        state.risen[r] *= whet::exp2_fast(fminf(0.0f, depth) * (1.0f / kStep));
    } else if constexpr (kPromote) {
      state.risen[r] *= state.shrink[r];
    }
  }
#pragma unroll
  for (int i = 0; i < kScores; ++i) s[i] += move[i / 2 % 2];
}

// Turns scores into levels in place and moves the reference where they leave the range. `slope` is not zero. Returns the bits of this
// thread's highest level, as soon as all are there.
WHET_DEVICE int levels(float (&s)[kScores], Softmax& state, const float (&slope)[kKScales]) {
  if (state.blank) find_reference(s, state, slope);
#pragma unroll
  for (int i = 0; i < kScores; ++i)
    s[i] = __fmaf_rn(s[i], slope[scale_of(i)], state.bias[i / 2 % 2]);

  // As integers, floats are in order from zero up, and every NaN is above them: what is below zero does not matter here.
  int top[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    int part[2] = {__float_as_int(s[2 * r]), __float_as_int(s[2 * r + 1])};
#pragma unroll
    for (int i = 4; i < kScores; i += 8)
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int low = __float_as_int(s[i + 2 * r + c]);
        part[c] = i + 4 < kScores ? __vimax3_s32(part[c], low, __float_as_int(s[i + 4 + 2 * r + c]))
                                  : max(part[c], low);
      }
    top[r] = max(part[0], part[1]);
  }
  const int highest = max(top[0], top[1]);
  bool moves = highest > limit();
  // This lane's share of a row may be low where the row is not: what follows looks closer.
  if constexpr (kScaleBlocks) moves = moves || min(top[0], top[1]) < floor_level();
  state.shrinks = __any_sync(0xffffffffu, moves);
  if (state.shrinks) move_reference(s, state, top);
  return highest;
}

// Turns levels into probabilities in place, where that is not the packing itself.
WHET_DEVICE void exponentials(float (&s)[kScores]) {
  if constexpr (!kDirect) {
#pragma unroll
    for (int i = 0; i < kScores; ++i) s[i] = whet::exp2_fast(s[i]);
  }
}

WHET_DEVICE Uint32 pack_word(float a, float b, float c, float d) {
  Uint32 word;
  if constexpr (kDirect) {
    // Two instructions in all: conversion, saturation and merging are one. A NaN would become 0; its row's reference is NaN by now.
    int x[4];
    const float y[4] = {a, b, c, d};
#pragma unroll
    for (int i = 0; i < 4; ++i) asm("cvt.rni.s32.f32 %0, %1;" : "=r"(x[i]) : "f"(y[i]));
    Uint32 high;
    asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, 0;" : "=r"(high) : "r"(x[3]), "r"(x[2]));
    asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %3;" : "=r"(word) : "r"(x[1]), "r"(x[0]), "r"(high));
  } else {
    asm("{\n"
        ".reg .b16 low, high;\n"
        "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
        "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
        "mov.b32 %0, {low, high};\n"
        "}"
        : "=r"(word)
        : "f"(a), "f"(b), "f"(c), "f"(d));
  }
  return word;
}

// Probabilities as the left operand of the next product.
WHET_DEVICE void pack(Uint32 (&p)[kWords], const float (&s)[kScores], int lane) {
#pragma unroll
  for (int w = 0; w < kWords; ++w) {
    p[w] = pack_word(s[score_of(w, 0)], s[score_of(w, 1)], s[score_of(w, 2)], s[score_of(w, 3)]);
    if constexpr (!kKeysInterleaved) {
      // A lane has keys 2 t, 2 t + 1, 8 + 2 t, 9 + 2 t of 16 and wants 4 t ... 4 t + 3.
      const int from = (lane & ~3) | ((2 * lane) & 3);
      const Uint32 low = __shfl_sync(0xffffffffu, p[w], from);
      const Uint32 high = __shfl_sync(0xffffffffu, p[w], from + 1);
      p[w] = __byte_perm(low, high, (lane & 2) != 0 ? 0x7632 : 0x5410);
    }
  }
}

// ptxas moves a wait for products up past arithmetic that does not need it, here past what is to run meanwhile. A store that depends on that
// stops it; no float has these bits, so it is never done.
WHET_DEVICE void settle(Uint32 bits, Uint32 scratch) {
  asm volatile(
      "{\n"
      ".reg .pred never;\n"
      "setp.eq.u32 never, %0, 0x7f800001;\n"
      "@never st.volatile.shared.u32 [%1], %0;\n"
      "}" ::"r"(bits),
      "r"(scratch)
      : "memory");
}

// -inf times the slope's sign where the key is not visible: past the end, or later than the row allows.
WHET_DEVICE void mask(float (&s)[kScores], int key0, int row, float hidden, int lane) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    int last = kSeqKv - 1;
    if (SHAPE_CAUSAL) last = min(last, row + 8 * r + kOffset);
    const int limit = last - key0 - kKeysPerLane * (lane % 4);
#pragma unroll
    for (int i = 0; i < kScores; i += 4)
#pragma unroll
      for (int c = 0; c < 2; ++c)
        if (key_of(i + c) > limit) s[i + 2 * r + c] = hidden;
  }
}

// After a P V: its row sums go to the total, each product's by itself, since the tensor cores cut the tail of long sums.
WHET_DEVICE void collect_sums(float (&o)[kOutputs / 2], Softmax& state) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    state.total[r] += o[kDv / 2 + 2 * r];
    // Not set to zero: the products' registers must stay where they are, or ptxas serialises them.
    o[kDv / 2 + 2 * r] *= 0.0f;
  }
}

// Before the next P V: what is there refers to another maximum.
WHET_DEVICE void rescale(float (&o)[kOutputs / 2], Softmax& state) {
  if (!state.shrinks) return;
#pragma unroll
  for (int i = 0; i < kDv / 2; ++i) o[i] *= state.shrink[(i / 2) % 2];
#pragma unroll
  for (int r = 0; r < 2; ++r) state.total[r] *= state.shrink[r];
}

}  // namespace attention
