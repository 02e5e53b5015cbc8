// A key that a row does not see must not touch it, whatever its value holds. Its probability is 0, but the products of a tile multiply it
// with the value all the same, and 0 times NaN or infinity is NaN. So a warp notes when it wrote something that is not finite, and when all
// its work is done, it looks whether keys beyond a row's last are to blame, and computes such elements anew. With finite inputs none of this
// runs; a NaN that a row does see ends the search at once.
#pragma once

#include "attention_forward/sm90/item.h"

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

// One row, by a warp: it sees keys [0, visible) of a head, and those of [visible, end) were multiplied with zero. `scale` includes log2(e).
WHET_DEVICE void repair_row(const unsigned short* q, const unsigned short* k,
                            const unsigned short* v, unsigned short* out, int visible, int end,
                            float scale, int lane) {
  typedef whet::Element<WHET_BF16> Element;
  constexpr int kColumns = (kDv + 31) / 32;  // of a lane: lane, lane + 32, ...
  const auto value = [&](int key, int c) {
    return v + key * static_cast<Int64>(SHAPE_V_STRIDE_S) + lane + 32 * c;
  };
  Uint32 spoilt = 0;
  for (int key = visible; key < end; ++key)
    for (int c = 0; c < kColumns; ++c)
      if (lane + 32 * c < kDv && !is_finite(*value(key, c))) spoilt |= 1u << c;
  for (int key = visible - 1; key >= 0 && __any_sync(0xffffffffu, spoilt != 0); --key)
    for (int c = 0; c < kColumns; ++c)
      if (lane + 32 * c < kDv && is_nan(*value(key, c))) spoilt &= ~(1u << c);
  if (!__any_sync(0xffffffffu, spoilt != 0)) return;

  float top = whet::negative_infinity();
  float total = 0.0f;  // this lane's share
  float sum[kColumns];
  for (int c = 0; c < kColumns; ++c) sum[c] = 0.0f;
  for (int key0 = 0; key0 < visible; key0 += 32) {
    float score = whet::negative_infinity();
    if (key0 + lane < visible) {
      const unsigned short* const row = k + (key0 + lane) * static_cast<Int64>(SHAPE_K_STRIDE_S);
      score = 0.0f;
      for (int d = 0; d < kDqk; ++d) score += Element::load(q + d) * Element::load(row + d);
      score *= scale;
    }
    const float next = fmaxf(top, warp_max(score));
    const float reference = next == whet::negative_infinity() ? 0.0f : next;
    const float shrink = whet::exp2_fast(top - reference);
    const float p = whet::exp2_fast(score - reference);
    top = next;
    total = total * shrink + p;
    for (int c = 0; c < kColumns; ++c) sum[c] *= shrink;
    for (int i = 0; i < 32 && key0 + i < visible; ++i) {
      const float p_i = __shfl_sync(0xffffffffu, p, i);
      for (int c = 0; c < kColumns; ++c)
        if (lane + 32 * c < kDv) sum[c] += p_i * Element::load(value(key0 + i, c));
    }
  }
  total += whet::shuffle_xor<16>(total);
  total += whet::shuffle_xor<8>(total);
  total += whet::shuffle_xor<4>(total);
  total += whet::shuffle_xor<2>(total);
  total += whet::shuffle_xor<1>(total);
  const float inverse = total == 0.0f ? 0.0f : 1.0f / total;
  for (int c = 0; c < kColumns; ++c)
    if ((spoilt >> c & 1) != 0) Element::store(out + lane + 32 * c, sum[c] * inverse);
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
