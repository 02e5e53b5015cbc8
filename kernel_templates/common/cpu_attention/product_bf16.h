// The factors of the two matrix products as pairs of bf16, for the instruction that multiplies pairs and
// adds both products to an f32 (vdpbf16ps).
//
// A word of a query or key is a pair of head dimensions, a word of weights or values a pair of keys.
#ifndef WHET_CPU_ATTENTION_PRODUCT_BF16_H_
#define WHET_CPU_ATTENTION_PRODUCT_BF16_H_

#include "common/cpu_attention/shape.h"
#include "common/cpu_convert.h"
#include "common/cpu_transpose.h"

static_assert(SHAPE_DTYPE == WHET_BF16, "bf16_dot needs bf16 tensors");

// Elements that one 32-bit word of a packed factor holds.
constexpr int kPerWord = 2;
constexpr int kQueryStride = kTiles ? kDqkWords : (kDqk + 1) / 2;

WHET_CPU_FN VecF MultiplyAdd(VecF a, VecF b, VecF c) {
  return (VecF)_mm512_dpbf16_ps((__m512)c, (__m512bh)a, (__m512bh)b);
}

// Of words of two elements, the first alone.
WHET_CPU_FN VecF FirstOfWord(VecF words) { return (VecF)((VecU)words & 0xffffu); }

// Weights replace the scores they were made of, vector by vector; they need half the room.
WHET_CPU_FN void StoreWeights(float* row, int vector, VecF weights) {
  const __m256bh half = _mm512_cvtneps_pbh((__m512)weights);
  __builtin_memcpy(reinterpret_cast<char*>(row) + vector * kLanes * 2, &half, sizeof(half));
}

WHET_CPU_FN void PackQueryRow(const Element* q, float sign, float* out) {
  const VecU flip = VecU{} + (sign < 0.0f ? 0x80008000u : 0u);
  constexpr int kStep = 2 * kLanes;
  for (int d = 0; d < kDqk; d += kStep) {
    const VecF pairs = (VecF)((VecU)LoadFirstBits(q + d, kDqk - d) ^ flip);
    StoreFromF32(out + d / 2, pairs, kQueryStride - d / 2);
  }
}

// Packs keys 0 .. count-1 of a tile, and zeros up to the end of the last panel that holds one.
WHET_CPU_FN void PackKeys(const Element* k, int count, float* out) {
  constexpr int kStep = 2 * kLanes;
  const int panels = (count + KeyPanels::kWidth * kLanes - 1) / (KeyPanels::kWidth * kLanes);
  for (int panel = 0; panel < panels; ++panel) {
    const int width = panel + 1 < KeyPanels::kCount ? KeyPanels::kWidth : KeyPanels::kLastWidth;
    float* panel_out = out + int64_t{panel} * KeyPanels::kWidth * kLanes * kQueryStride;
    for (int v = 0; v < width; ++v) {
      const int first = (panel * KeyPanels::kWidth + v) * kLanes;
      for (int d = 0; d < kDqk; d += kStep) {
        VecF pairs[kLanes];
        for (int i = 0; i < kLanes; ++i) {
          const Element* row = k + (first + i) * int64_t{SHAPE_K_STRIDE_S} + d;
          pairs[i] = first + i < count ? LoadFirstBits(row, kDqk - d) : ZeroVec();
        }
        TransposeSquare(pairs);
        float* to = panel_out + (int64_t{d} / 2 * width + v) * kLanes;
        const int words = Smaller(kLanes, kQueryStride - d / 2);
        for (int i = 0; i < words; ++i) StoreVec(to + int64_t{i} * width * kLanes, pairs[i]);
      }
    }
  }
}

// The first count elements of a row, one in the low half of each lane.
WHET_CPU_FN VecU LowHalves(const Element* row, int count) {
  return (VecU)LoadFirstAsF32(row, count) >> 16;
}

WHET_CPU_FN void PackValues(const Element* v, int count, float* out) {
  for (int panel = 0; panel < ValuePanels::kCount; ++panel) {
    const int width =
        panel + 1 < ValuePanels::kCount ? ValuePanels::kWidth : ValuePanels::kLastWidth;
    const int column = panel * ValuePanels::kWidth * kLanes;
    float* panel_out = out + int64_t{column} * (kTileKv / 2);
    // Tiles multiply whole steps of keys, with weights of 0 behind the last key.
    const int padded = static_cast<int>(RoundUp(count, kTiles ? kKeyStep : 2));
    for (int j = 0; j < padded; j += 2) {
      const Element* row = v + j * int64_t{SHAPE_V_STRIDE_S} + column;
      float* to = panel_out + int64_t{j} / 2 * width * kLanes;
      for (int i = 0; i < width; ++i) {
        const int left = kDv - column - i * kLanes;
        VecU pairs = {};
        if (j < count) pairs = LowHalves(row + i * kLanes, left);
        if (j + 1 < count) {
          pairs |= (VecU)LoadFirstAsF32(row + SHAPE_V_STRIDE_S + i * kLanes, left);
        }
        StoreVec(to + i * kLanes, (VecF)pairs);
      }
    }
  }
}

#endif  // WHET_CPU_ATTENTION_PRODUCT_BF16_H_
