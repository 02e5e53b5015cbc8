// A block of an attention kernel: consumer warpgroups and one producer warpgroup, the barriers between them, and who does what.
// Include a shape.h before it, see problem.h.
#pragma once

#include "common/sm90_attention/problem.h"

namespace attention {

constexpr int kMails = 4;
constexpr int kMailBytes = 16;

// Barriers, 8 bytes each from kBarriersAt on. Q has a place for every stage and warpgroup.
constexpr int kFullQ = 0;
constexpr int kEmptyQ = kFullQ + kQStages * kWarpgroups;
constexpr int kFullK = kEmptyQ + kQStages * kWarpgroups;
constexpr int kEmptyK = kFullK + kStages;
constexpr int kFullV = kEmptyK + kStages;
constexpr int kEmptyV = kFullV + kStages;
constexpr int kFullMail = kEmptyV + kStages;
constexpr int kEmptyMail = kFullMail + kMails;
constexpr int kBarriers = kEmptyMail + kMails;
constexpr int kMailAt = kBarriersAt + 8 * kBarriers;
constexpr int kBlockEnd = kMailAt + kMailBytes * kMails;

constexpr int kThreads = (kWarpgroups + 1) * 128;
// Registers move only within what the block has at its start: 168 per thread with 384 threads, 128 with 512.
static_assert(kConsumerRegisters * kWarpgroups + kProducerRegisters <=
                  65536 / kThreads / 8 * 8 * (kWarpgroups + 1),
              "a warpgroup would wait for registers forever");
static_assert(LAUNCH_BLOCK_X == kThreads,
              "block must be 128 threads per warpgroup, one of them the producer's");
static_assert(kWarpgroups >= 1 && kWarpgroups <= 3,
              "registers are set for 1 to 3 consumer warpgroups");
static_assert(kStages >= 2, "loads run one tile ahead: at least two stages");

// By one thread, before a __syncthreads(). Warps release what they read, so a place is empty when all warps that read it say so.
WHET_DEVICE void init_barriers(Uint32 barriers) {
  for (int i = 0; i < kQStages * kWarpgroups; ++i) {
    whet::sm90::barrier_init(barriers + 8 * (kFullQ + i), 1);
    whet::sm90::barrier_init(barriers + 8 * (kEmptyQ + i), 4);
  }
  for (int i = 0; i < kStages; ++i) {
    whet::sm90::barrier_init(barriers + 8 * (kFullK + i), 1);
    whet::sm90::barrier_init(barriers + 8 * (kEmptyK + i), 4 * kWarpgroups);
    whet::sm90::barrier_init(barriers + 8 * (kFullV + i), 1);
    whet::sm90::barrier_init(barriers + 8 * (kEmptyV + i), 4 * kWarpgroups);
  }
  for (int i = 0; i < kMails; ++i) {
    whet::sm90::barrier_init(barriers + 8 * (kFullMail + i), 1);
    whet::sm90::barrier_init(barriers + 8 * (kEmptyMail + i), 4 * kWarpgroups + 2);
  }
  whet::sm90::barrier_init_fence();
}

}  // namespace attention
