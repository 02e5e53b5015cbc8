// For BF16 attention whose products weigh hidden keys with zero: a value that is not finite makes 0 * v a NaN in rows that must not see it.
// Such outputs are computed again, slowly, over the keys that the row sees. What a visible value made NaN stays so.
#pragma once
#include "common/amd.h"

namespace whet {

struct SeenRow {
  const unsigned short* q;
  const unsigned short* k;
  const unsigned short* v;
  Int64 k_stride;
  Int64 v_stride;
  Int64 visible;    // keys, from the first
  int width;        // of q and k
  float scale;      // of the logits, in powers of two, with its sign
  float reference;  // what the exponents are relative to
  float total;      // of the weights
};

WHET_DEVICE unsigned short output_over_seen(const SeenRow& row, int column) {
  float sum = 0.0f;
#pragma clang loop unroll(disable)
  for (Int64 j = 0; j < row.visible; ++j) {
    float score = 0.0f;
#pragma clang loop unroll(disable)
    for (int d = 0; d < row.width; ++d)
      score += float_from_bf16(row.q[d]) * float_from_bf16(row.k[j * row.k_stride + d]);
    sum += exp2_fast(score * row.scale - row.reference) *
           float_from_bf16(row.v[j * row.v_stride + column]);
  }
  return bf16_from_float(sum / row.total);
}

// Whether a BF16 word of a pair is a NaN.
WHET_DEVICE bool low_is_nan(unsigned pair) { return (pair & 0x7fffu) > 0x7f80u; }
WHET_DEVICE bool high_is_nan(unsigned pair) { return (pair >> 16 & 0x7fffu) > 0x7f80u; }

}  // namespace whet
