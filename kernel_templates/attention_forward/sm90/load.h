// The producer's warps: Q, K and V go to shared memory with the copy engine as their places become free.
#pragma once

// The first one fixes the constants of the second.
// clang-format off
#include "attention_forward/sm90/shape.h"
#include "attention_forward/sm90/load_queries.h"
// clang-format on

namespace attention {

// Loads a tile of keys or values.
template <int kPanels>
WHET_DEVICE void load_keys(Uint32 to, const TensorMap* map, Uint32 full, int tile, int head,
                           int batch) {
  whet::sm90::arrive_expect(full, kPanels * kKvPanelBytes);
#pragma unroll
  for (int p = 0; p < kPanels; ++p)
    whet::sm90::load_tile(to + p * kKvPanelBytes, map, full, p * kPanel, tile * kBlockKv, head,
                          batch);
}

WHET_DEVICE void load_keys_and_values(Uint32 shared, const TensorMap& k_map,
                                      const TensorMap& v_map) {
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
          load_keys<kQkPanels>(shared + kKAt + k_ring.stage * kKBytes, &k_map,
                               barriers + 8 * (kFullK + k_ring.stage), tile, head_kv, work.batch);
        k_ring.advance();
      }
      if (previous >= 0) {
        whet::sm90::wait(barriers + 8 * (kEmptyV + v_ring.stage), v_ring.parity ^ 1);
        if (leader)
          load_keys<kVPanels>(shared + kVAt + v_ring.stage * kVBytes, &v_map,
                              barriers + 8 * (kFullV + v_ring.stage), previous, head_kv,
                              work.batch);
        v_ring.advance();
      }
    }
  }
}

}  // namespace attention
