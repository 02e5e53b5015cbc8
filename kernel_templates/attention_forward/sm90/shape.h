// What the problem and the variant fix: tile sizes, the map of shared memory, and which keys a piece of work sees.
#pragma once

#include "common/sm90_attention/problem.h"

namespace attention {

constexpr int kWarpgroups = TUNE_WARPGROUPS;
constexpr int kBlockQ = kRows * kWarpgroups;
constexpr int kBlockKv = TUNE_BLOCK_KV;
constexpr int kStages = TUNE_STAGES;
constexpr bool kOverlap = TUNE_OVERLAP;
constexpr bool kPingPong = kOverlap && kWarpgroups > 1;
constexpr bool kQueryInRegisters = TUNE_Q_REGISTERS;
constexpr int kQStages = 1;
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
constexpr int kKvSteps = kBlockKv / 16;

constexpr int kQPanelBytes = kRows * kPanelRow;
constexpr int kQBytes = kQkPanels * kQPanelBytes;  // of one warpgroup
constexpr int kKvPanelBytes = kBlockKv * kPanelRow;
constexpr int kKBytes = kQkPanels * kKvPanelBytes;
constexpr int kVBytes = kVPanels * kKvPanelBytes;

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

}  // namespace attention

#include "common/sm90_attention/work.h"
