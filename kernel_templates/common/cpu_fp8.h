// e4m3 bytes on a CPU, by arithmetic: no instruction set beyond what common/cpu_vec.h needs.
//
//   float x = Fp8ToF32<WHET_E4M3>(byte);
//   uint8_t b = Fp8FromF32<WHET_E4M3>(x);        // to nearest even; too large becomes the largest, NaN stays NaN
#ifndef WHET_COMMON_CPU_FP8_H_
#define WHET_COMMON_CPU_FP8_H_

#include "common/cpu_block.h"

// e4m3: OCP, bias 7, largest 448 (0x7e), NaN 0x7f and 0xff. e4m3fnuz: bias 8, largest 240 (0x7f), NaN 0x80, no -0.
template <int kDtype>
struct Fp8Format;
template <>
struct Fp8Format<WHET_E4M3> {
  static constexpr int kBias = 7;
  static constexpr float kLargest = 448.0f;
  static constexpr float kSmallest = 0x1p-9f;  // subnormal step
};
template <>
struct Fp8Format<WHET_E4M3FNUZ> {
  static constexpr int kBias = 8;
  static constexpr float kLargest = 240.0f;
  static constexpr float kSmallest = 0x1p-10f;
};

template <int kDtype>
WHET_CPU_FN float Fp8ToF32(uint8_t byte) {
  const uint32_t magnitude = byte & 0x7fu;
  const bool nan = kDtype == WHET_E4M3 ? magnitude == 0x7fu : byte == 0x80u;
  // Normal: the exponent field moves over; subnormal: a count of steps.
  const uint32_t normal = (magnitude << 20) + ((127u - Fp8Format<kDtype>::kBias) << 23);
  const float small = static_cast<float>(magnitude) * Fp8Format<kDtype>::kSmallest;
  uint32_t bits;
  __builtin_memcpy(&bits, &small, sizeof(bits));
  bits = magnitude < 8u ? bits : normal;
  bits |= static_cast<uint32_t>(byte & 0x80u) << 24;
  bits = nan ? 0x7fc00000u : bits;
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

template <int kDtype>
WHET_CPU_FN uint8_t Fp8FromF32(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  const uint32_t sign = bits >> 24 & 0x80u;
  bits &= 0x7fffffffu;
  const bool nan = bits > 0x7f800000u;
  float magnitude;
  __builtin_memcpy(&magnitude, &bits, sizeof(magnitude));
  magnitude = magnitude < Fp8Format<kDtype>::kLargest ? magnitude : Fp8Format<kDtype>::kLargest;
  __builtin_memcpy(&bits, &magnitude, sizeof(bits));
  // Normal: round the 20 bits below the mantissa away; a carry may run into the exponent.
  const uint32_t normal =
      ((bits + 0x7ffffu + (bits >> 20 & 1u)) >> 20) - ((127u - Fp8Format<kDtype>::kBias) << 3);
  // Subnormal: adding 1.5 * 2^23 steps leaves the nearest count of steps in the low bits of the sum.
  const float steps = magnitude * (1.0f / Fp8Format<kDtype>::kSmallest);
  const float shifted = (steps < 8.0f ? steps : 8.0f) + 12582912.0f;
  uint32_t count;
  __builtin_memcpy(&count, &shifted, sizeof(count));
  const uint32_t byte = steps < 8.0f ? count & 0xfu : normal;
  if (kDtype == WHET_E4M3) return static_cast<uint8_t>(nan ? 0x7fu : byte | sign);
  return static_cast<uint8_t>(nan ? 0x80u : (byte == 0u ? 0u : byte | sign));
}

#endif  // WHET_COMMON_CPU_FP8_H_
