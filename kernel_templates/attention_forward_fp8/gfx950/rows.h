// What a wave keeps of 32 rows: scores, weights, sums, outputs, and the reference that all of them are relative to.
#pragma once

#include "attention_forward_fp8/gfx950/shape.h"

namespace {

struct Scores {
  Float16 block[2];  // 32 keys each
  float factor;      // what remains to multiply them by, where not kExact
};

// What a wave keeps of 32 rows from step to step.
struct Rows {
  Int8 query[kDepth];
  Float16 output[kColumns];
  Float4 total;     // row sums: elements 0 and 1 belong to this lane's row
  Float16 origin;   // where kExact: the same in all elements, score of a logit of zero
  float start;      // that score, where not kExact
  float factor;     // of this lane's row: scale log2(e) q_scale in units of scores
  int exponent;     // where kExact: of the scores' factor, as E8M0
  int block_scale;  // of the weights, as E8M0
  int unit_scale;   // E8M0 of 1, where the compiler is not asked to supply it
  float low;        // a tile whose maximum lies below moves the reference
  float top;        // this lane's maximum of the tile at hand
};

// The other operands of the row sums: see the test of the sparse instruction for why these add up each lane's own row.
struct Ones {
  Int4 values;
  int index;
};

WHET_DEVICE float other_half_of(float x) {
  const unsigned bits = whet::float_bits(x);
  const auto both = __builtin_amdgcn_permlane32_swap(bits, bits, false, false);
  return whet::float_from_bits(whet::lane_index() < 32 ? both[1] : both[0]);
}

WHET_DEVICE float power_of_two(int n) { return __builtin_ldexpf(1.0f, n); }

// The exponent of a factor that is a power of two but for rounding, as E8M0; NaN stays NaN.
WHET_DEVICE int nearest_exponent(float factor) {
  const unsigned rounded = ((whet::float_bits(factor) & 0x7fffffffu) + 0x400000u) >> 23;
  return static_cast<int>(rounded < 255u ? rounded : 255u);
}

// With 64 rows a wave has 512 registers per lane; see multiply_into_vector. The emulator has as many as it likes.
#if WHET_EMULATOR
constexpr bool kAccumulators = false;
#else
constexpr bool kAccumulators = kGroups > 1;
#endif

// E8M0 of 1 as an operand that the compiler places. gfx950 takes the lowest byte of a vector register but bits 23 to 30 of a scalar one
// or a constant (llvm-project#158117), which compilers before that fix choose: the value says 127 in both places.
constexpr int kUnitScale = 0x3f80007f;

// One matrix instruction of the scores.
template <int kDepthIndex>
WHET_DEVICE void multiply_scores(Float16& s, Int8 keys, const Rows& w) {
#if !WHET_EMULATOR
  if constexpr (kAccumulators) {
    if constexpr (kExact && kDepthIndex == 0) {
      whet::multiply_into_vector(s, keys, w.query[kDepthIndex], w.origin, w.unit_scale, w.exponent);
    } else if constexpr (kExact) {
      whet::multiply_more_into_vector(s, keys, w.query[kDepthIndex], w.unit_scale, w.exponent);
    } else if constexpr (kDepthIndex == 0) {
      whet::multiply_into_vector(s, keys, w.query[kDepthIndex]);
    } else {
      whet::multiply_more_into_vector(s, keys, w.query[kDepthIndex]);
    }
    return;
  }
#endif
  const Float16 zero = {};
  if constexpr (kExact) {
    s = __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(keys, w.query[kDepthIndex],
                                                        kDepthIndex == 0 ? w.origin : s, 0, 0, 0,
                                                        kUnitScale, 0, w.exponent);
  } else {
    s = __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(
        keys, w.query[kDepthIndex], kDepthIndex == 0 ? zero : s, 0, 0, 0, 0, 0, 0);
  }
  WHET_PIN(s);
}

WHET_DEVICE void multiply_output(Float16& o, Int8 values, Int8 weights, const Rows& w) {
#if !WHET_EMULATOR
  if constexpr (kAccumulators) {
    whet::multiply_into_accumulator(o, values, weights, w.unit_scale, w.block_scale);
    return;
  }
#endif
  o = __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(values, weights, o, 0, 0, 0, kUnitScale, 0,
                                                      w.block_scale);
}

// Between weights that inline assembly made and matrix instructions; those of multiply_into_vector and kin see to it themselves.
WHET_DEVICE void settle() {
  if (!kAccumulators && kRoute == whet::kByteMaximum) whet::settle_weights();
}

// Between matrix instructions and readers that no others lie between.
WHET_DEVICE void await_scores(Scores& s) {
#if !WHET_EMULATOR
  if (kAccumulators) {
    whet::await_vector(s.block[0]);
    whet::await_vector(s.block[1]);
  }
#endif
}
WHET_DEVICE void await_outputs(Rows& w) {
  WHET_UNROLL
  for (int c = 0; c < kColumns; ++c) {
#if !WHET_EMULATOR
    if constexpr (kAccumulators) {
      whet::await_accumulator(w.output[c]);
      continue;
    }
#endif
    // Or the last products sink below the loop, with all that they need.
    WHET_PIN(w.output[c]);
  }
#if !WHET_EMULATOR
  if (kAccumulators) whet::await_vector(w.total);
#endif
}

// Four scores join the maximum.
WHET_DEVICE void max_four(Rows& w, const Scores& s, int four) {
  const int r = four % 4 * 4;
  const Float16& x = s.block[four / 4];
  w.top = whet::maximum5(x[r], x[r + 1], x[r + 2], x[r + 3], four == 0 ? x[r] : w.top);
}

// Hides the keys of a tile that a row may not see, also from the maximum.
WHET_DEVICE void mask(Rows& w, Scores& s, const Problem& p, int group, int key0) {
  // Key j is visible to row i when j <= i + Skv - Sq, and when it exists.
  Int64 last = SHAPE_CAUSAL ? p.lane_row + 32 * group + kSeqKv - kSeqQ : kSeqKv - 1;
  if (last > kSeqKv - 1) last = kSeqKv - 1;
  const Int64 distance = last - key0 - 16 * p.half;
  const int relative = distance < -1 ? -1 : distance > kKeys ? kKeys : static_cast<int>(distance);
  // Keys that no row ever sees are known when this is compiled: their scores' registers must not be given away while the product writes them.
  WHET_UNROLL
  for (int b = 0; b < 2; ++b) {
    WHET_PIN(s.block[b]);
    WHET_UNROLL
    for (int r = 0; r < 16; ++r)
      s.block[b][r] = 32 * b + r <= relative ? s.block[b][r] : whet::negative_infinity();
  }
  // A scale that is NaN concerns no row that sees none of its keys.
  if (!kExact && SHAPE_K_SCALE_ROWS > 0) s.factor = relative < 0 ? 1.0f : s.factor;
  whet::wait_matrix();
  WHET_UNROLL
  for (int i = 0; i < kFours; ++i) max_four(w, s, i);
}

// The weights of 64 keys by 32 rows.
struct Packed {
  unsigned word[8];
  __device__ __attribute__((always_inline)) Int8 operand() const {
    Int8 all;
    WHET_UNROLL
    for (int i = 0; i < 8; ++i) all[i] = static_cast<int>(word[i]);
    return all;
  }
};

// Eight scores become eight weights.
WHET_DEVICE void round_eight(Packed& weights, const Rows& w, const Scores& s, int eight) {
  float y[8];
  WHET_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int r = eight % 2 * 8 + 2 * i;
    Float2 pair = {s.block[eight / 2][r], s.block[eight / 2][r + 1]};
    if (!kExact) pair = pair * Float2{s.factor, s.factor} + Float2{w.start, w.start};
    y[2 * i] = pair[0];
    y[2 * i + 1] = pair[1];
  }
  const Uint2 word = whet::weights_of<kRoute, false>(y);
  weights.word[2 * eight] = word[0];
  weights.word[2 * eight + 1] = word[1];
  WHET_PIN(weights.word[2 * eight]);
  WHET_PIN(weights.word[2 * eight + 1]);
}

// A row that is NaN keeps its NaN in the sum: among the weights it would spoil the sum of another row.
WHET_DEVICE void hide_nan(Scores& s, bool is_nan) {
  if (__builtin_expect(whet::ballot(is_nan) == 0, 1)) return;
  WHET_UNROLL
  for (int i = 0; i < 32; ++i)
    s.block[i / 16][i % 16] = is_nan ? whet::negative_infinity() : s.block[i / 16][i % 16];
  if (SHAPE_K_SCALE_ROWS > 0) s.factor = is_nan ? 1.0f : s.factor;  // it may be what is NaN
}

// Moves the references of rows whose maximum in `next` asks for it, and what is relative to them.
template <bool kFirst>
WHET_DEVICE void move_references(Rows& w, Scores& next) {
  const float top = kExact ? w.top : w.top * next.factor + w.start;
  unsigned long long moving = whet::ballot(!(top <= kHigh));
  // A row lies low when both its halves do.
  const unsigned long long low = whet::ballot(top < w.low);
  moving |= static_cast<unsigned>(low) & static_cast<unsigned>(low >> 32);
  float shift = 0.0f;  // of the reference, in powers of two
  float output_factor = whet::float_from_bits(whet::any_word());
  unsigned long long rescaling = 0;
  if (kFirst || __builtin_expect(moving != 0, 0)) {
    const float row_top = whet::max_or_nan(top, other_half_of(top));
    const float above = (row_top - kRest) * (1.0f / W::kUnit);
    const int scale = w.block_scale - 127;
    float total_factor = 1.0f;
    output_factor = 1.0f;
    int step = 0;  // of the block scale
    const bool is_nan = row_top != row_top;
    if (is_nan) {
      total_factor = row_top;
    } else if (row_top == whet::negative_infinity()) {
      // Nothing is visible, and there is nothing to follow.
    } else if (w.total[0] + w.total[1] == 0.0f) {
      // Nothing has been summed yet.
      shift = above;
      step = -scale;
    } else if (row_top > kHigh) {
      const int up = static_cast<int>(__builtin_ceilf(above < 1e5f ? above : 1e5f));
      const int most = kLazy ? kHighest : 0;
      if (scale + up <= most) {
        step = up;
        shift = static_cast<float>(up);
        total_factor = power_of_two(-up);
      } else {
        // The output moves too: by what brings the maximum to where it is exact.
        const float rise = above > static_cast<float>(-scale) ? above : static_cast<float>(-scale);
        step = -scale;
        shift = rise;
        total_factor = whet::exp2_fast(-rise);
        output_factor = whet::exp2_fast(-(rise + static_cast<float>(scale)));
      }
    } else if (row_top < w.low) {
      int down = static_cast<int>(__builtin_ceilf(above > -1e5f ? above : -1e5f));
      if (scale + down < kDeepest) down = kDeepest - scale;
      step = down;
      shift = static_cast<float>(down);
      total_factor = power_of_two(-down);
    }
    w.block_scale += step;
    w.low = w.block_scale - 127 <= kDeepest ? whet::negative_infinity() : kLow;
    w.total *= total_factor;
    rescaling = whet::ballot(output_factor != 1.0f);
    shift *= -W::kUnit;
    if (!kExact) w.start += shift;
    if (kExact) {
      w.origin += shift;
      next.block[0] += shift;
      next.block[1] += shift;
    }
    hide_nan(next, is_nan);
  }
  if (kFirst) return;  // there is no output yet
#if !WHET_EMULATOR
  if constexpr (kAccumulators) {
    if (__builtin_expect(rescaling != 0, 0)) {
      WHET_UNROLL
      for (int c = 0; c < kColumns; ++c) whet::scale_accumulator(w.output[c], output_factor);
    }
    return;
  }
#endif
  whet::scale_if(w.output, output_factor, rescaling);
}

WHET_DEVICE void add_to_totals(Rows& w, Int8 weights, const Ones& ones) {
#if !WHET_EMULATOR
  if constexpr (kAccumulators) {
    whet::sparse_into_vector(w.total, ones.values, weights, ones.index);
    return;
  }
#endif
  w.total = __builtin_amdgcn_smfmac_f32_16x16x128_fp8_fp8(ones.values, weights, w.total, ones.index,
                                                          0, 0);
}

}  // namespace
