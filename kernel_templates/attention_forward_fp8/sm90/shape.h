// What the problem and the variant fix: tile sizes, the map of shared memory, and which key each accumulator belongs to.
#pragma once

#include "common/sm90_attention/problem.h"

namespace attention {

constexpr int kBlockKv = TUNE_BLOCK_KV;
constexpr int kWarpgroups = kBlockKv == 96 ? 3 : 2;
constexpr int kBlockQ = kRows * kWarpgroups;
constexpr int kStages = kBlockKv == 192 ? 2 : 3;
constexpr int kQStages = SHAPE_DV <= 128 && SHAPE_DQK <= (kBlockKv == 192 ? 128 : 192) ? 2 : 1;
constexpr bool kDirect = TUNE_DIRECT;
constexpr bool kScaleBlocks = TUNE_SCALE_BLOCKS;
// Tiles after which the output of the products is added up in f16, where the tensor cores' own sums are too coarse; 0: never.
constexpr int kPromoteTiles = TUNE_PROMOTE;
constexpr bool kPromote = kPromoteTiles > 0;
// Pairs of rows must not reach past the last one.
constexpr bool kKeysInterleaved = SHAPE_SEQ_KV % 2 == 0;

constexpr int kQueryBlocks = (kSeqQ + kBlockQ - 1) / kBlockQ;
constexpr int kWork = kQueryBlocks * kHeads;

constexpr int kElementBytes = 1;
constexpr int kPanel = 128;     // elements of a swizzled row
constexpr int kPanelRow = 128;  // its bytes
constexpr int kQkPanels = (kDqk + kPanel - 1) / kPanel;
constexpr int kQkSteps = (kDqk + 31) / 32;
constexpr int kKvSteps = kBlockKv / 32;

// Eight more rows follow the channels of a tile of V^T. The first is all ones: its column of the output is the sum of the probabilities as
// the product sees them, rounded.
constexpr int kOutputs = kDv + 8;
constexpr int kScores = kBlockKv / 2;  // accumulators of a thread
constexpr int kWords = kBlockKv / 8;   // of a thread's probabilities, 4 bytes each

constexpr int kQPanelBytes = kRows * kPanelRow;
constexpr int kQBytes = kQkPanels * kQPanelBytes;  // of one warpgroup
constexpr int kKPanelBytes = kBlockKv * kPanelRow;
constexpr int kKBytes = kQkPanels * kKPanelBytes;
// V^T lies in panels of 128 keys and, if that leaves keys, one of 64 and one of 32.
constexpr int kVPanels = kBlockKv / kPanel;
constexpr bool kVHalfPanel = kBlockKv / 64 % 2 != 0;
constexpr bool kVQuarterPanel = kBlockKv / 32 % 2 != 0;
constexpr int kVPanelBytes = kOutputs * kPanelRow;
constexpr int kVHalfAt = kVPanels * kVPanelBytes;
constexpr int kVQuarterAt = kVHalfAt + (kVHalfPanel ? kVPanelBytes / 2 : 0);
constexpr int kVBytes = kVQuarterAt + (kVQuarterPanel ? kVPanelBytes / 4 : 0);

// With rows and tiles that start at multiples of 64, the diagonal stays within one tile.
constexpr bool kMasksLaterTiles =
    SHAPE_CAUSAL && (kBlockKv % kRows != 0 || (kOffset % kRows + kRows) % kRows != 0);

constexpr int kQAt = 0;
constexpr int kKAt = kQAt + kQStages * kWarpgroups * kQBytes;
constexpr int kVAt = kKAt + kStages * kKBytes;
constexpr int kVStride = (kVBytes + 1023) / 1024 * 1024;
constexpr int kBarriersAt = kVAt + kStages * kVStride;
constexpr int kConsumerRegisters = kWarpgroups == 3 ? 160 : 240;
constexpr int kProducerRegisters = kWarpgroups == 3 ? 32 : 24;

// Where accumulator `index` of a thread, row `index` / 2 % 2 of its two, finds its key in the tile: this plus kKeysPerLane * (lane % 4).
//
// A lane has columns 2 t and 2 t + 1 of every 8 scores (t = lane % 4), and must hand 4 t ... 4 t + 3 of every 16 keys to the next product.
// Interleaved, the rows of K are laid so that those are what it has: 64-byte halves of columns hold keys 4 i, 4 i + 1 and 4 i + 2, 4 i + 3.
constexpr int kKeysPerLane = kKeysInterleaved ? 4 : 2;
WHET_DEVICE constexpr int key_of(int index) {
  return kKeysInterleaved
             ? 16 * (index / 4 % (kBlockKv / 16)) + 2 * (index / 4 / (kBlockKv / 16)) + index % 2
             : 8 * (index / 4) + index % 2;
}
// The accumulator of byte `byte` of word `word` of the probabilities, in the order that the left operand of a product has.
WHET_DEVICE constexpr int score_of(int word, int byte) {
  return kKeysInterleaved ? 4 * (word / 2) + 2 * (word % 2) + byte % 2 + byte / 2 * (kBlockKv / 4)
                          : 8 * (word / 2) + 2 * (word % 2) + byte % 2 + byte / 2 * 4;
}

// Scales of K that a tile has, one for every 64 keys unless the whole head has one.
constexpr int kQScaleRows = SHAPE_Q_SCALE_ROWS == 0 ? kSeqQ : SHAPE_Q_SCALE_ROWS;
constexpr int kKScaleRows = SHAPE_K_SCALE_ROWS == 0 ? kSeqKv : SHAPE_K_SCALE_ROWS;
constexpr int kKScales = SHAPE_K_SCALE_ROWS == 0 ? 1 : kBlockKv / 64;
WHET_DEVICE constexpr int scale_of(int index) {
  return SHAPE_K_SCALE_ROWS == 0 ? 0 : key_of(index) / 64;
}

static_assert(SHAPE_DTYPE == WHET_E4M3, "this kernel is for OCP e4m3");
static_assert(kBlockKv % 32 == 0 && kBlockKv <= 256, "block_kv must be a multiple of 32 up to 256");
static_assert(SHAPE_K_SCALE_ROWS == 0 || kBlockKv % 64 == 0, "tiles must begin where scales do");
static_assert(kDqk % 16 == 0 && kDv % 16 == 0 && kOutputs <= 256,
              "head dimensions must be multiples of 16");

}  // namespace attention

#include "common/sm90_attention/block.h"

namespace attention {

constexpr int kSuspicionsAt = kBlockEnd;  // one word per consumer warp
static_assert(1024 + kSuspicionsAt + 16 * kWarpgroups <= LAUNCH_SHARED_BYTES,
              "shared_bytes of the kernel file is too small");

}  // namespace attention

#include "common/sm90_attention/work.h"
