// The scale for a largest magnitude, and elements as bytes.
#pragma once

#include "common/gpu.h"
#include "common/gpu_fp8.h"

namespace whet {

// Four bytes, the first in the low bits.
WHET_DEVICE unsigned encode4(float a, float b, float c, float d) {
#if WHET_PLATFORM_CUDA && __CUDA_ARCH__ >= 890
  if (SHAPE_TO == WHET_E4M3) {
    unsigned short low, high;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
    return static_cast<unsigned>(low) | static_cast<unsigned>(high) << 16;
  }
#elif WHET_PLATFORM_HIP && (defined(__gfx950__) || defined(__gfx942__))
#if defined(__gfx950__)
  if (SHAPE_TO == WHET_E4M3) {
#else
  if (SHAPE_TO == WHET_E4M3FNUZ) {
#endif
    int word = __builtin_amdgcn_cvt_pk_fp8_f32(a, b, 0, false);
    word = __builtin_amdgcn_cvt_pk_fp8_f32(c, d, word, true);
    return static_cast<unsigned>(word);
  }
#endif
  return fp8_from_float<SHAPE_TO>(a) | fp8_from_float<SHAPE_TO>(b) << 8 |
         fp8_from_float<SHAPE_TO>(c) << 16 | fp8_from_float<SHAPE_TO>(d) << 24;
}

// The scale for a largest magnitude (multiplier included), before the multiplier is taken out of it.
WHET_DEVICE float scale_for(float largest, float multiplier) {
  if (!(largest > 0.0f)) return multiplier;  // so that it is written as 1
  const float limit = Fp8Format<SHAPE_TO>::kLargest;
  float scale = largest / limit;
  if (SHAPE_POWER_OF_TWO) {
    // The least power of two 2^k with largest <= limit 2^k, on the bits: a mantissa above the limit's carries.
    const unsigned limit_bits = float_bits(limit);
    const unsigned carried = float_bits(largest) + (0x7fffffu - (limit_bits & 0x7fffffu));
    const int exponent = static_cast<int>(carried >> 23) - static_cast<int>(limit_bits >> 23) + 127;
    scale = float_from_bits(static_cast<unsigned>(exponent < 7 ? 7 : exponent) << 23);
  }
  const float least = float_from_bits(7u << 23);  // 2^-120
  return scale > least ? scale : least;
}

}  // namespace whet
