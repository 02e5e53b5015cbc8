// What each warp of a block does. Include a shape.h before it, see problem.h.
#pragma once

#include "common/sm90_attention/queries.h"

namespace attention {

// Once the block's barriers are ready, by all its threads. The last warpgroup gives registers away, and its first three warps call
// feed_tiles(), copy queries and plan the work; the others call consume(warpgroup).
template <typename FeedTiles, typename Consume>
WHET_DEVICE void run_roles(Uint32 shared, const TensorMap& q_map, const FeedTiles& feed_tiles,
                           const Consume& consume) {
  const int warpgroup = whet::sm90::uniform(static_cast<int>(threadIdx.x) / 128);
  if (warpgroup == kWarpgroups) {
    whet::sm90::shrink_registers<kProducerRegisters>();
    const int warp = whet::sm90::uniform(static_cast<int>(threadIdx.x) / 32 % 4);
    if (warp == 0) {
      feed_tiles();
    } else if (warp == 1) {
      load_queries(shared, q_map);
    } else if (warp == 2) {
      schedule(shared);
    }
  } else {
    whet::sm90::grow_registers<kConsumerRegisters>();
    consume(warpgroup);
  }
}

}  // namespace attention
