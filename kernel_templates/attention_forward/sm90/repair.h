// How a row is read that NaN or infinity in values it must not see have spoilt: common/sm90_attention/repair.h.
#pragma once

#include "common/sm90_attention/repair.h"

namespace attention {

struct SpoiltRow {
  // A lane's are 4 * lane + 128 * (c / 4) + c % 4.
  static constexpr int kColumns = (kDv + 127) / 128 * 4;

  const unsigned short* q;
  const unsigned short* k;
  const unsigned short* v;
  unsigned short* out;
  float scale;  // includes log2(e)
  int lane;

  // Four BF16 in a word, as they lie in memory.
  static __device__ __forceinline__ unsigned short quarter(Uint64 word, int i) {
    return static_cast<unsigned short>(word >> (16 * i));
  }
  __device__ __forceinline__ int column(int c) const { return 4 * lane + 128 * (c / 4) + c % 4; }
  __device__ __forceinline__ unsigned short stored(int key, int c) const {
    if (column(c) >= kDv) return 0;
    return quarter(*reinterpret_cast<const Uint64*>(v + key * static_cast<Int64>(SHAPE_V_STRIDE_S) +
                                                    column(c / 4 * 4)),
                   c % 4);
  }
  __device__ __forceinline__ bool is_finite(int key, int c) const {
    return (stored(key, c) & 0x7f80) != 0x7f80;
  }
  __device__ __forceinline__ bool is_nan(int key, int c) const {
    return (stored(key, c) & 0x7fff) > 0x7f80;
  }
  __device__ __forceinline__ float value(int key, int c) const {
    return whet::float_from_bf16(stored(key, c));
  }
  __device__ __forceinline__ float logit(int key) const {
    const unsigned short* row = k + key * static_cast<Int64>(SHAPE_K_STRIDE_S);
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 4
    for (int d = 0; d < kDqk; d += 4) {
      const Uint64 x = *reinterpret_cast<const Uint64*>(q + d);
      const Uint64 y = *reinterpret_cast<const Uint64*>(row + d);
      for (int i = 0; i < 4; ++i)
        sum[i] += whet::float_from_bf16(quarter(x, i)) * whet::float_from_bf16(quarter(y, i));
    }
    return scale * ((sum[0] + sum[1]) + (sum[2] + sum[3]));
  }
  __device__ __forceinline__ void store(int c, float x) const {
    out[column(c)] = whet::bf16_from_float(x);
  }
};

WHET_DEVICE void repair(Uint32 shared, const unsigned short* q, const unsigned short* k,
                        const unsigned short* v, unsigned short* out, float scale) {
  repair(shared, [&](const Work& work, int row, int lane) {
    const Int64 batch = work.batch;
    const Int64 head = work.head;
    const Int64 head_kv = work.head / kGroup;
    return SpoiltRow{q + batch * SHAPE_Q_STRIDE_B + head * SHAPE_Q_STRIDE_H +
                         row * static_cast<Int64>(SHAPE_Q_STRIDE_S),
                     k + batch * SHAPE_K_STRIDE_B + head_kv * SHAPE_K_STRIDE_H,
                     v + batch * SHAPE_V_STRIDE_B + head_kv * SHAPE_V_STRIDE_H,
                     out + batch * SHAPE_O_STRIDE_B + head * SHAPE_O_STRIDE_H +
                         row * static_cast<Int64>(SHAPE_O_STRIDE_S),
                     scale,
                     lane};
  });
}

}  // namespace attention
