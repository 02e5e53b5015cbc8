// What the problem and the variant fix: tile sizes, the map of shared memory, and which keys a piece of work sees.
#pragma once

#include "common/sm90.h"

namespace attention {

using whet::Int64;
using whet::sm90::TensorMap;
using whet::sm90::Uint32;
using whet::sm90::Uint64;

constexpr int kWarpgroups = TUNE_WARPGROUPS;
constexpr int kRows = 64;  // of a warpgroup: the height of one wgmma
constexpr int kBlockQ = kRows * kWarpgroups;
constexpr int kBlockKv = TUNE_BLOCK_KV;
constexpr int kStages = TUNE_STAGES;
constexpr bool kOverlap = TUNE_OVERLAP;
constexpr bool kPingPong = kOverlap && kWarpgroups > 1;
constexpr bool kQueryInRegisters = TUNE_Q_REGISTERS;
constexpr int kQStages = 1;
// Probabilities may grow to 2^kLazyLog2 before the output is rescaled to a new row maximum.
constexpr int kLazyLog2 = 8;

constexpr int kDqk = SHAPE_DQK;
constexpr int kDv = SHAPE_DV;
constexpr int kSeqQ = SHAPE_SEQ_Q;
constexpr int kSeqKv = SHAPE_SEQ_KV;
constexpr int kHeadsQ = SHAPE_HEADS_Q;
constexpr int kGroup = SHAPE_HEADS_Q / SHAPE_HEADS_KV;
constexpr int kHeads = SHAPE_BATCH * kHeadsQ;
constexpr int kQueryBlocks = (kSeqQ + kBlockQ - 1) / kBlockQ;
constexpr int kWork = kQueryBlocks * kHeads;
constexpr int kOffset = kSeqKv - kSeqQ;  // key j is visible to row i when j <= i + kOffset

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
constexpr int kMails = 4;
constexpr int kMailBytes = 16;
constexpr int kFullQ = 0;  // one per stage and warpgroup
constexpr int kEmptyQ = kFullQ + kQStages * kWarpgroups;
constexpr int kFullK = kEmptyQ + kQStages * kWarpgroups;
constexpr int kEmptyK = kFullK + kStages;
constexpr int kFullV = kEmptyK + kStages;
constexpr int kEmptyV = kFullV + kStages;
constexpr int kFullMail = kEmptyV + kStages;
constexpr int kEmptyMail = kFullMail + kMails;
constexpr int kBarriers = kEmptyMail + kMails;
constexpr int kMailAt = kBarriersAt + 8 * kBarriers;
constexpr int kSuspicionsAt = kMailAt + kMailBytes * kMails;  // one word per consumer warp

constexpr int kThreads = (kWarpgroups + 1) * 128;
// Registers move only within what the block has at its start: 168 per thread with 384 threads, 128 with 512.
constexpr int kConsumerRegisters = kWarpgroups == 3 ? 160 : 232;
constexpr int kProducerRegisters = kWarpgroups == 3 ? 32 : 40;
static_assert(kConsumerRegisters * kWarpgroups + kProducerRegisters <=
                  65536 / kThreads / 8 * 8 * (kWarpgroups + 1),
              "a warpgroup would wait for registers forever");

static_assert(SHAPE_DTYPE == WHET_BF16, "this kernel is for bf16");
static_assert(LAUNCH_BLOCK_X == kThreads,
              "block must be 128 threads per warpgroup, one of them the producer's");
static_assert(kWarpgroups >= 1 && kWarpgroups <= 3,
              "registers are set for 1 to 3 consumer warpgroups");
static_assert(kBlockKv % 16 == 0 && kBlockKv <= 256, "block_kv must be a multiple of 16 up to 256");
static_assert(kDqk % 8 == 0 && kDv % 8 == 0 && kDv <= 256,
              "head dimensions must be multiples of 8");
static_assert(kStages >= 2, "loads run one tile ahead: at least two stages");
static_assert(1024 + kSuspicionsAt + 16 * kWarpgroups <= LAUNCH_SHARED_BYTES,
              "shared_bytes of the kernel file is too small");

}  // namespace attention

#include "attention_forward/sm90/work.h"
