// The two matrix products: S = Q K^T and O += P V, issued and not waited for.
#pragma once

#include "attention_forward/sm90/shape.h"
#include "common/sm90_product.h"

namespace attention {

using whet::sm90::Product;

// 16 columns of Q K^T, for the first kKeys keys of the tile.
template <int kKeys>
WHET_DEVICE void issue_scores_step(float (&s)[kBlockKv / 2], Uint32 query, Uint64 k_base,
                                   int step) {
  const Uint64 k_step = k_base + ((step / 4) * kKvPanelBytes + (step % 4) * 32) / 16;
  const Uint64 q_base = whet::sm90::panel_descriptor(query, 16);
  Product<kKeys>::shared_shared(s, q_base + ((step / 4) * kQPanelBytes + (step % 4) * 32) / 16,
                                k_step, step != 0);
}

// Issues S = Q K^T for this warpgroup's rows at `query` and the K tile at `k`. `half`: the scores of the upper half do not matter. The first step computes them all the same,
// or the compiler would see registers that the products of only one branch write, and make all products wait for each other.
WHET_DEVICE void issue_scores(float (&s)[kBlockKv / 2], Uint32 query, Uint32 k, bool half) {
  const Uint64 k_base = whet::sm90::panel_descriptor(k, 16);
  issue_scores_step<kBlockKv>(s, query, k_base, 0);
  if (kHalves && half) {
#pragma unroll
    for (int step = 1; step < kQkSteps; ++step) issue_scores_step<kHalfKv>(s, query, k_base, step);
  } else {
#pragma unroll
    for (int step = 1; step < kQkSteps; ++step) issue_scores_step<kBlockKv>(s, query, k_base, step);
  }
  whet::sm90::product_commit();
}

// Issues O += P V for the V tile at `v`, or O = P V. `half`: the probabilities of the upper half are zero.
WHET_DEVICE void issue_output(float (&o)[kDv / 2], const Uint32 (&p)[kBlockKv / 4], Uint32 v,
                              int accumulate, bool half) {
  const Uint64 v_base = whet::sm90::panel_descriptor(v, kKvPanelBytes);
#pragma unroll
  for (int step = 0; step < kBlockKv / 16; ++step)
    if (!(kHalves && half) || step < kHalfKv / 16)
      Product<kDv>::register_columns(o, &p[step * 4], v_base + step * (16 * kPanelRow / 16),
                                     step != 0 || accumulate);
  whet::sm90::product_commit();
}

}  // namespace attention
