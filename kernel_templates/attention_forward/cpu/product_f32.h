// The two matrix products in f32: everything is widened once, when it is packed.
//
// Keys are packed transposed (one row per head dimension, one lane per key), so that the scores of
// kR query rows are outer products: kR broadcast elements times a few vectors of keys. Values keep
// their order (one row per key, one lane per head dimension).
#ifndef WHET_ATTENTION_CPU_PRODUCT_F32_H_
#define WHET_ATTENTION_CPU_PRODUCT_F32_H_

#include "attention_forward/cpu/shape.h"
#include "common/cpu_convert.h"
#include "common/cpu_transpose.h"

using Packed = float;
constexpr int kQueryStride = kDqk;

WHET_CPU_FN void PackQueryRow(const Element* q, float sign, float* out) {
  constexpr int kWhole = kDqk / kLanes * kLanes;
  for (int d = 0; d < kWhole; d += kLanes) StoreVec(out + d, LoadAsF32(q + d) * Broadcast(sign));
  for (int d = kWhole; d < kDqk; ++d) out[d] = ToF32(q[d]) * sign;
}

// Packs keys 0 .. count-1 of a tile, and zeros up to the end of the last panel that holds one.
WHET_CPU_FN void PackKeys(const Element* k, int count, float* out) {
  const int panels = (count + KeyPanels::kWidth * kLanes - 1) / (KeyPanels::kWidth * kLanes);
  for (int panel = 0; panel < panels; ++panel) {
    const int width = panel + 1 < KeyPanels::kCount ? KeyPanels::kWidth : KeyPanels::kLastWidth;
    float* panel_out = out + int64_t{panel} * KeyPanels::kWidth * kLanes * kDqk;
    for (int v = 0; v < width; ++v) {
      const int first = (panel * KeyPanels::kWidth + v) * kLanes;
      for (int d = 0; d < kDqk; d += kLanes) {
        const int dims = Smaller(kLanes, kDqk - d);
        VecF square[kLanes];
        for (int i = 0; i < kLanes; ++i) {
          const Element* row = k + (first + i) * int64_t{SHAPE_K_STRIDE_S} + d;
          square[i] = first + i < count ? LoadFirstAsF32(row, dims) : ZeroVec();
        }
        TransposeSquare(square);
        float* to = panel_out + (int64_t{d} * width + v) * kLanes;
        for (int i = 0; i < dims; ++i) StoreVec(to + int64_t{i} * width * kLanes, square[i]);
      }
    }
  }
}

WHET_CPU_FN void PackValues(const Element* v, int count, float* out) {
  for (int panel = 0; panel < ValuePanels::kCount; ++panel) {
    const int width =
        panel + 1 < ValuePanels::kCount ? ValuePanels::kWidth : ValuePanels::kLastWidth;
    const int column = panel * ValuePanels::kWidth * kLanes;
    float* panel_out = out + int64_t{column} * kTileKv;
    for (int j = 0; j < count; ++j) {
      const Element* row = v + j * int64_t{SHAPE_V_STRIDE_S} + column;
      float* to = panel_out + int64_t{j} * width * kLanes;
      for (int i = 0; i < width; ++i) {
        StoreVec(to + i * kLanes, LoadFirstAsF32(row + i * kLanes, kDv - column - i * kLanes));
      }
    }
  }
}

template <int kR, int kVectors>
WHET_CPU_FN void ScorePanel(const float* q, const float* keys, float* scores) {
  VecF sum[kR][kVectors];
  WHET_CPU_UNROLL
  for (int r = 0; r < kR; ++r) {
    WHET_CPU_UNROLL
    for (int v = 0; v < kVectors; ++v) sum[r][v] = ZeroVec();
  }
  for (int d = 0; d < kDqk; ++d) {
    VecF key[kVectors];
    WHET_CPU_UNROLL
    for (int v = 0; v < kVectors; ++v) key[v] = LoadVec(keys + (d * kVectors + v) * kLanes);
    WHET_CPU_UNROLL
    for (int r = 0; r < kR; ++r) {
      const VecF element = Broadcast(q[r * kQueryStride + d]);
      WHET_CPU_UNROLL
      for (int v = 0; v < kVectors; ++v) sum[r][v] = FusedMultiplyAdd(element, key[v], sum[r][v]);
    }
  }
  WHET_CPU_UNROLL
  for (int r = 0; r < kR; ++r) {
    WHET_CPU_UNROLL
    for (int v = 0; v < kVectors; ++v) StoreVec(scores + r * kTileKv + v * kLanes, sum[r][v]);
  }
}

// scores[r][j] = q_r . k_j for the panels that hold keys 0 .. count-1.
template <int kR>
WHET_CPU_FN void Scores(const float* q, const float* keys, int count, float* scores) {
  constexpr int kColumns = KeyPanels::kWidth * kLanes;
  for (int panel = 0; panel < KeyPanels::kCount && panel * kColumns < count; ++panel) {
    const float* panel_keys = keys + int64_t{panel} * kColumns * kDqk;
    if (panel + 1 < KeyPanels::kCount) {
      ScorePanel<kR, KeyPanels::kWidth>(q, panel_keys, scores + panel * kColumns);
    } else {
      ScorePanel<kR, KeyPanels::kLastWidth>(q, panel_keys, scores + panel * kColumns);
    }
  }
}

// Weights replace the scores they were made of.
WHET_CPU_FN void StoreWeights(float* row, int vector, VecF weights) {
  StoreVec(row + vector * kLanes, weights);
}

template <int kR, int kVectors>
WHET_CPU_FN void OutputPanel(const float* weights, const float* values, const RowLimits<kR>& limits,
                             const float* correction, float* out) {
  VecF sum[kR][kVectors];
  WHET_CPU_UNROLL
  for (int r = 0; r < kR; ++r) {
    const VecF factor = Broadcast(correction[r]);
    WHET_CPU_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      sum[r][v] = LoadVec(out + r * kDvPadded + v * kLanes) * factor;
    }
  }
  const int common = limits.least();
  for (int j = 0; j < common; ++j) {
    VecF value[kVectors];
    WHET_CPU_UNROLL
    for (int v = 0; v < kVectors; ++v) value[v] = LoadVec(values + (j * kVectors + v) * kLanes);
    WHET_CPU_UNROLL
    for (int r = 0; r < kR; ++r) {
      const VecF weight = Broadcast(weights[r * kTileKv + j]);
      WHET_CPU_UNROLL
      for (int v = 0; v < kVectors; ++v) sum[r][v] = FusedMultiplyAdd(weight, value[v], sum[r][v]);
    }
  }
  // On the diagonal: a weight of 0 would not do, because 0 times a NaN that the row must not see is
  // NaN.
  for (int j = common; j < limits.most(); ++j) {
    WHET_CPU_UNROLL
    for (int r = 0; r < kR; ++r) {
      if (j >= limits.count[r]) continue;
      const VecF weight = Broadcast(weights[r * kTileKv + j]);
      WHET_CPU_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        sum[r][v] =
            FusedMultiplyAdd(weight, LoadVec(values + (j * kVectors + v) * kLanes), sum[r][v]);
      }
    }
  }
  WHET_CPU_UNROLL
  for (int r = 0; r < kR; ++r) {
    WHET_CPU_UNROLL
    for (int v = 0; v < kVectors; ++v) StoreVec(out + r * kDvPadded + v * kLanes, sum[r][v]);
  }
}

// out[r] = out[r] * correction[r] + sum over visible j of weights[r][j] * v_j.
template <int kR>
WHET_CPU_FN void Outputs(const float* weights, const float* values, const RowLimits<kR>& limits,
                         const float* correction, float* out) {
  constexpr int kColumns = ValuePanels::kWidth * kLanes;
  for (int panel = 0; panel + 1 < ValuePanels::kCount; ++panel) {
    OutputPanel<kR, ValuePanels::kWidth>(weights, values + int64_t{panel} * kColumns * kTileKv,
                                         limits, correction, out + panel * kColumns);
  }
  constexpr int kLast = ValuePanels::kCount - 1;
  OutputPanel<kR, ValuePanels::kLastWidth>(weights, values + int64_t{kLast} * kColumns * kTileKv,
                                           limits, correction, out + kLast * kColumns);
}

#endif  // WHET_ATTENTION_CPU_PRODUCT_F32_H_
