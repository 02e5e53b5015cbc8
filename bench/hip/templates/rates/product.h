// Matrix instructions on accumulators of their own.
#pragma once
#include "rates/timed.h"

typedef int Int4 __attribute__((ext_vector_type(4)));
typedef int Int8 __attribute__((ext_vector_type(8)));

// D += A B, 32 x 32, BF16, as deep as one instruction goes.
WHET_DEVICE whet::Float16 bf16_product(whet::Uint4 a, whet::Uint4 b, whet::Float16 c) {
#if WHET_ARCH_gfx950
  return __builtin_amdgcn_mfma_f32_32x32x16_bf16(__builtin_bit_cast(whet::Bf16x8, a),
                                                 __builtin_bit_cast(whet::Bf16x8, b), c, 0, 0, 0);
#else
  return __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(
      __builtin_bit_cast(whet::Short4, whet::Uint2{a[0], a[1]}),
      __builtin_bit_cast(whet::Short4, whet::Uint2{b[0], b[1]}), c, 0, 0, 0);
#endif
}

// Sixteen products in four chains.
WHET_DEVICE void sixteen_products(whet::Float16 (&c)[4], whet::Uint4 a, whet::Uint4 b) {
  WHET_UNROLL
  for (int i = 0; i < 16; ++i) {
    c[i % 4] = bf16_product(a, b, c[i % 4]);
    WHET_PIN(c[i % 4]);
  }
}

WHET_DEVICE float total(const whet::Float16 (&c)[4]) {
  float sum = 0.0f;
  WHET_UNROLL
  for (int i = 0; i < 4; ++i) sum += c[i][0] + c[i][15];
  return sum;
}
