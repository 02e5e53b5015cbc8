// e4m3 bytes on a GPU by plain arithmetic, for kernels that must run where no conversion instruction exists.
//
//   float x = whet::float_from_fp8<WHET_E4M3>(byte);
//   unsigned b = whet::fp8_from_float<WHET_E4M3>(x);     // to nearest even; too large becomes the largest, NaN stays NaN
#pragma once

#include "common/gpu.h"

namespace whet {

// e4m3: OCP, bias 7, largest 448 (0x7e), NaN 0x7f and 0xff. e4m3fnuz: bias 8, largest 240 (0x7f), NaN 0x80, no -0.
template <int kDtype>
struct Fp8Format {
  static_assert(kDtype == WHET_E4M3 || kDtype == WHET_E4M3FNUZ, "e4m3 or e4m3fnuz");
  static constexpr unsigned kBias = kDtype == WHET_E4M3 ? 7u : 8u;
  static constexpr float kLargest = kDtype == WHET_E4M3 ? 448.0f : 240.0f;
  static constexpr float kSteps = kDtype == WHET_E4M3 ? 512.0f : 1024.0f;  // subnormal steps in 1
};

template <int kDtype>
WHET_DEVICE float float_from_fp8(unsigned byte) {
  const unsigned magnitude = byte & 0x7fu;
  const bool nan = kDtype == WHET_E4M3 ? magnitude == 0x7fu : byte == 0x80u;
  // Normal: the exponent field moves over; subnormal: a count of steps.
  const float normal =
      float_from_bits((magnitude << 20) + ((127u - Fp8Format<kDtype>::kBias) << 23));
  const float small = static_cast<float>(magnitude) * (1.0f / Fp8Format<kDtype>::kSteps);
  const unsigned bits = float_bits(magnitude < 8u ? small : normal) | (byte & 0x80u) << 24;
  return float_from_bits(nan ? 0x7fc00000u : bits);
}

template <int kDtype>
WHET_DEVICE unsigned fp8_from_float(float x) {
  const unsigned sign = float_bits(x) >> 24 & 0x80u;
  unsigned bits = float_bits(x) & 0x7fffffffu;
  const bool nan = bits > 0x7f800000u;
  float magnitude = float_from_bits(bits);
  magnitude = magnitude < Fp8Format<kDtype>::kLargest ? magnitude : Fp8Format<kDtype>::kLargest;
  bits = float_bits(magnitude);
  // Normal: round the 20 bits below the mantissa away; a carry may run into the exponent.
  const unsigned normal =
      ((bits + 0x7ffffu + (bits >> 20 & 1u)) >> 20) - ((127u - Fp8Format<kDtype>::kBias) << 3);
  // Subnormal: adding 1.5 * 2^23 leaves the nearest count of steps in the low bits of the sum.
  const float steps = magnitude * Fp8Format<kDtype>::kSteps;
  const unsigned count = float_bits((steps < 8.0f ? steps : 8.0f) + 12582912.0f) & 0xfu;
  const unsigned byte = steps < 8.0f ? count : normal;
  if (kDtype == WHET_E4M3) return nan ? 0x7fu : byte | sign;
  return nan ? 0x80u : (byte == 0u ? 0u : byte | sign);
}

}  // namespace whet
