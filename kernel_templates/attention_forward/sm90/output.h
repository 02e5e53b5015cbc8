// The writing of a work's output and log-sum-exp.
#pragma once

// The first one fixes the constants of the second.
// clang-format off
#include "attention_forward/sm90/softmax.h"
#include "attention_forward/sm90/repair.h"
// clang-format on

namespace attention {

WHET_DEVICE void write_item(const Item& item, const float (&o)[kDv / 2], const float (&top)[2],
                            const float (&total)[2], float scale, unsigned short* out, float* lse,
                            Uint32 shared, int lane) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = item.row + 8 * r;
    const bool inside = row < kSeqQ;
    const float sum = quad_sum(total[r]);
    const bool blank = top[r] == whet::negative_infinity();
    const Uint32 suspicious = write_row(out + item.batch * static_cast<Int64>(SHAPE_O_STRIDE_B) +
                                            item.head * static_cast<Int64>(SHAPE_O_STRIDE_H) +
                                            row * static_cast<Int64>(SHAPE_O_STRIDE_S),
                                        o, r, blank ? 0.0f : 1.0f / sum, inside, lane);
    if (SHAPE_CAUSAL && suspicious != 0) whet::sm90::store_shared(suspicion_at(shared), 1);
    if (SHAPE_LSE && lane % 4 == 0 && inside) {
      // A NaN among the scores leaves no trace in the maximum, but makes the sum NaN.
      const float value = blank && sum == sum
                              ? top[r]
                              : (top[r] * scale + whet::log2_fast(sum)) * 0.69314718055994530942f;
      lse[(static_cast<Int64>(item.batch) * kHeadsQ + item.head) * kSeqQ + row] = value;
    }
  }
}

}  // namespace attention
