// The names that attention kernels for Hopper give to the extents of their problem. A kernel's shape.h includes it first, then fixes its
// tiles, and includes block.h and work.h when its map of shared memory stands:
//
//   problem.h   extents                      needs the SHAPE_* constants
//   block.h     barriers and roles           needs kWarpgroups, kStages, kQStages, kBarriersAt, kProducerRegisters, kConsumerRegisters
//   work.h      what there is to do          needs kWarpgroups, kBlockKv, kElementBytes
#pragma once

#include "common/sm90.h"

namespace attention {

using whet::Int64;
using whet::sm90::TensorMap;
using whet::sm90::Uint32;
using whet::sm90::Uint64;

constexpr int kRows = 64;  // of a warpgroup: the height of one wgmma

constexpr int kDqk = SHAPE_DQK;
constexpr int kDv = SHAPE_DV;
constexpr int kSeqQ = SHAPE_SEQ_Q;
constexpr int kSeqKv = SHAPE_SEQ_KV;
constexpr int kHeadsQ = SHAPE_HEADS_Q;
constexpr int kHeadsKv = SHAPE_HEADS_KV;
constexpr int kGroup = SHAPE_HEADS_Q / SHAPE_HEADS_KV;
constexpr int kHeads = SHAPE_BATCH * kHeadsQ;
constexpr int kOffset = kSeqKv - kSeqQ;  // key j is visible to row i when j <= i + kOffset

}  // namespace attention
