// A piece of work as one warpgroup sees it, and the writing of its output and log-sum-exp.
#pragma once

#include "attention_forward/sm90/softmax.h"

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
// 16 contiguous bytes.
WHET_DEVICE void write_row(unsigned short* row, const float (&o)[kDv / 2], int r, float inverse,
                           bool inside, int lane) {
  const int quarter = lane % 4;
  constexpr int kColumnGroups = kDv / 8;
#pragma unroll
  for (int g = 0; g + 4 <= kColumnGroups; g += 4) {
    Uint32 x[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      x[i] = whet::sm90::pack_bf16(o[(g + i) * 4 + 2 * r] * inverse,
                                   o[(g + i) * 4 + 2 * r + 1] * inverse);
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
  for (int g = kColumnGroups / 4 * 4; g < kColumnGroups; ++g)
    if (inside)
      *reinterpret_cast<Uint32*>(row + g * 8 + quarter * 2) =
          whet::sm90::pack_bf16(o[g * 4 + 2 * r] * inverse, o[g * 4 + 2 * r + 1] * inverse);
}

WHET_DEVICE void write_item(const Item& item, const float (&o)[kDv / 2], const float (&top)[2],
                            const float (&total)[2], float scale, unsigned short* out, float* lse,
                            int lane) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = item.row + 8 * r;
    const bool inside = row < kSeqQ;
    const float sum = quad_sum(total[r]);
    const bool blank = top[r] == whet::negative_infinity();
    write_row(out + item.batch * static_cast<Int64>(SHAPE_O_STRIDE_B) +
                  item.head * static_cast<Int64>(SHAPE_O_STRIDE_H) +
                  row * static_cast<Int64>(SHAPE_O_STRIDE_S),
              o, r, blank ? 0.0f : 1.0f / sum, inside, lane);
    if (SHAPE_LSE && lane % 4 == 0 && inside) {
      // A NaN among the scores leaves no trace in the maximum, but makes the sum NaN.
      const float value = blank && sum == sum
                              ? top[r]
                              : (top[r] * scale + whet::log2_fast(sum)) * 0.69314718055994530942f;
      lse[(static_cast<Int64>(item.batch) * kHeadsQ + item.head) * kSeqQ + row] = value;
    }
  }
}

}  // namespace attention
