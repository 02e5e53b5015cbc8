// What the problem and the variant fix: tile sizes, the map of shared memory, and which keys a piece of work sees.
#pragma once

#include "common/sm90_attention/problem.h"

namespace attention {

constexpr int kWarpgroups = TUNE_WARPGROUPS;
constexpr int kBlockQ = kRows * kWarpgroups;
constexpr int kBlockKv = TUNE_BLOCK_KV;
constexpr bool kSpeculate = TUNE_SPECULATE;
constexpr bool kPingPong = kWarpgroups > 1;
constexpr int kStages = TUNE_STAGES;
// Probabilities may grow to 2^kLazyLog2 before the output is rescaled to a new row maximum.
constexpr int kLazyLog2 = 8;

constexpr int kQueryBlocks = (kSeqQ + kBlockQ - 1) / kBlockQ;
constexpr int kWork = kQueryBlocks * kHeads;

constexpr int kElementBytes = 2;
constexpr int kPanel = 64;      // elements of a swizzled row
constexpr int kPanelRow = 128;  // its bytes
constexpr int kQkPanels = (kDqk + kPanel - 1) / kPanel;
constexpr int kVPanels = (kDv + kPanel - 1) / kPanel;
constexpr int kQkSteps = (kDqk + 15) / 16;

constexpr int kQPanelBytes = kRows * kPanelRow;
constexpr int kQBytes = kQkPanels * kQPanelBytes;  // of one warpgroup
constexpr int kKvPanelBytes = kBlockKv * kPanelRow;
constexpr int kKBytes = kQkPanels * kKvPanelBytes;
constexpr int kVBytes = kVPanels * kKvPanelBytes;

// A second place for Q where the kernel file makes room: the next work's can be there before this one's last product has read its own.
constexpr int kBesideTiles = 1408;  // for alignment, barriers and mail, as in the kernel file
constexpr int kQStages =
    LAUNCH_SHARED_BYTES >= kBesideTiles + 2 * kWarpgroups * kQBytes + kStages * (kKBytes + kVBytes)
        ? 2
        : 1;

// With rows and tiles that start at multiples of 64, the diagonal stays within one tile.
constexpr bool kMasksLaterTiles =
    SHAPE_CAUSAL && (kBlockKv % kRows != 0 || (kOffset % kRows + kRows) % kRows != 0);

constexpr int kQAt = 0;
constexpr int kKAt = kQAt + kQStages * kWarpgroups * kQBytes;
constexpr int kVAt = kKAt + kStages * kKBytes;
constexpr int kBarriersAt = kVAt + kStages * kVBytes;
constexpr int kConsumerRegisters = kWarpgroups == 3 ? 160 : 232;
constexpr int kProducerRegisters = kWarpgroups == 3 ? 32 : 40;

static_assert(SHAPE_DTYPE == WHET_BF16, "this kernel is for bf16");
static_assert(kBlockKv % 16 == 0 && kBlockKv <= 256, "block_kv must be a multiple of 16 up to 256");
static_assert(kDqk % 8 == 0 && kDv % 8 == 0 && kDv <= 256,
              "head dimensions must be multiples of 8");

}  // namespace attention

#include "common/sm90_attention/block.h"

namespace attention {

constexpr int kSuspicionsAt = kBlockEnd;  // one word per consumer warp
static_assert(1024 + kSuspicionsAt + 16 * kWarpgroups <= LAUNCH_SHARED_BYTES,
              "shared_bytes of the kernel file is too small");

// Where there is room for it, a warp lays its 16 rows of output down in shared memory, swizzled, and the copy engine writes them.
constexpr int kStagingAt = (kSuspicionsAt + 16 * kWarpgroups + 1023) / 1024 * 1024;
constexpr int kStagingPanelBytes = 16 * kPanelRow;
constexpr int kStagingBytes = kVPanels * kStagingPanelBytes;  // of a warp
constexpr bool kStaged = 1024 + kStagingAt + 4 * kWarpgroups * kStagingBytes <= LAUNCH_SHARED_BYTES;

// Of a work's first tile, which the diagonal crosses, every other warpgroup sees no more than half.
constexpr int kHalfKv = 64;
constexpr bool kHalves = SHAPE_CAUSAL && kSpeculate && kBlockKv == 2 * kHalfKv;

}  // namespace attention

#include "common/sm90_attention/work.h"
