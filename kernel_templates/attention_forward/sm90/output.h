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
  int head;          // counted through all batches
  int row;           // the thread's first
  float inverse[2];  // 1 / sum of the probabilities, 0 if no key was visible
};

// Once head and row are set. Writes the log-sum-exp as well.
WHET_DEVICE void result_of(Result& result, const Softmax& state, float scale, float* lse,
                           int lane) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float sum = quad_sum(state.total[r]);
    const bool blank = state.top[r] == whet::negative_infinity();
    // With the exact quotient, which takes a call now and then, ptxas finds room for all registers at 192/128; otherwise it spills 15.
    result.inverse[r] = blank                        ? 0.0f
                        : kDqk <= 128 || !kSpeculate ? whet::sm90::reciprocal_fast(sum)
                                                     : 1.0f / sum;
    const int row = result.row + 8 * r;
    if (SHAPE_LSE && lane % 4 == 0 && row < kSeqQ) {
      // A NaN among the scores leaves no trace in the maximum, but makes the sum NaN.
      const float value = blank && sum == sum ? state.top[r]
                                              : (state.top[r] * scale + whet::log2_fast(sum)) *
                                                    0.69314718055994530942f;
      lse[static_cast<Int64>(result.head) * kSeqQ + row] = value;
    }
  }
}

// By way of shared memory and the copy engine. Returns 0 when all that this lane wrote is finite; values whose products overflow may look as
// if they were not.
WHET_DEVICE Uint32 write_staged(const Result& result, const float (&o)[kDv / 2],
                                const TensorMap* o_map, Uint32 shared, int lane) {
  constexpr int kColumnGroups = kDv / 8;
  const int warp = static_cast<int>(thread_now()) / 32;
  const Uint32 staging = shared + kStagingAt + warp * kStagingBytes;
  const Uint32 to = staging + lane % 16 * kPanelRow + (lane / 16 ^ lane % 8) * 16;
  const int first_row = whet::sm90::uniform(result.row);
  if (lane == 0) whet::sm90::store_wait_read();
  __syncwarp();
  Uint32 suspicious = 0;
#pragma unroll
  for (int g = 0; g < kColumnGroups; g += 2) {
    Uint32 x[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = (g + i / 2) * 4 + i % 2 * 2;
      if (g + i / 2 < kColumnGroups)
        x[i] =
            whet::sm90::pack_bf16(o[at] * result.inverse[i % 2], o[at + 1] * result.inverse[i % 2]);
    }
    suspicious = whet::sm90::add_product_bf16(suspicious, x[0], x[1]);
    suspicious = whet::sm90::add_product_bf16(suspicious, x[2], x[3]);
    whet::sm90::store_matrices((to ^ g % 8 * 16) + g / 8 * kStagingPanelBytes, x);
  }
  whet::sm90::fence_for_copies();
  __syncwarp();
  if (lane == 0 && first_row < kSeqQ) {
#pragma unroll
    for (int p = 0; p < kVPanels; ++p)
      whet::sm90::store_tile(o_map, staging + p * kStagingPanelBytes, p * kPanel, first_row,
                             result.head % kHeadsQ, result.head / kHeadsQ);
    whet::sm90::store_commit();
  }
  return whet::sm90::add_zero_times_bf16(0, suspicious);
}

WHET_DEVICE Uint32 write_directly(const Result& result, const float (&o)[kDv / 2],
                                  unsigned short* out, int lane) {
  unsigned short* const row = out + result.head / kHeadsQ * static_cast<Int64>(SHAPE_O_STRIDE_B) +
                              result.head % kHeadsQ * static_cast<Int64>(SHAPE_O_STRIDE_H) +
                              result.row * static_cast<Int64>(SHAPE_O_STRIDE_S);
  Uint32 suspicious = 0;
#pragma unroll
  for (int r = 0; r < 2; ++r)
    suspicious |= write_row(row + 8 * r * static_cast<Int64>(SHAPE_O_STRIDE_S), o, r,
                            result.inverse[r], result.row + 8 * r < kSeqQ, lane);
  return suspicious;
}

WHET_DEVICE void write_result(const Result& result, const float (&o)[kDv / 2], unsigned short* out,
                              const TensorMap* o_map, Uint32 shared, int lane) {
  Uint32 suspicious;
  if constexpr (kStaged) {
    suspicious = write_staged(result, o, o_map, shared, lane);
  } else {
    suspicious = write_directly(result, o, out, lane);
  }
  if (SHAPE_CAUSAL && suspicious != 0) whet::sm90::store_shared(suspicion_at(shared), 1);
}

}  // namespace attention
