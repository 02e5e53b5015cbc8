// The producer's warps: Q, K and V^T go to shared memory with the copy engine as their places become free.
#pragma once

// The shape comes first.
// clang-format off
#include "attention_forward_fp8/sm90/shape.h"
#include "attention_forward/sm90/load_queries.h"
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

WHET_DEVICE void load_keys(Uint32 to, const TensorMap* map, Uint32 full, int tile, int head,
                           int batch) {
  whet::sm90::arrive_expect(full, kKBytes);
#pragma unroll
  for (int p = 0; p < kQkPanels; ++p) {
    const Uint32 panel = to + p * kKPanelBytes;
    if constexpr (kKeysInterleaved) {
      load_pairs(panel, map, full, p * kPanel, tile * kBlockKv, head, batch);
      load_pairs(panel + kKPanelBytes / 2, map, full, p * kPanel, tile * kBlockKv + 2, head, batch);
    } else {
      whet::sm90::load_tile(panel, map, full, p * kPanel, tile * kBlockKv, head, batch);
    }
  }
}

WHET_DEVICE void load_values(Uint32 to, const TensorMap* map, const TensorMap* half_map,
                             const TensorMap* quarter_map, Uint32 full, int tile, int head,
                             int batch) {
  whet::sm90::arrive_expect(full, kDv * kBlockKv);
#pragma unroll
  for (int p = 0; p < kVPanels; ++p)
    whet::sm90::load_tile(to + p * kVPanelBytes, map, full, tile * kBlockKv + p * kPanel, 0, head,
                          batch);
  if constexpr (kVHalfPanel)
    whet::sm90::load_tile(to + kVHalfAt, half_map, full, tile * kBlockKv + kVPanels * kPanel, 0,
                          head, batch);
  if constexpr (kVQuarterPanel)
    whet::sm90::load_tile(to + kVQuarterAt, quarter_map, full, tile * kBlockKv + kBlockKv / 64 * 64,
                          0, head, batch);
}

WHET_DEVICE void load_keys_and_values(Uint32 shared, const TensorMap& k_map, const TensorMap& v_map,
                                      const TensorMap& v_half_map, const TensorMap& v_quarter_map) {
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
          load_keys(shared + kKAt + k_ring.stage * kKBytes, &k_map,
                    barriers + 8 * (kFullK + k_ring.stage), tile, head_kv, work.batch);
        k_ring.advance();
      }
      if (previous >= 0) {
        whet::sm90::wait(barriers + 8 * (kEmptyV + v_ring.stage), v_ring.parity ^ 1);
        if (leader)
          load_values(shared + kVAt + v_ring.stage * kVStride, &v_map, &v_half_map, &v_quarter_map,
                      barriers + 8 * (kFullV + v_ring.stage), previous, head_kv, work.batch);
        v_ring.advance();
      }
    }
  }
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
