// The rotation of one vector in shared memory by one warp, without its norm.
#pragma once

#include "quantize_fp8/sm90/open.h"

namespace whet {
namespace quantize {

template <int kFirst, int kLast>
WHET_DEVICE void butterflies_in_shared(float* v, int lane) {
#pragma unroll 1
  for (int stride = kFirst; stride < kLast; stride *= 2) {
    for (int i = lane; i < kDim / 2; i += 32) {
      const int x = i / stride * 2 * stride + i % stride;
      const float first = v[x], second = v[x + stride];
      v[x] = first + second;
      v[x + stride] = first - second;
    }
    __syncwarp();
  }
}

// The signs, and each block of 16 alone: what tensor cores do to a row.
WHET_DEVICE void rotate_blocks(float* v, int lane) {
  for (int d = lane; d < kDim; d += 32) {
    if (negative(d)) v[d] = -v[d];
  }
  __syncwarp();
  butterflies_in_shared<1, 16>(v, lane);
}

// The rest.
WHET_DEVICE void rotate_over_blocks(float* v, int lane) {
  butterflies_in_shared<16, kDim == 192 ? 64 : kDim>(v, lane);
  if (kDim != 192) return;
  for (int i = lane; i < 64; i += 32) {
    const float part = (v[i] + v[64 + i] + v[128 + i]) * (2.0f / 3.0f);
    v[i] -= part;
    v[64 + i] -= part;
    v[128 + i] -= part;
  }
  __syncwarp();
}

}  // namespace quantize
}  // namespace whet
