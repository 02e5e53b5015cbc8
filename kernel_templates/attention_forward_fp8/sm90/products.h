// The two matrix products: S = Q K^T and O += P V, issued and not waited for.
#pragma once

#include "attention_forward_fp8/sm90/shape.h"
#include "common/sm90_product_fp8.h"

namespace attention {

using whet::sm90::byte_panel_descriptor;
using whet::sm90::ByteProduct;

struct Query {
  Uint32 shared;  // this warpgroup's rows in shared memory
  Uint32 registers[kQueryInRegisters ? kQkSteps * 4 : 1];
};

WHET_DEVICE void read_query(Query& query, int warp, int lane) {
  const int row = warp * 16 + lane % 16;
#pragma unroll
  for (int step = 0; step < kQkSteps; ++step) {
    const int chunk = (step % 4) * 2 + lane / 16;
    Uint32 four[4];
    whet::sm90::load_matrices(four, query.shared + (step / 4) * kQPanelBytes + row * kPanelRow +
                                        ((chunk ^ (row % 8)) * 16));
#pragma unroll
    for (int i = 0; i < 4; ++i) query.registers[step * 4 + i] = four[i];
  }
}

// Issues S = Q K^T for the K tile at `k`.
WHET_DEVICE void issue_scores(float (&s)[kScores], const Query& query, Uint32 k) {
  const Uint64 q_base = byte_panel_descriptor<128>(query.shared);
  const Uint64 k_base = byte_panel_descriptor<128>(k);
#pragma unroll
  for (int step = 0; step < kQkSteps; ++step) {
    const Uint64 k_step = k_base + ((step / 4) * kKPanelBytes + (step % 4) * 32) / 16;
    if constexpr (kQueryInRegisters) {
      ByteProduct<kBlockKv>::register_shared(s, &query.registers[step * 4], k_step, step != 0);
    } else {
      ByteProduct<kBlockKv>::shared_shared(
          s, q_base + ((step / 4) * kQPanelBytes + (step % 4) * 32) / 16, k_step, step != 0);
    }
  }
  whet::sm90::product_commit();
}

// Issues O += P V for the V^T tile at `v`, or O = P V; the last columns of O are the row sums of P.
WHET_DEVICE void issue_output(float (&o)[kOutputs / 2], float (&sums)[4], const Uint32 (&p)[kWords],
                              Uint32 v, Uint32 ones, int accumulate) {
  const Uint64 whole = byte_panel_descriptor<128>(v);
  const Uint64 half = byte_panel_descriptor<64>(v + kVHalfAt);
  const Uint64 quarter = byte_panel_descriptor<32>(v + kVQuarterAt);
#pragma unroll
  for (int step = 0; step < kKvSteps; ++step) {
    const int left = step - kVPanels * 4;
    ByteProduct<kOutputs>::register_shared(
        o, &p[step * 4],
        left < 0                       ? whole + (step / 4 * kVPanelBytes + (step % 4) * 32) / 16
        : left < (kVHalfPanel ? 2 : 0) ? half + left * 32 / 16
                                       : quarter,
        step != 0 || accumulate);
  }
  if constexpr (TUNE_SUMS == 1) {
    const Uint64 b = byte_panel_descriptor<128>(ones);
#pragma unroll
    for (int step = 0; step < kKvSteps; ++step)
      ByteProduct<8>::register_shared(sums, &p[step * 4], b, step != 0);
  }
  whet::sm90::product_commit();
}

}  // namespace attention
