// The producer's warp that copies K and V tiles to shared memory, as their places become free. Include a shape.h before it, see problem.h.
#pragma once

#include "common/sm90_attention/schedule.h"

namespace attention {

// A place in shared memory and the barrier that is to see it full.
struct Place {
  Uint32 to;
  Uint32 full;
};

// Both load_keys and load_values are called as load(place, tile, head_kv, batch), by one thread, and start copies that complete the barrier.
// A stage of K takes kKStride bytes, one of V kVStride.
template <int kKStride, int kVStride, typename LoadKeys, typename LoadValues>
WHET_DEVICE void feed(Uint32 shared, const LoadKeys& load_keys, const LoadValues& load_values) {
  const Uint32 barriers = shared + kBarriersAt;
  const bool leader = threadIdx.x % 32 == 0;
  Mailbox mailbox{shared, {}};
  Ring<kStages> k_ring;
  Ring<kStages> v_ring;
  for (;;) {
    const Work work = mailbox.take();
    if (work.query_block < 0) break;
    const int head_kv = work.head / kGroup;
    // In the order of use: the scores of a tile are computed before the output of the one before it.
    for (int tile = block_tiles(work) - 1, previous = -1; tile >= 0 || previous >= 0;
         previous = tile--) {
      if (tile >= 0) {
        whet::sm90::wait(barriers + 8 * (kEmptyK + k_ring.stage), k_ring.parity ^ 1);
        if (leader)
          load_keys(
              {shared + kKAt + k_ring.stage * kKStride, barriers + 8 * (kFullK + k_ring.stage)},
              tile, head_kv, work.batch);
        k_ring.advance();
      }
      if (previous >= 0) {
        whet::sm90::wait(barriers + 8 * (kEmptyV + v_ring.stage), v_ring.parity ^ 1);
        if (leader)
          load_values(
              {shared + kVAt + v_ring.stage * kVStride, barriers + 8 * (kFullV + v_ring.stage)},
              previous, head_kv, work.batch);
        v_ring.advance();
      }
    }
  }
}

}  // namespace attention
