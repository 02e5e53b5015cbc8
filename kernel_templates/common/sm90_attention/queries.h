// The producer's warp that copies query rows to shared memory, a place for each warpgroup. Include a shape.h before it, see problem.h.
#pragma once

#include "common/sm90_attention/schedule.h"

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

}  // namespace attention
