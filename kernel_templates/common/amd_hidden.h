// Attention rows computed again from the definition, over the keys that they see. Matrix instructions multiply every value of a tile by
// some weight, and a value that is not finite by the weight 0 too, if the key is hidden: 0 * v is then a NaN in rows that must not see it.
// Kernels that find a NaN where the row itself is none ask here, after the loop and outside its registers; it is slow.
//
//   const SeenRow row = {...};  // has Int64 visible, float weight(Int64 key), float value(Int64 key, int column)
//   to[column] = bf16_from_float(seen_output(row, column));
#pragma once
#include "common/amd.h"

namespace whet {

// The sum of a row's weights; 0 where it sees no key.
template <class Row>
WHET_DEVICE float seen_total(const Row& row) {
  float total = 0.0f;
#pragma clang loop unroll(disable)
  for (Int64 j = 0; j < row.visible; ++j) total += row.weight(j);
  return total;
}

// One output. NaN if a visible value is; 0 where the row sees no key.
template <class Row>
WHET_DEVICE float seen_output(const Row& row, int column) {
  float total = 0.0f, output = 0.0f;
#pragma clang loop unroll(disable)
  for (Int64 j = 0; j < row.visible; ++j) {
    const float weight = row.weight(j);
    total += weight;
    output += weight * row.value(j, column);
  }
  return total == 0.0f ? 0.0f : output / total;
}

// A row of BF16 attention.
struct SeenRow {
  const unsigned short* q;
  const unsigned short* k;  // of the head
  const unsigned short* v;  // of the head
  Int64 k_stride;
  Int64 v_stride;
  Int64 visible;    // keys, from the first; none if negative
  int width;        // of q and k
  float scale;      // of the logits, in powers of two, with its sign
  float reference;  // what the exponents are relative to

  __device__ float weight(Int64 key) const {
    float score = 0.0f;
#pragma clang loop unroll(disable)
    for (int d = 0; d < width; ++d)
      score += float_from_bf16(q[d]) * float_from_bf16(k[key * k_stride + d]);
    return exp2_fast(score * scale - reference);
  }
  __device__ float value(Int64 key, int column) const {
    return float_from_bf16(v[key * v_stride + column]);
  }
};

// Whether a BF16 word of a pair is a NaN.
WHET_DEVICE bool low_is_nan(unsigned pair) { return (pair & 0x7fffu) > 0x7f80u; }
WHET_DEVICE bool high_is_nan(unsigned pair) { return (pair >> 16 & 0x7fffu) > 0x7f80u; }

}  // namespace whet
