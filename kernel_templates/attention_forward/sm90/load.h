// The producer's warps: Q, K and V go to shared memory with the copy engine as their places become free.
#pragma once

#include "attention_forward/sm90/schedule.h"

namespace attention {

WHET_DEVICE void load_queries(Uint32 shared, const TensorMap& q_map) {
  const Uint32 barriers = shared + kBarriersAt;
  const bool leader = threadIdx.x % 32 == 0;
  Mailbox mailbox{shared, {}};
  Ring<kQStages> ring;
  for (;;) {
    const Work work = mailbox.take();
    if (work.query_block < 0) break;
    const int row0 = work.query_block * kBlockQ;
#pragma unroll
    for (int w = 0; w < kWarpgroups; ++w) {
      const int place = ring.stage * kWarpgroups + w;
      const Uint32 full = barriers + 8 * (kFullQ + place);
      whet::sm90::wait(barriers + 8 * (kEmptyQ + place), ring.parity ^ 1);
      if (leader) {
        whet::sm90::arrive_expect(full, kQBytes);
#pragma unroll
        for (int p = 0; p < kQkPanels; ++p)
          whet::sm90::load_tile(shared + kQAt + place * kQBytes + p * kQPanelBytes, &q_map, full,
                                p * kPanel, row0 + w * kRows, work.head, work.batch);
      }
    }
    ring.advance();
  }
}

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
