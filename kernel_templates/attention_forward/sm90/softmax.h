// The running softmax of a warpgroup's rows, over score tiles in registers.
#pragma once

#include "attention_forward/sm90/shape.h"

namespace attention {

// What a thread knows of its two rows: lane / 4 and lane / 4 + 8 of the 16 rows of its warp.
struct Softmax {
  float top
      [2];  // row maximum of the raw scores that probabilities refer to; -inf while no key was visible
  float total[2];   // this thread's share of the sum of the probabilities
  float shrink[2];  // what the output must be multiplied by before the next P V
  bool shrinks;
};

WHET_DEVICE float quad_max(float x) {
  x = fmaxf(x, whet::shuffle_xor<1>(x));
  return fmaxf(x, whet::shuffle_xor<2>(x));
}
WHET_DEVICE float quad_sum(float x) {
  x += whet::shuffle_xor<1>(x);
  return x + whet::shuffle_xor<2>(x);
}

// Turns raw scores into probabilities in place. `scale` is positive and includes log2(e).
WHET_DEVICE void softmax(float (&s)[kBlockKv / 2], Softmax& state, float scale) {
  float tile_top[2][2];
#pragma unroll
  for (int r = 0; r < 2; ++r)
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float top = s[2 * r + c];
#pragma unroll
      for (int i = 4; i < kBlockKv / 2; i += 4) top = fmaxf(top, s[i + 2 * r + c]);
      tile_top[r][c] = top;
    }
  float top[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) top[r] = quad_max(fmaxf(tile_top[r][0], tile_top[r][1]));

  const bool grows =
      (top[0] - state.top[0]) * scale > kLazyLog2 || (top[1] - state.top[1]) * scale > kLazyLog2;
  state.shrinks = __any_sync(0xffffffffu, grows);
  if (state.shrinks) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float next = fmaxf(state.top[r], top[r]);
      // While nothing is visible, -inf - -inf must not become NaN.
      state.shrink[r] =
          next == state.top[r] ? 1.0f : whet::exp2_fast((state.top[r] - next) * scale);
      state.top[r] = next;
      state.total[r] *= state.shrink[r];
    }
  }

  float part[2][2] = {{0.0f, 0.0f}, {0.0f, 0.0f}};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float reference = state.top[r] * scale;
    if (state.top[r] == whet::negative_infinity()) reference = 0.0f;
#pragma unroll
    for (int i = 0; i < kBlockKv / 2; i += 4)
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float& x = s[i + 2 * r + c];
        x = whet::exp2_fast(__fmaf_rn(x, scale, -reference));
        part[r][c] += x;
      }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) state.total[r] += part[r][0] + part[r][1];
}

// Probabilities of a work's first tile by the guess that its rows' maxima are not far from zero: right if the sums of all rows of the warp are
// numbers that nothing can come of that is too large or too small. Skips keys that no row of the warp sees, and masks only where a row's
// last key may be. `first_row` is the warp's, `row` the thread's first. Scores that were not masked here stay as they are.
WHET_DEVICE bool guess(Uint32 (&p)[kBlockKv / 4], float (&s)[kBlockKv / 2], Softmax& state,
                       float scale, int key0, int first_row, int row, int lane) {
  constexpr float kMost = 4294967296.0f;
  constexpr int kChunk = 32;
  const int end_key = kSeqKv - key0;
  // The last keys that all rows, any row, and this thread's rows see.
  const int all = SHAPE_CAUSAL ? min(end_key, first_row + kOffset - key0 + 1) - 1 : end_key - 1;
  const int any = SHAPE_CAUSAL ? min(end_key, first_row + kOffset - key0 + 16) - 1 : end_key - 1;
  int last[2];
#pragma unroll
  for (int r = 0; r < 2; ++r)
    last[r] = (SHAPE_CAUSAL ? min(end_key, row + 8 * r + kOffset - key0 + 1) : end_key) - 1 -
              2 * (lane % 4);
  float part[2][2] = {{0.0f, 0.0f}, {0.0f, 0.0f}};
#pragma unroll
  for (int from = 0; from < kBlockKv; from += kChunk) {
    const int to = from + kChunk < kBlockKv ? from + kChunk : kBlockKv;
    if (from > any) {
#pragma unroll
      for (int i = from / 4; i < to / 4; ++i) p[i] = 0;
      continue;
    }
    if (to - 1 > all) {
#pragma unroll
      for (int i = from / 2; i < to / 2; ++i)
        if (i / 4 * 8 + i % 2 > last[i / 2 % 2]) s[i] = whet::negative_infinity();
    }
#pragma unroll
    for (int i = from / 4; i < to / 4; ++i) {
      const float low = whet::exp2_fast(s[2 * i] * scale);
      const float high = whet::exp2_fast(s[2 * i + 1] * scale);
      part[i % 2][0] += low;
      part[i % 2][1] += high;
      p[i] = whet::sm90::pack_bf16(low, high);
    }
  }
  const float sum[2] = {part[0][0] + part[0][1], part[1][0] + part[1][1]};
  const float row_sum[2] = {quad_sum(sum[0]), quad_sum(sum[1])};
  const bool right = row_sum[0] <= kMost && row_sum[0] >= 1.0f / kMost && row_sum[1] <= kMost &&
                     row_sum[1] >= 1.0f / kMost;
  if (!__all_sync(0xffffffffu, right)) return false;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    state.top[r] = 0.0f;
    state.total[r] = sum[r];
  }
  state.shrinks = false;
  return true;
}

// Probabilities by the row maxima of earlier tiles, without a look at this tile's: right unless they grow too large (or nothing was visible
// so far), which their sum shows. Returns whether they are right for every row of the warp; the raw scores stay as they are.
WHET_DEVICE bool speculate(Uint32 (&p)[kBlockKv / 4], const float (&s)[kBlockKv / 2],
                           Softmax& state, float scale) {
  constexpr float kLimit = 4294967296.0f;
  float part[2][2] = {{0.0f, 0.0f}, {0.0f, 0.0f}};
  const float reference[2] = {state.top[0] * scale, state.top[1] * scale};
#pragma unroll
  for (int i = 0; i < kBlockKv / 4; ++i) {
    const int r = i % 2;
    const float low = whet::exp2_fast(__fmaf_rn(s[2 * i], scale, -reference[r]));
    const float high = whet::exp2_fast(__fmaf_rn(s[2 * i + 1], scale, -reference[r]));
    part[r][0] += low;
    part[r][1] += high;
    p[i] = whet::sm90::pack_bf16(low, high);
  }
  const float sum[2] = {part[0][0] + part[0][1], part[1][0] + part[1][1]};
  // -inf as reference makes the sum infinite or NaN.
  const bool right = sum[0] <= kLimit && sum[1] <= kLimit;
  if (!__all_sync(0xffffffffu, right)) return false;
  state.total[0] += sum[0];
  state.total[1] += sum[1];
  state.shrinks = false;
  return true;
}

// ptxas moves a wait for products up past arithmetic that does not need it, here past the exponentials that are to run meanwhile. A store
// that depends on all of them stops it; sums of exponentials are never negative, so it is never done.
WHET_DEVICE void settle(float sum, Uint32 scratch) {
  asm volatile(
      "{\n"
      ".reg .pred never;\n"
      "setp.lt.f32 never, %0, 0f00000000;\n"
      "@never st.volatile.shared.f32 [%1], %0;\n"
      "}" ::"f"(sum),
      "r"(scratch)
      : "memory");
}

// Whether guess() would be right.
WHET_DEVICE bool near_zero(const Softmax& state, float scale) {
  return __all_sync(0xffffffffu, fmaxf(fabsf(state.top[0]), fabsf(state.top[1])) * scale < 24.0f);
}

// -inf where the key is not visible: past the end, or later than the row allows.
WHET_DEVICE void mask(float (&s)[kBlockKv / 2], int key0, int row, int lane) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    int last = kSeqKv - 1;
    if (SHAPE_CAUSAL) last = min(last, row + 8 * r + kOffset);
    const int limit = last - key0 - 2 * (lane % 4);
#pragma unroll
    for (int i = 0; i < kBlockKv / 2; i += 4)
#pragma unroll
      for (int c = 0; c < 2; ++c)
        if (2 * i + c > limit) s[i + 2 * r + c] = whet::negative_infinity();
  }
}

WHET_DEVICE void pack(Uint32 (&p)[kBlockKv / 4], const float (&s)[kBlockKv / 2]) {
#pragma unroll
  for (int i = 0; i < kBlockKv / 4; ++i) p[i] = whet::sm90::pack_bf16(s[2 * i], s[2 * i + 1]);
}

WHET_DEVICE void rescale(float (&o)[kDv / 2], const Softmax& state) {
  if (__builtin_expect(!state.shrinks, 1)) return;
#pragma unroll
  for (int i = 0; i < kDv / 2; ++i) o[i] *= state.shrink[(i / 2) % 2];
}

}  // namespace attention
