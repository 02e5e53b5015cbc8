// The writing of a work's output and log-sum-exp.
#pragma once

// The first one fixes the constants of the second.
// clang-format off
#include "attention_forward/sm90/softmax.h"
#include "attention_forward/sm90/repair.h"
// clang-format on

namespace attention {

// What is left to do with a work's output.
struct Result {
  Int64 at;  // of the thread's first row
  int row;
  float inverse[2];  // 1 / sum of the probabilities, 0 if no key was visible
};

// Writes the log-sum-exp as well.
WHET_DEVICE Result result_of(const Item& item, const Softmax& state, float scale, float* lse,
                             int lane) {
  Result result;
  result.at = item.batch * static_cast<Int64>(SHAPE_O_STRIDE_B) +
              item.head * static_cast<Int64>(SHAPE_O_STRIDE_H) +
              item.row * static_cast<Int64>(SHAPE_O_STRIDE_S);
  result.row = item.row;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float sum = quad_sum(state.total[r]);
    const bool blank = state.top[r] == whet::negative_infinity();
    result.inverse[r] = blank ? 0.0f : 1.0f / sum;
    const int row = item.row + 8 * r;
    if (SHAPE_LSE && lane % 4 == 0 && row < kSeqQ) {
      // A NaN among the scores leaves no trace in the maximum, but makes the sum NaN.
      const float value = blank && sum == sum ? state.top[r]
                                              : (state.top[r] * scale + whet::log2_fast(sum)) *
                                                    0.69314718055994530942f;
      lse[(static_cast<Int64>(item.batch) * kHeadsQ + item.head) * kSeqQ + row] = value;
    }
  }
  return result;
}

WHET_DEVICE void write_result(const Result& result, const float (&o)[kDv / 2], unsigned short* out,
                              Uint32 shared, int lane) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const Uint32 suspicious =
        write_row(out + result.at + 8 * r * static_cast<Int64>(SHAPE_O_STRIDE_S), o, r,
                  result.inverse[r], result.row + 8 * r < kSeqQ, lane);
    if (SHAPE_CAUSAL && suspicious != 0) whet::sm90::store_shared(suspicion_at(shared), 1);
  }
}

}  // namespace attention
