// How K and V tiles go to shared memory with the copy engine.
#pragma once

// The first one fixes the constants of the second.
// clang-format off
#include "attention_forward/sm90/shape.h"
#include "common/sm90_attention/feed.h"
// clang-format on

namespace attention {

// Starts the copies of a tile of keys or values.
template <int kPanels>
WHET_DEVICE void load_panels(const Place& place, const TensorMap* map, int tile, int head,
                             int batch) {
  whet::sm90::arrive_expect(place.full, kPanels * kKvPanelBytes);
#pragma unroll
  for (int p = 0; p < kPanels; ++p)
    whet::sm90::load_tile(place.to + p * kKvPanelBytes, map, place.full, p * kPanel,
                          tile * kBlockKv, head, batch);
}

WHET_DEVICE void load_keys_and_values(Uint32 shared, const TensorMap& k_map,
                                      const TensorMap& v_map) {
  feed<kKBytes, kVBytes>(
      shared,
      [&](const Place& place, int tile, int head, int batch) {
        load_panels<kQkPanels>(place, &k_map, tile, head, batch);
      },
      [&](const Place& place, int tile, int head, int batch) {
        load_panels<kVPanels>(place, &v_map, tile, head, batch);
      });
}

}  // namespace attention
