// The work of one block: which rows it has, and the loop over tiles of keys that all its rows use.
//
//   const BlockRows rows = RowsOf(*block);
//   if (rows.count == 0) return;
//   Scratch scratch = ...;                  // with the queries packed
//   RunTiles(rows, scratch, source);        // source.Pack, source.Prefetch, source.FactorOf: see there
//   for (...) WriteRow(scratch, ...);
#ifndef WHET_CPU_ATTENTION_BLOCK_H_
#define WHET_CPU_ATTENTION_BLOCK_H_

#include "common/cpu_attention/rows.h"
#include "common/cpu_block.h"

struct BlockRows {
  int64_t batch;
  int64_t head;            // the first of kHeadsPerBlock
  int64_t first_position;  // of kBlockQ, or fewer at the end
  int64_t positions;
  int64_t count;   // rows; 0: the grid of 1 that an empty problem has
  int64_t worked;  // rows that are computed: tiles take kRows at a time
  int64_t head_kv() const { return head / SHAPE_GROUP; }
  int64_t position(int64_t row) const { return first_position + row / kHeadsPerBlock; }
};

WHET_CPU_FN BlockRows RowsOf(const WhetCpuBlock& block) {
  BlockRows rows = {};
  rows.batch = block.index[0] / kHeadBlocks;
  rows.head = block.index[0] % kHeadBlocks * kHeadsPerBlock;
  // The last positions see the most keys: they start first.
  rows.first_position = int64_t{block.grid[1] - 1 - block.index[1]} * kBlockQ;
  if (rows.batch >= SHAPE_BATCH || rows.first_position >= kSeqQ) return rows;
  rows.positions = Smaller(kBlockQ, kSeqQ - rows.first_position);
  rows.count = rows.positions * kHeadsPerBlock;
  rows.worked = kTiles ? RoundUp(rows.count, kRows) : rows.count;
  return rows;
}

// The largest score stays the largest only under a factor that is not negative: the queries take the sign.
WHET_CPU_FN float SignOf(float scale) { return scale < 0.0f ? -1.0f : 1.0f; }
// What turns a dot product with such a query into a binary logit.
WHET_CPU_FN float FactorOf(float scale) { return scale * SignOf(scale) * 1.4426950408889634f; }

// Asks for the cache lines of `count` rows of `bytes`, `stride` bytes from one to the next.
WHET_CPU_FN void PrefetchRows(const void* rows, int64_t stride, int64_t count, int64_t bytes) {
  for (int64_t j = 0; j < count; ++j) {
    const char* line = static_cast<const char*>(rows) + j * stride;
    for (int64_t byte = 0; byte < bytes; byte += 64) __builtin_prefetch(line + byte, 0, 2);
  }
}

// Runs the block's rows over the keys that they see. What a source of keys and values has:
//   Pack(start, count, scratch)    packs that tile's keys and values
//   Prefetch(start, count)         asks for the cache lines of keys to come
//   FactorOf(start)                the tile's factors, see Tile
template <class Source>
WHET_CPU_FN void RunTiles(const BlockRows& rows, Scratch& scratch, const Source& source) {
  for (int64_t row = 0; row < rows.worked; ++row) scratch.tops[row] = -__builtin_inff();
  __builtin_memset(scratch.sums, 0, static_cast<uint64_t>(rows.worked) * kLanes * sizeof(float));
  __builtin_memset(scratch.outputs, 0,
                   static_cast<uint64_t>(rows.worked) * kDvPadded * sizeof(float));

  const int64_t end = VisibleKeys(rows.first_position + rows.positions - 1);
  for (int64_t start = 0; start < end; start += kTileKv) {
    const int count = static_cast<int>(Smaller<int64_t>(kTileKv, end - start));
    source.Pack(start, count, scratch);
    const Tile<decltype(source.FactorOf(start))> tile = {start, count, source.FactorOf(start)};
#if TUNE_BF16_DOT == 2
    scratch.values_are_finite = !kCausal || ValuesAreFinite(scratch.values, count);
#endif
    // The first position that sees the tile's first key.
    const int64_t seeing = kCausal ? start + kSeqQ - kSeqKv - rows.first_position : 0;
    int64_t row = seeing <= 0 ? 0 : seeing * kHeadsPerBlock / kRows * kRows;
    // The next tile is fetched a few keys at a time while this one is worked on.
    int64_t next = start + count;
    const int64_t next_end = Smaller<int64_t>(next + kTileKv, end);
    const int64_t steps = (rows.count - row + kRows - 1) / kRows;
    const int64_t share = (next_end - next + steps - 1) / steps;
    for (; row + kRows <= rows.worked; row += kRows) {
      const int64_t keys = Smaller(share, next_end - next);
      source.Prefetch(next, keys);
      next += keys;
      UpdateRows<kRows>(scratch, row, rows.first_position, tile);
    }
    if (row < rows.count) {
      UpdateRest(static_cast<int>(rows.count - row), scratch, row, rows.first_position, tile);
    }
  }
}

#endif  // WHET_CPU_ATTENTION_BLOCK_H_
