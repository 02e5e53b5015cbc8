// Sums of the output outside the tensor cores, which keep about 14 bits of a running sum and so lose the tail of long sums of one sign.
//
// Every kPromoteTiles tiles what the products have added up goes to a sum in registers of its own, in pairs of f16: 11 bits are enough for
// sums of a few hundred parts, and two to a register leave the loop over tiles the registers that it needs.
//
// What decides about it is the same for all threads and must look so to the compiler: one branch that might not be, and ptxas takes the
// whole loop over tiles out of the uniform registers, which cost 5 %.
#pragma once

#include "attention_forward_fp8/sm90/softmax.h"

namespace attention {

// Probabilities and values are at most 448 < 2^8.81, f16 ends at 2^16: times 2^-kPartBits no sum of kSeqKv of their products is infinite.
WHET_DEVICE constexpr int log2_ceil(int x) { return x <= 1 ? 0 : 1 + log2_ceil((x + 1) / 2); }
constexpr int kPartBits = log2_ceil(kSeqKv) + 2;

WHET_DEVICE Uint32 pack_f16(float low, float high) {
  Uint32 pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
WHET_DEVICE Uint32 multiply_add_f16(Uint32 a, Uint32 b, Uint32 c) {
  Uint32 result;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
  return result;
}
WHET_DEVICE float float_from_f16(unsigned short bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}

// Tiles are counted down: whether the output is promoted once `tile` is in it, the tile before `tile` whose step the next promotion comes
// after (0: none does), and whether there ever was one in a work of so many tiles.
constexpr int kPromotionPeriod = kPromote ? kPromoteTiles : 1;
WHET_DEVICE bool promotes_after(int tile) { return kPromote && tile % kPromotionPeriod == 0; }
WHET_DEVICE int promotion_before(int tile) {
  return kPromote ? max(0, tile / kPromotionPeriod * kPromotionPeriod - 1) : 0;
}
WHET_DEVICE bool has_promoted(int tiles) { return kPromote && tiles > kPromoteTiles; }

// Pairs of the output's columns as the reference stood at its highest; pair i is of row i % 2 of the thread's two.
struct Promoted {
  Uint32 pair[kPromote ? kDv / 4 : 1];
};

WHET_DEVICE void clear(Promoted& sum) {
  if constexpr (kPromote) {
#pragma unroll
    for (int i = 0; i < kDv / 4; ++i) sum.pair[i] = 0;
  }
}

// 2^(kPartBits + steps that the reference lies below its highest) or its inverse: what a part is in units of the sum, and the sum of a part.
WHET_DEVICE float sum_units(float depth) {
  return whet::exp2_fast(-kPartBits - depth * (1.0f / kStep));
}
WHET_DEVICE float part_units(float depth) {
  return whet::exp2_fast(kPartBits + depth * (1.0f / kStep));
}

// The next P V must start from zero then.
WHET_DEVICE void promote(Promoted& sum, float (&o)[kOutputs / 2], Softmax& state) {
  if constexpr (kPromote) {
    Uint32 risen[2];
    float units[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      risen[r] = pack_f16(state.risen[r], state.risen[r]);
      state.risen[r] = 1.0f;
      units[r] = sum_units(state.depth[r]);
    }
#pragma unroll
    for (int i = 0; i < kDv / 4; ++i) {
      const int r = i % 2;
      sum.pair[i] = multiply_add_f16(sum.pair[i], risen[r],
                                     pack_f16(o[2 * i] * units[r], o[2 * i + 1] * units[r]));
    }
  }
}

// To what is still in the products' registers, adds the sum times `scale`.
WHET_DEVICE void add_promoted(float (&o)[kOutputs / 2], const Promoted& sum,
                              const float (&scale)[2]) {
  if constexpr (kPromote) {
#pragma unroll
    for (int i = 0; i < kDv / 4; ++i)
#pragma unroll
      for (int c = 0; c < 2; ++c)
        o[2 * i + c] =
            __fmaf_rn(float_from_f16(static_cast<unsigned short>(sum.pair[i] >> (16 * c))),
                      scale[i % 2], o[2 * i + c]);
  }
}

}  // namespace attention
