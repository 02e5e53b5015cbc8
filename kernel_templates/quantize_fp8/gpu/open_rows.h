// A tile's rows as both later phases see them: centred and rotated.
#pragma once

#include "quantize_fp8/gpu/plan.h"

namespace {

WHET_DEVICE void wait_for(int* word, int value) {
  if (thread() == 0) {
    while (whet::seen(word) < value) whet::rest();
  }
  whet::barrier();
}

// Asks for a thread's row of a tile.
WHET_DEVICE void load_raw(const Arguments& a, Int64 head, Int64 tile, whet::Raw& out) {
  const Int64 row = tile * kRows + thread() / 4;
  const bool inside = row < kSeq;
  out.load(head_rows(a, head) + (inside ? row : 0) * SHAPE_X_STRIDE_S, thread() % 4, inside);
}

// A thread's row of a tile, centred and rotated but for the norm. Rows behind the last are zeros.
WHET_DEVICE void open_row(const Arguments& a, const Shared& s, Int64 head, Int64 row, int lane,
                          const whet::Raw& raw, whet::Row& out) {
  const bool inside = row < kSeq;
#pragma unroll
  for (int i = 0; i < kPiecesPerLane; ++i) {
#pragma unroll
    for (int e = 0; e < 8; ++e) out.value[i][e] = raw.value(i, e);
  }
  if (SHAPE_LSE_SHIFT) {
    float dot = 0.0f;
#pragma unroll
    for (int i = 0; i < kPiecesPerLane; ++i) {
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const int d = 32 * i + 8 * lane + e;
        if (kDim % 32 == 0 || d < kDim) dot += out.value[i][e] * s.channel[d];
      }
    }
    dot += whet::shuffle_xor<1>(dot);
    dot += whet::shuffle_xor<2>(dot);
    if (lane == 0 && inside) a.lse_shift[head * kSeq + row] = dot * a.logit_scale;
  }
#pragma unroll
  for (int i = 0; i < kPiecesPerLane; ++i) {
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const int d = 32 * i + 8 * lane + e;
      if (SHAPE_CENTER && (kDim % 32 == 0 || d < kDim)) out.value[i][e] -= s.channel[d];
    }
  }
  // Centring makes something of nothing: rows behind the last must not count in a largest magnitude.
  if (SHAPE_CENTER && kSeq % kRows != 0 && !inside) {
#pragma unroll
    for (int i = 0; i < kPiecesPerLane; ++i) {
#pragma unroll
      for (int e = 0; e < 8; ++e) out.value[i][e] = 0.0f;
    }
  }
  if (SHAPE_ROTATE) out.rotate(lane);
}

// The channels' numbers that open_row looks at.
WHET_DEVICE void load_channels(const Arguments& a, const Shared& s, Int64 head) {
  if (!SHAPE_CENTER && !SHAPE_LSE_SHIFT) return;
  const float* from = a.mean_in;
  if (SHAPE_CENTER == 1) {
    from = a.mean + head * kDim;
  } else if (SHAPE_CENTER == 2) {
    from += head * kDim;
  } else {
    from += (head / SHAPE_HEADS * SHAPE_MEAN_HEADS +
             head % SHAPE_HEADS / (SHAPE_HEADS / SHAPE_MEAN_HEADS)) *
            kDim;
  }
  whet::barrier();
  for (int d = thread(); d < kDim; d += kThreads) {
    s.channel[d] = SHAPE_CENTER == 1 ? *const_cast<const volatile float*>(from + d) : from[d];
  }
  whet::barrier();
}

}  // namespace
