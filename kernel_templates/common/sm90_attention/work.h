// The order of the work and which keys it sees. Include a shape.h before it, see problem.h.
#pragma once

namespace attention {

struct Work {
  int query_block;
  int head;
  int batch;
};

// Heads whose K and V together take about half of the L2 cache; whole groups of query heads that share them. Works that are all alike need
// no mixing: head by head, the fewest are in use at a time.
constexpr Int64 kHeadBytes = static_cast<Int64>(kSeqKv) * (kDqk + kDv) * kElementBytes;
constexpr Int64 kCachedHeads = (static_cast<Int64>(TUNE_CACHE_MIB) << 20) / kHeadBytes * kGroup;
constexpr int kHeadChunk = !SHAPE_CAUSAL || kCachedHeads < kGroup ? kGroup
                           : kCachedHeads > kHeads                ? kHeads
                                                                  : static_cast<int>(kCachedHeads);

WHET_DEVICE Work work_at(int index) {
  const int chunk = index / (kHeadChunk * kQueryBlocks);
  const int in_chunk = index % (kHeadChunk * kQueryBlocks);
  const int left = kHeads - chunk * kHeadChunk;
  const int size = kHeads % kHeadChunk == 0 || left >= kHeadChunk ? kHeadChunk : left;
  const int flat_head = chunk * kHeadChunk + in_chunk % size;
  return {kQueryBlocks - 1 - in_chunk / size, flat_head % kHeadsQ, flat_head / kHeadsQ};
}

// Key tiles that some row of [first, last] sees.
WHET_DEVICE int visible_tiles(int first, int last) {
  if (first >= kSeqQ) return 0;
  if (last >= kSeqQ) last = kSeqQ - 1;
  int keys = kSeqKv;
  if (SHAPE_CAUSAL && last + kOffset + 1 < keys) keys = last + kOffset + 1;
  return keys <= 0 ? 0 : (keys + kBlockKv - 1) / kBlockKv;
}

WHET_DEVICE int block_tiles(const Work& work) {
  const int row0 = work.query_block * kBlockQ;
  return visible_tiles(row0, row0 + kBlockQ - 1);
}

}  // namespace attention
