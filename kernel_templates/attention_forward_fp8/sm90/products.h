// The two matrix products: S = Q K^T and O += P V, issued and not waited for.
#pragma once

#include "attention_forward_fp8/sm90/shape.h"
#include "common/sm90_product_fp8.h"

namespace attention {

using whet::sm90::byte_panel_descriptor;
using whet::sm90::ByteProduct;

// Issues S = Q K^T for the query rows at `q` and the K tile at `k`.
WHET_DEVICE void issue_scores(float (&s)[kScores], Uint32 q, Uint32 k) {
  const Uint64 q_base = byte_panel_descriptor<128>(q);
  const Uint64 k_base = byte_panel_descriptor<128>(k);
#pragma unroll
  for (int step = 0; step < kQkSteps; ++step)
    ByteProduct<kBlockKv>::shared_shared(
        s, q_base + ((step / 4) * kQPanelBytes + (step % 4) * 32) / 16,
        k_base + ((step / 4) * kKPanelBytes + (step % 4) * 32) / 16, step != 0);
  whet::sm90::product_commit();
}

// Issues O += P V for the V^T tile at `v`, or O = P V; the last columns of O are the row sums of P.
WHET_DEVICE void issue_output(float (&o)[kOutputs / 2], const Uint32 (&p)[kWords], Uint32 v,
                              int accumulate) {
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
  whet::sm90::product_commit();
}

}  // namespace attention
