// The factors of the two matrix products in f32: everything is widened once, when it is packed.
#ifndef WHET_CPU_ATTENTION_PRODUCT_F32_H_
#define WHET_CPU_ATTENTION_PRODUCT_F32_H_

#include "common/cpu_attention/shape.h"
#include "common/cpu_convert.h"
#include "common/cpu_transpose.h"

// Elements that one 32-bit word of a packed factor holds.
constexpr int kPerWord = 1;
constexpr int kQueryStride = kDqk;

WHET_CPU_FN VecF MultiplyAdd(VecF a, VecF b, VecF c) { return FusedMultiplyAdd(a, b, c); }

// Of words of two elements, the first alone.
WHET_CPU_FN VecF FirstOfWord(VecF words) { return words; }

// Weights replace the scores they were made of, vector by vector.
WHET_CPU_FN void StoreWeights(float* row, int vector, VecF weights) {
  StoreVec(row + vector * kLanes, weights);
}

WHET_CPU_FN void PackQueryRow(const Element* q, float sign, float* out) {
  constexpr int kWhole = kDqk / kLanes * kLanes;
  for (int d = 0; d < kWhole; d += kLanes) StoreVec(out + d, LoadAsF32(q + d) * Broadcast(sign));
  for (int d = kWhole; d < kDqk; ++d) out[d] = ToF32(q[d]) * sign;
}

// Writes the dims rows of a transposed square of keys, which lie `stride` apart.
WHET_CPU_FN void StoreKeySquare(const VecF (&square)[kLanes], const float*, int dims,
                                int64_t stride, float* out) {
  for (int i = 0; i < dims; ++i) StoreVec(out + i * stride, square[i]);
}

WHET_CPU_FN void StoreKeySquare(const VecF (&pairs)[kLanes], const Bf16*, int dims, int64_t stride,
                                float* out) {
  for (int i = 0; i < dims; i += 2) {
    StoreVec(out + i * stride, LowBf16AsF32(pairs[i / 2]));
    if (i + 1 < dims) StoreVec(out + (i + 1) * stride, HighBf16AsF32(pairs[i / 2]));
  }
}

// Packs keys 0 .. count-1 of a tile, and zeros up to the end of the last panel that holds one.
WHET_CPU_FN void PackKeys(const Element* k, int count, float* out) {
  constexpr int kStep = kLanes * 4 / static_cast<int>(sizeof(Element));
  const int panels = (count + KeyPanels::kWidth * kLanes - 1) / (KeyPanels::kWidth * kLanes);
  for (int panel = 0; panel < panels; ++panel) {
    const int width = panel + 1 < KeyPanels::kCount ? KeyPanels::kWidth : KeyPanels::kLastWidth;
    float* panel_out = out + int64_t{panel} * KeyPanels::kWidth * kLanes * kDqk;
    for (int v = 0; v < width; ++v) {
      const int first = (panel * KeyPanels::kWidth + v) * kLanes;
      for (int d = 0; d < kDqk; d += kStep) {
        const int dims = Smaller(kStep, kDqk - d);
        VecF square[kLanes];
        for (int i = 0; i < kLanes; ++i) {
          const Element* row = k + (first + i) * int64_t{SHAPE_K_STRIDE_S} + d;
          square[i] = first + i < count ? LoadFirstBits(row, dims) : ZeroVec();
        }
        TransposeSquare(square);
        StoreKeySquare(square, k, dims, int64_t{width} * kLanes,
                       panel_out + (int64_t{d} * width + v) * kLanes);
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

#endif  // WHET_CPU_ATTENTION_PRODUCT_F32_H_
