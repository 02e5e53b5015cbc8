// The producer's warps: Q, K and V^T go to shared memory with the copy engine as their places become free.
#pragma once

// The shape comes first.
// clang-format off
#include "attention_forward_fp8/sm90/shape.h"
#include "common/sm90_attention/feed.h"
// clang-format on

namespace attention {

// Copies rows s, s + 1, s + 4, s + 5, ... of a tensor whose map has pairs of rows and takes every fourth row.
WHET_DEVICE void load_pairs(Uint32 to, const TensorMap* map, Uint32 barrier, int d, int s, int h,
                            int b) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, "
      "%4, %5, %6, %7}], [%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(d), "r"(0), "r"(s), "r"(h), "r"(b)
      : "memory");
}

WHET_DEVICE void load_keys(const Place& place, const TensorMap* map, int tile, int head,
                           int batch) {
  whet::sm90::arrive_expect(place.full, kKBytes);
#pragma unroll
  for (int p = 0; p < kQkPanels; ++p) {
    const Uint32 panel = place.to + p * kKPanelBytes;
    const int key = tile * kBlockKv;
    if constexpr (kKeysInterleaved) {
      load_pairs(panel, map, place.full, p * kPanel, key, head, batch);
      load_pairs(panel + kKPanelBytes / 2, map, place.full, p * kPanel, key + 2, head, batch);
    } else {
      whet::sm90::load_tile(panel, map, place.full, p * kPanel, key, head, batch);
    }
  }
}

WHET_DEVICE void load_values(const Place& place, const TensorMap* map, const TensorMap* half_map,
                             const TensorMap* quarter_map, int tile, int head, int batch) {
  whet::sm90::arrive_expect(place.full, kDv * kBlockKv);
  const int key = tile * kBlockKv;
#pragma unroll
  for (int p = 0; p < kVPanels; ++p)
    whet::sm90::load_tile(place.to + p * kVPanelBytes, map, place.full, key + p * kPanel, 0, head,
                          batch);
  if constexpr (kVHalfPanel)
    whet::sm90::load_tile(place.to + kVHalfAt, half_map, place.full, key + kVPanels * kPanel, 0,
                          head, batch);
  if constexpr (kVQuarterPanel)
    whet::sm90::load_tile(place.to + kVQuarterAt, quarter_map, place.full, key + kBlockKv / 64 * 64,
                          0, head, batch);
}

WHET_DEVICE void load_keys_and_values(Uint32 shared, const TensorMap& k_map, const TensorMap& v_map,
                                      const TensorMap& v_half_map, const TensorMap& v_quarter_map) {
  feed<kKBytes, kVStride>(
      shared,
      [&](const Place& place, int tile, int head, int batch) {
        load_keys(place, &k_map, tile, head, batch);
      },
      [&](const Place& place, int tile, int head, int batch) {
        load_values(place, &v_map, &v_half_map, &v_quarter_map, tile, head, batch);
      });
}

// The rows below the channels of every tile of V^T: ones, then zeros. By `threads` threads; the products see it after their proxy's fence.
WHET_DEVICE void write_ones(Uint32 shared, int thread, int threads) {
  const auto write = [&](Uint32 rows, int width) {
    for (int i = thread; i < 8 * width / 4; i += threads)
      whet::sm90::store_shared(rows + 4 * i, i < width / 4 ? 0x38383838u : 0u);
  };
#pragma unroll 1
  for (int stage = 0; stage < kStages; ++stage) {
    const Uint32 tile = shared + kVAt + stage * kVStride;
#pragma unroll 1
    for (int p = 0; p < kVPanels; ++p) write(tile + p * kVPanelBytes + kDv * kPanelRow, kPanelRow);
    if constexpr (kVHalfPanel) write(tile + kVHalfAt + kDv * kPanelRow / 2, kPanelRow / 2);
    if constexpr (kVQuarterPanel) write(tile + kVQuarterAt + kDv * kPanelRow / 4, kPanelRow / 4);
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace attention
