// The scales of a work and the writing of its output and log-sum-exp.
#pragma once

// The shape comes first.
// clang-format off
#include "attention_forward_fp8/sm90/promote.h"
#include "attention_forward_fp8/sm90/repair.h"
// clang-format on

namespace attention {

// Where the operands' scales and the results are.
struct Tensors {
  const float* q_scale;
  const float* k_scale;
  const float* v_scale;
  const float* lse_shift;
  unsigned short* out;
  float* lse;
  float slope;  // levels per logit
};

struct Scales {
  float slope;     // levels per score, without the scales of K's blocks
  const float* k;  // K's blocks
  float value;
};

WHET_DEVICE Scales scales_at(const Tensors& tensors, const Work& work, int warpgroup) {
  const int head = work.batch * kHeadsQ + work.head;
  const int head_kv = work.batch * kHeadsKv + work.head / kGroup;
  const int block =
      min((work.query_block * kBlockQ + warpgroup * kRows) / kQScaleRows, SHAPE_Q_SCALE_BLOCKS - 1);
  Scales scales;
  scales.slope = tensors.slope *
                 __ldg(tensors.q_scale + static_cast<Int64>(head) * SHAPE_Q_SCALE_BLOCKS + block);
  scales.k = tensors.k_scale + static_cast<Int64>(head_kv) * SHAPE_K_SCALE_BLOCKS;
  if constexpr (SHAPE_K_SCALE_ROWS == 0) scales.slope *= __ldg(scales.k);
  scales.value = __ldg(tensors.v_scale + head_kv);
  return scales;
}

WHET_DEVICE void read_slopes(float (&slope)[kKScales], const Scales& scales, int tile) {
  if constexpr (SHAPE_K_SCALE_ROWS == 0) {
    slope[0] = scales.slope;
  } else {
#pragma unroll
    for (int i = 0; i < kKScales; ++i)
      slope[i] = scales.slope * __ldg(scales.k + min((tile * kBlockKv + 64 * i) / kKScaleRows,
                                                     SHAPE_K_SCALE_BLOCKS - 1));
  }
}

// What a work leaves behind while its output is still in registers.
struct Result {
  int head;
  int batch;
  int row;
  float value;  // V's scale
  float bias[2];
  float total[2];
  float promoted[2];  // what the promoted sum must be multiplied by
  int tiles;
};

// What was promoted is added to `o`: the next P V must start from zero.
WHET_DEVICE void write_result(const Result& result, float (&o)[kOutputs / 2], const Promoted& sum,
                              const Tensors& tensors, Uint32 shared, int lane) {
  if (has_promoted(result.tiles)) add_promoted(o, sum, result.promoted);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = result.row + 8 * r;
    const bool blank = is_blank(result.bias[r]);
    const bool inside = row < kSeqQ;
    float total = result.total[r];
    total += whet::shuffle_xor<1>(total);
    total += whet::shuffle_xor<2>(total);
    const Uint32 suspicious =
        write_row(tensors.out + result.batch * static_cast<Int64>(SHAPE_O_STRIDE_B) +
                      result.head * static_cast<Int64>(SHAPE_O_STRIDE_H) +
                      row * static_cast<Int64>(SHAPE_O_STRIDE_S),
                  o, r, blank ? 0.0f : __fdividef(result.value, total), inside, lane);
    if (SHAPE_CAUSAL && suspicious != 0) whet::sm90::store_shared(suspicion_at(shared), 1);
    if (SHAPE_LSE && lane % 4 == 0 && inside) {
      const Int64 at = (static_cast<Int64>(result.batch) * kHeadsQ + result.head) * kSeqQ + row;
      float value = whet::negative_infinity();
      if (!blank) {
        value = ((kTop - result.bias[r]) / kStep + whet::log2_fast(total) - kLift) *
                0.69314718055994530942f;
        if (SHAPE_LSE_SHIFT) value += tensors.lse_shift[at];
      }
      tensors.lse[at] = value;
    }
  }
}

}  // namespace attention
