// The two matrix products, a few rows at a time, on packed factors.
//
// Keys are packed transposed (one row per head dimension, one lane per key), so that the scores of kR
// query rows are outer products: kR broadcast words times a few vectors of keys. Values keep their order
// (one row per key, one lane per head dimension). How many elements are in a word, and how words are
// multiplied, is the business of the chosen header of factors.
#ifndef WHET_CPU_ATTENTION_PRODUCTS_H_
#define WHET_CPU_ATTENTION_PRODUCTS_H_

// Before the choice: a header's text is put in place only once, and so must not first stand in a branch
// that is not taken.
#include "common/cpu_attention/shape.h"
#include "common/cpu_convert.h"
#include "common/cpu_transpose.h"
#include "common/cpu_vec.h"
#if TUNE_BF16_DOT
#include "common/cpu_attention/product_bf16.h"
#else
#include "common/cpu_attention/product_f32.h"
#endif
#if TUNE_BF16_DOT == 2
#include "common/cpu_attention/products_amx.h"
#endif

template <int kR, int kVectors>
WHET_CPU_FN void ScorePanel(const float* q, const float* keys, float* scores) {
  VecF sum[kR][kVectors];
  WHET_CPU_UNROLL
  for (int r = 0; r < kR; ++r) {
    WHET_CPU_UNROLL
    for (int v = 0; v < kVectors; ++v) sum[r][v] = ZeroVec();
  }
  for (int d = 0; d < kQueryStride; ++d) {
    VecF key[kVectors];
    WHET_CPU_UNROLL
    for (int v = 0; v < kVectors; ++v) key[v] = LoadVec(keys + (d * kVectors + v) * kLanes);
    WHET_CPU_UNROLL
    for (int r = 0; r < kR; ++r) {
      const VecF element = Broadcast(q[r * kQueryStride + d]);
      WHET_CPU_UNROLL
      for (int v = 0; v < kVectors; ++v) sum[r][v] = MultiplyAdd(element, key[v], sum[r][v]);
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
    const float* panel_keys = keys + int64_t{panel} * kColumns * kQueryStride;
    if (panel + 1 < KeyPanels::kCount) {
      ScorePanel<kR, KeyPanels::kWidth>(q, panel_keys, scores + panel * kColumns);
    } else {
      ScorePanel<kR, KeyPanels::kLastWidth>(q, panel_keys, scores + panel * kColumns);
    }
  }
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
  const int common = limits.least() / kPerWord;  // in words
  for (int j = 0; j < common; ++j) {
    VecF value[kVectors];
    WHET_CPU_UNROLL
    for (int v = 0; v < kVectors; ++v) value[v] = LoadVec(values + (j * kVectors + v) * kLanes);
    WHET_CPU_UNROLL
    for (int r = 0; r < kR; ++r) {
      const VecF weight = Broadcast(weights[r * kTileKv + j]);
      WHET_CPU_UNROLL
      for (int v = 0; v < kVectors; ++v) sum[r][v] = MultiplyAdd(weight, value[v], sum[r][v]);
    }
  }
  // On the diagonal: a weight of 0 would not do, because 0 times a NaN that the row must not see is NaN.
  for (int j = common; j * kPerWord < limits.most(); ++j) {
    WHET_CPU_UNROLL
    for (int r = 0; r < kR; ++r) {
      const int seen = limits.count[r] - j * kPerWord;
      if (seen <= 0) continue;
      const VecF weight = Broadcast(weights[r * kTileKv + j]);
      WHET_CPU_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        VecF value = LoadVec(values + (j * kVectors + v) * kLanes);
        if (kPerWord == 2 && seen == 1) value = FirstOfWord(value);
        sum[r][v] = MultiplyAdd(weight, value, sum[r][v]);
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
    OutputPanel<kR, ValuePanels::kWidth>(weights,
                                         values + int64_t{panel} * kColumns * (kTileKv / kPerWord),
                                         limits, correction, out + panel * kColumns);
  }
  constexpr int kLast = ValuePanels::kCount - 1;
  OutputPanel<kR, ValuePanels::kLastWidth>(
      weights, values + int64_t{kLast} * kColumns * (kTileKv / kPerWord), limits, correction,
      out + kLast * kColumns);
}

#endif  // WHET_CPU_ATTENTION_PRODUCTS_H_
