// How a row is read that NaN in values it must not see have spoilt: common/sm90_attention/repair.h. Its probabilities are not rounded.
#pragma once

// The shape comes first.
// clang-format off
#include "attention_forward_fp8/sm90/shape.h"
#include "common/gpu_fp8.h"
#include "common/sm90_attention/repair.h"
// clang-format on

namespace attention {

struct SpoiltRow {
  // A lane's are lane + 32 * c.
  static constexpr int kColumns = (kDv + 31) / 32;

  const unsigned char* q;
  const unsigned char* k;
  const unsigned char* v;
  const float* k_scale;
  unsigned short* out;
  float scale;  // includes log2(e) and q's scale
  float value_scale;
  int lane;

  __device__ __forceinline__ unsigned stored(int key, int c) const {
    const int column = lane + 32 * c;
    return column < kDv ? v[column * static_cast<Int64>(SHAPE_V_STRIDE_D) + key] : 0;
  }
  __device__ __forceinline__ bool is_finite(int key, int c) const { return !is_nan(key, c); }
  __device__ __forceinline__ bool is_nan(int key, int c) const {
    return (stored(key, c) & 0x7f) == 0x7f;
  }
  __device__ __forceinline__ float value(int key, int c) const {
    return whet::float_from_fp8<WHET_E4M3>(stored(key, c));
  }
  __device__ __forceinline__ float logit(int key) const {
    const unsigned char* row = k + key * static_cast<Int64>(SHAPE_K_STRIDE_S);
    float sum = 0.0f;
    for (int d = 0; d < kDqk; d += 4) {
      const Uint32 x = *reinterpret_cast<const Uint32*>(q + d);
      const Uint32 y = *reinterpret_cast<const Uint32*>(row + d);
      for (int i = 0; i < 32; i += 8)
        sum += whet::float_from_fp8<WHET_E4M3>(x >> i & 0xff) *
               whet::float_from_fp8<WHET_E4M3>(y >> i & 0xff);
    }
    return scale * k_scale[min(key / kKScaleRows, SHAPE_K_SCALE_BLOCKS - 1)] * sum;
  }
  __device__ __forceinline__ void store(int c, float x) const {
    out[lane + 32 * c] = whet::bf16_from_float(x * value_scale);
  }
};

WHET_DEVICE void repair(Uint32 shared, const unsigned char* q, const unsigned char* k,
                        const unsigned char* v, const float* q_scale, const float* k_scale,
                        const float* v_scale, unsigned short* out, float scale) {
  repair(shared, [&](const Work& work, int row, int lane) {
    const Int64 batch = work.batch;
    const Int64 head = work.head;
    const Int64 head_kv = work.head / kGroup;
    const int block = min(row / kQScaleRows, SHAPE_Q_SCALE_BLOCKS - 1);
    return SpoiltRow{q + batch * SHAPE_Q_STRIDE_B + head * SHAPE_Q_STRIDE_H +
                         row * static_cast<Int64>(SHAPE_Q_STRIDE_S),
                     k + batch * SHAPE_K_STRIDE_B + head_kv * SHAPE_K_STRIDE_H,
                     v + batch * SHAPE_V_STRIDE_B + head_kv * SHAPE_V_STRIDE_H,
                     k_scale + (batch * kHeadsKv + head_kv) * SHAPE_K_SCALE_BLOCKS,
                     out + batch * SHAPE_O_STRIDE_B + head * SHAPE_O_STRIDE_H +
                         row * static_cast<Int64>(SHAPE_O_STRIDE_S),
                     scale * 1.44269504088896340736f *
                         q_scale[(batch * kHeadsQ + head) * SHAPE_Q_SCALE_BLOCKS + block],
                     v_scale[batch * kHeadsKv + head_kv],
                     lane};
  });
}

}  // namespace attention
