// A key that a row does not see must not touch it, whatever its value holds. Its probability is 0, but the products of a tile multiply it
// with the value all the same, and 0 times NaN or infinity is NaN. So a warp notes when it wrote something that is not finite, and when all
// its work is done, it looks whether keys beyond a row's last are to blame, and computes such elements anew. With finite inputs none of this
// runs; a NaN that a row does see ends the search at once.
//
// A kernel sets kSuspicionsAt, one word of shared memory for each consumer warp, and says how a row is read, see repair_row. Include a
// shape.h before it, see problem.h.
#pragma once

#include "common/sm90_attention/item.h"
#include "common/sm90_attention/schedule.h"

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

// By all threads, before a __syncthreads().
WHET_DEVICE void init_suspicions(Uint32 shared) {
  if (threadIdx.x < 128 * kWarpgroups && threadIdx.x % 32 == 0)
    whet::sm90::store_shared(suspicion_at(shared), 0);
}

WHET_DEVICE float warp_max(float x) {
  x = fmaxf(x, whet::shuffle_xor<16>(x));
  x = fmaxf(x, whet::shuffle_xor<8>(x));
  x = fmaxf(x, whet::shuffle_xor<4>(x));
  x = fmaxf(x, whet::shuffle_xor<2>(x));
  return fmaxf(x, whet::shuffle_xor<1>(x));
}

// One row, by a warp: it sees keys [0, visible) of a head, and those of [visible, end) were multiplied with zero. A lane has Row::kColumns
// columns of the output, and reads through
//   row.is_finite(key, column)   of a value; true beyond the last column
//   row.is_nan(key, column)
//   row.value(key, column)       as a float
//   row.logit(key)               in binary digits
//   row.store(column, x)         writes an element
template <typename Row>
WHET_DEVICE void repair_row(const Row& row, int visible, int end, int lane) {
  Uint32 spoilt = 0;
#pragma unroll 8
  for (int key = visible; key < end; ++key)
    for (int c = 0; c < Row::kColumns; ++c)
      if (!row.is_finite(key, c)) spoilt |= 1u << c;
  // What the row does see as NaN stays NaN.
  for (int key = visible - 1; __any_sync(0xffffffffu, spoilt != 0) && key >= 0; key -= 8)
#pragma unroll
    for (int before = 0; before < 8; ++before)
      for (int c = 0; c < Row::kColumns; ++c)
        if (row.is_nan(max(0, key - before), c)) spoilt &= ~(1u << c);
  if (!__any_sync(0xffffffffu, spoilt != 0)) return;

  float top = whet::negative_infinity();
  float total = 0.0f;  // this lane's share
  float sum[Row::kColumns];
  for (int c = 0; c < Row::kColumns; ++c) sum[c] = 0.0f;
  for (int key0 = 0; key0 < visible; key0 += 32) {
    const int key = key0 + lane;
    const float score = key < visible ? row.logit(key) : whet::negative_infinity();
    const float next = fmaxf(top, warp_max(score));
    const float reference = next == whet::negative_infinity() ? 0.0f : next;
    const float shrink = whet::exp2_fast(top - reference);
    const float p = whet::exp2_fast(score - reference);
    top = next;
    total = total * shrink + p;
    for (int c = 0; c < Row::kColumns; ++c) sum[c] *= shrink;
    const int count = min(32, visible - key0);
#pragma unroll 8
    for (int j = 0; j < count; ++j) {
      const float p_j = __shfl_sync(0xffffffffu, p, j);
      for (int c = 0; c < Row::kColumns; ++c) sum[c] += p_j * row.value(key0 + j, c);
    }
  }
  total += whet::shuffle_xor<16>(total);
  total += whet::shuffle_xor<8>(total);
  total += whet::shuffle_xor<4>(total);
  total += whet::shuffle_xor<2>(total);
  total += whet::shuffle_xor<1>(total);
  const float inverse = total == 0.0f ? 0.0f : 1.0f / total;
  for (int c = 0; c < Row::kColumns; ++c)
    if ((spoilt >> c & 1) != 0) row.store(c, sum[c] * inverse);
}

// By a consumer warp, when all that it had to write is written: repairs the rows of all its work if one of them looked suspicious.
// row_at(work, row, lane) makes a Row.
template <typename RowAt>
WHET_DEVICE void repair(Uint32 shared, const RowAt& row_at) {
  __syncwarp();
  if (whet::sm90::load_shared(suspicion_at(shared)) == 0) return;
  const int thread = static_cast<int>(thread_now());
  const int lane = thread % 32;
  const int warp = whet::sm90::uniform(thread / 32 % 4);
  const int warpgroup = whet::sm90::uniform(thread / 128);
  for_each_work([&](const Work& work) {
    const Item item = item_at(work, warpgroup, warp, 0);
    const int end = min(item.tiles * kBlockKv, kSeqKv);
    for (int row = item.row; row < min(item.row + 16, kSeqQ); ++row)
      repair_row(row_at(work, row, lane), max(0, min(row + kOffset + 1, kSeqKv)), end, lane);
  });
}

}  // namespace attention
