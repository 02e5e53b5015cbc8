// A key that a row does not see must not touch it, whatever its value holds. Its probability is 0, but the products of a tile multiply it
// with the value all the same, and 0 times NaN or infinity is NaN. So a warp notes when it wrote something that is not finite, and when all
// its work is done, it looks whether keys beyond a row's last are to blame, and computes such elements anew. With finite inputs none of this
// runs; a NaN that a row does see ends the search at once.
#pragma once

#include "common/sm90_attention/item.h"

namespace attention {

// Read anew, so that no register is held for it through the loops over tiles.
WHET_DEVICE Uint32 thread_now() {
  Uint32 thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

WHET_DEVICE Uint32 suspicion_at(Uint32 shared) {
  return shared + kSuspicionsAt + thread_now() / 32 * 4;
}

WHET_DEVICE bool is_finite(unsigned short bf16) { return (bf16 & 0x7f80) != 0x7f80; }
WHET_DEVICE bool is_nan(unsigned short bf16) { return (bf16 & 0x7fff) > 0x7f80; }

WHET_DEVICE float warp_max(float x) {
  x = fmaxf(x, whet::shuffle_xor<16>(x));
  x = fmaxf(x, whet::shuffle_xor<8>(x));
  x = fmaxf(x, whet::shuffle_xor<4>(x));
  x = fmaxf(x, whet::shuffle_xor<2>(x));
  return fmaxf(x, whet::shuffle_xor<1>(x));
}

// Four BF16 in a word, as they lie in memory.
WHET_DEVICE unsigned short quarter(Uint64 word, int i) {
  return static_cast<unsigned short>(word >> (16 * i));
}

WHET_DEVICE float dot(const unsigned short* a, const unsigned short* b) {
  float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 4
  for (int d = 0; d < kDqk; d += 4) {
    const Uint64 x = *reinterpret_cast<const Uint64*>(a + d);
    const Uint64 y = *reinterpret_cast<const Uint64*>(b + d);
    for (int i = 0; i < 4; ++i)
      sum[i] += whet::float_from_bf16(quarter(x, i)) * whet::float_from_bf16(quarter(y, i));
  }
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

// One row, by a warp: it sees keys [0, visible) of a head, and those of [visible, end) were multiplied with zero. `scale` includes log2(e).
WHET_DEVICE void repair_row(const unsigned short* q, const unsigned short* k,
                            const unsigned short* v, unsigned short* out, int visible, int end,
                            float scale, int lane) {
  constexpr int kWords =
      (kDv + 127) / 128;  // of a lane: its columns are 4 * lane + 128 * w + (0..3)
  const auto values = [&](int key, int w) {
    const int column = 4 * lane + 128 * w;
    if (column >= kDv) return static_cast<Uint64>(0);
    return *reinterpret_cast<const Uint64*>(v + key * static_cast<Int64>(SHAPE_V_STRIDE_S) +
                                            column);
  };
  Uint32 spoilt = 0;
#pragma unroll 8
  for (int key = visible; key < end; ++key)
    for (int w = 0; w < kWords; ++w)
      for (int i = 0; i < 4; ++i)
        if (!is_finite(quarter(values(key, w), i))) spoilt |= 1u << (4 * w + i);
  // What the row does see as NaN stays NaN.
  for (int key = visible - 1; __any_sync(0xffffffffu, spoilt != 0) && key >= 0; key -= 8)
#pragma unroll
    for (int before = 0; before < 8; ++before)
      for (int w = 0; w < kWords; ++w)
        for (int i = 0; i < 4; ++i)
          if (is_nan(quarter(values(max(0, key - before), w), i))) spoilt &= ~(1u << (4 * w + i));
  if (!__any_sync(0xffffffffu, spoilt != 0)) return;

  float top = whet::negative_infinity();
  float total = 0.0f;  // this lane's share
  float sum[4 * kWords];
  for (int i = 0; i < 4 * kWords; ++i) sum[i] = 0.0f;
  for (int key0 = 0; key0 < visible; key0 += 32) {
    const int key = key0 + lane;
    const float score = key < visible
                            ? scale * dot(q, k + key * static_cast<Int64>(SHAPE_K_STRIDE_S))
                            : whet::negative_infinity();
    const float next = fmaxf(top, warp_max(score));
    const float reference = next == whet::negative_infinity() ? 0.0f : next;
    const float shrink = whet::exp2_fast(top - reference);
    const float p = whet::exp2_fast(score - reference);
    top = next;
    total = total * shrink + p;
    for (int i = 0; i < 4 * kWords; ++i) sum[i] *= shrink;
    const int count = min(32, visible - key0);
#pragma unroll 8
    for (int j = 0; j < count; ++j) {
      const float p_j = __shfl_sync(0xffffffffu, p, j);
      for (int w = 0; w < kWords; ++w)
        for (int i = 0; i < 4; ++i)
          sum[4 * w + i] += p_j * whet::float_from_bf16(quarter(values(key0 + j, w), i));
    }
  }
  total += whet::shuffle_xor<16>(total);
  total += whet::shuffle_xor<8>(total);
  total += whet::shuffle_xor<4>(total);
  total += whet::shuffle_xor<2>(total);
  total += whet::shuffle_xor<1>(total);
  const float inverse = total == 0.0f ? 0.0f : 1.0f / total;
  for (int w = 0; w < kWords; ++w)
    for (int i = 0; i < 4; ++i)
      if ((spoilt >> (4 * w + i) & 1) != 0)
        out[4 * lane + 128 * w + i] = whet::bf16_from_float(sum[4 * w + i] * inverse);
}

// By a consumer warp, when all that it had to write is written.
WHET_DEVICE void repair(Uint32 shared, const unsigned short* q, const unsigned short* k,
                        const unsigned short* v, unsigned short* out, float scale) {
  __syncwarp();
  if (whet::sm90::load_shared(suspicion_at(shared)) == 0) return;
  const int thread = static_cast<int>(thread_now());
  const int lane = thread % 32;
  const int warp = whet::sm90::uniform(thread / 32 % 4);
  const int warpgroup = whet::sm90::uniform(thread / 128);
  for_each_work([&](const Work& work) {
    const Item item = item_at(work, warpgroup, warp, 0);
    const int end = min(item.tiles * kBlockKv, kSeqKv);
    const Int64 batch = work.batch;
    const Int64 head = work.head;
    const Int64 head_kv = work.head / kGroup;
    for (int row = item.row; row < min(item.row + 16, kSeqQ); ++row)
      repair_row(q + batch * SHAPE_Q_STRIDE_B + head * SHAPE_Q_STRIDE_H +
                     row * static_cast<Int64>(SHAPE_Q_STRIDE_S),
                 k + batch * SHAPE_K_STRIDE_B + head_kv * SHAPE_K_STRIDE_H,
                 v + batch * SHAPE_V_STRIDE_B + head_kv * SHAPE_V_STRIDE_H,
                 out + batch * SHAPE_O_STRIDE_B + head * SHAPE_O_STRIDE_H +
                     row * static_cast<Int64>(SHAPE_O_STRIDE_S),
                 max(0, min(row + kOffset + 1, kSeqKv)), end, scale, lane);
  });
}

}  // namespace attention
