// The order in which a queue would give the work of the grid to its blocks: whoever is free first takes the next. Costs are known, so every
// block can follow the queue without there being one. Include a shape.h before it, see problem.h.
#pragma once

#include "common/sm90_attention/work.h"

namespace attention {

// As few chunks of heads as fit in the cache, as equal in size as they can be: a small one at the end leaves blocks without work.
constexpr int kGroups = kHeads / kGroup;
constexpr int kChunks = (kHeads + kHeadChunk - 1) / kHeadChunk;
WHET_DEVICE int chunk_start(int chunk) {
  return static_cast<int>(static_cast<Int64>(chunk) * kGroups / kChunks) * kGroup;
}
WHET_DEVICE int chunk_work(int chunk) {
  return (chunk_start(chunk + 1) - chunk_start(chunk)) * kQueryBlocks;
}
// Query blocks with much to do come first.
WHET_DEVICE Work work_in_chunk(int chunk, int index) {
  const int start = chunk_start(chunk);
  const int size = chunk_start(chunk + 1) - start;
  const int head = start + index % size;
  return {kQueryBlocks - 1 - index / size, head % kHeadsQ, head / kHeadsQ};
}

// Following the queue takes about 180 clocks for each step of the whole grid, on a scheduler of the multiprocessor that others need as well.
// So blocks stand in line in teams, each member takes one of as many works, and only long sequences, whose works are few and dear, have
// smaller teams.
constexpr int kTeam = kQueryBlocks >= 96 ? 1 : kQueryBlocks >= 48 ? 2 : 4;
// A work takes as long as its tiles and 1.25 more: its start, its end, and what nothing hides. Of long works that is so little that half a tile
// does as well, for which ptxas does not serialise the products of the longest.
constexpr int kTileCost = kTeam == 1 ? 2 : 4;
constexpr int kWorkCost = kTeam == 1 ? 1 : 5;
constexpr int kMaxBlocks = 160;
constexpr int kBlockBits = 8;

template <int kMembers, typename DoWork>
WHET_DEVICE void follow_in_teams(bool skip_first, const DoWork& do_work) {
  const int teams = static_cast<int>(gridDim.x) / kMembers;
  const Uint32 team = blockIdx.x / kMembers;
  const int member = static_cast<int>(blockIdx.x) % kMembers;
  // A lane keeps the hours of every 32nd team, as (time, team): no two are alike. Time is in parts of a tile.
  constexpr int kPerLane = (kMaxBlocks / kMembers + 31) / 32;
  Uint32 busy[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int other = i * 32 + static_cast<int>(threadIdx.x) % 32;
    busy[i] = other < teams ? static_cast<Uint32>(other) : 0xffffffffu;
  }
#pragma unroll 1
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    const int size = chunk_start(chunk + 1) - chunk_start(chunk);
    const int works = size * kQueryBlocks;
    int query_block = kQueryBlocks;
    int left = 0;  // works of the query block
    Uint32 cost = 0;
#pragma unroll 1
    for (int index = 0; index < works; index += kMembers) {
      if (left <= 0) {
        while (left <= 0) {
          left += size;
          --query_block;
        }
        const int row0 = query_block * kBlockQ;
        cost = static_cast<Uint32>(kTileCost * visible_tiles(row0, row0 + kBlockQ - 1) + kWorkCost)
               << kBlockBits;
      }
      left -= kMembers;
      Uint32 first = busy[0];
#pragma unroll
      for (int i = 1; i < kPerLane; ++i) first = min(first, busy[i]);
      first = whet::sm90::warp_min(first);
      if ((first & ((1u << kBlockBits) - 1)) == team) {
        if (!skip_first && index + member < works) do_work(work_in_chunk(chunk, index + member));
        skip_first = false;
      }
#pragma unroll
      for (int i = 0; i < kPerLane; ++i)
        if (busy[i] == first) busy[i] += cost;
    }
  }
}

// The first works go to the blocks in order: following the queue up to there would take time that nothing hides.
template <int kMembers, typename DoWork>
WHET_DEVICE void take_first(const DoWork& do_work) {
  int turn = static_cast<int>(blockIdx.x) / kMembers;
  int chunk = 0;
  for (;; ++chunk) {
    const int turns = (chunk_work(chunk) + kMembers - 1) / kMembers;
    if (turn < turns) break;
    turn -= turns;
  }
  const int index = turn * kMembers + static_cast<int>(blockIdx.x) % kMembers;
  if (index < chunk_work(chunk)) do_work(work_in_chunk(chunk, index));
}

// Calls do_work(work) for every work of this block. One warp. kFirstAtOnce finds the first work sooner, and has do_work in the code twice.
template <bool kFirstAtOnce, typename DoWork>
WHET_DEVICE void follow_queue(const DoWork& do_work) {
  if (kTeam > 1 && gridDim.x % kTeam == 0) {
    if constexpr (kFirstAtOnce) take_first<kTeam>(do_work);
    follow_in_teams<kTeam>(kFirstAtOnce, do_work);
  } else {
    if constexpr (kFirstAtOnce) take_first<1>(do_work);
    follow_in_teams<1>(kFirstAtOnce, do_work);
  }
}

}  // namespace attention
