// A piece of work as one warpgroup sees it, and the writing of a row of its output. Include a shape.h before it, see problem.h.
#pragma once

#include "common/sm90_attention/work.h"

namespace attention {

// A piece of work as one warpgroup sees it.
struct Item {
  int head;
  int batch;
  int row;          // this thread's first
  int tiles;        // that some row of the warpgroup sees
  int later;        // tiles that only other warpgroups see; they come first
  int whole_tiles;  // tiles from here on need a mask
};

WHET_DEVICE Item item_at(const Work& work, int warpgroup, int warp, int lane) {
  const int row0 = work.query_block * kBlockQ + warpgroup * kRows;
  Item item = {};
  item.head = work.head;
  item.batch = work.batch;
  item.row = row0 + warp * 16 + lane / 4;
  item.tiles = visible_tiles(row0, row0 + kRows - 1);
  item.later = block_tiles(work) - item.tiles;
  item.whole_tiles = kSeqKv / kBlockKv;
  if (SHAPE_CAUSAL)
    item.whole_tiles = max(0, min(item.whole_tiles, (row0 + kOffset + 1) / kBlockKv));
  return item;
}

// Writes the 8 columns that a lane holds the quarter of, for every fourth group of 8 after an exchange within the quad: then each lane has
// 16 contiguous bytes. Returns 0 when all that this lane had of the row is finite.
template <int kCount>
WHET_DEVICE Uint32 write_row(unsigned short* row, const float (&o)[kCount], int r, float inverse,
                             bool inside, int lane) {
  static_assert(kCount >= kDv / 2, "o holds 4 values for every 8 columns of two rows");
  const int quarter = lane % 4;
  constexpr int kColumnGroups = kDv / 8;
  Uint32 suspicious = 0;
#pragma unroll
  for (int g = 0; g + 4 <= kColumnGroups; g += 4) {
    Uint32 x[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      x[i] = whet::sm90::pack_bf16(o[(g + i) * 4 + 2 * r] * inverse,
                                   o[(g + i) * 4 + 2 * r + 1] * inverse);
#pragma unroll
    for (int i = 0; i < 4; ++i) suspicious = whet::sm90::add_zero_times_bf16(suspicious, x[i]);
    // Lane t of the quad ends with group t: first lanes 1 apart swap, then lanes 2 apart.
    const bool odd = (quarter & 1) != 0;
    const bool upper = (quarter & 2) != 0;
    Uint32 low[2];
    Uint32 high[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const Uint32 got = __shfl_xor_sync(0xffffffffu, odd ? x[2 * i] : x[2 * i + 1], 1);
      low[i] = odd ? got : x[2 * i];
      high[i] = odd ? x[2 * i + 1] : got;
    }
    const Uint32 got_low = __shfl_xor_sync(0xffffffffu, upper ? low[0] : low[1], 2);
    const Uint32 got_high = __shfl_xor_sync(0xffffffffu, upper ? high[0] : high[1], 2);
    whet::sm90::store_global(row + (g + quarter) * 8, upper ? got_low : low[0],
                             upper ? got_high : high[0], upper ? low[1] : got_low,
                             upper ? high[1] : got_high, inside);
  }
#pragma unroll
  for (int g = kColumnGroups / 4 * 4; g < kColumnGroups; ++g) {
    const Uint32 x =
        whet::sm90::pack_bf16(o[g * 4 + 2 * r] * inverse, o[g * 4 + 2 * r + 1] * inverse);
    suspicious = whet::sm90::add_zero_times_bf16(suspicious, x);
    if (inside) *reinterpret_cast<Uint32*>(row + g * 8 + quarter * 2) = x;
  }
  return suspicious;
}

}  // namespace attention
