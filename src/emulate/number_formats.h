// The small floating-point formats of matrix instructions, bit by bit.
//
//   float x = DecodeFloat(NumberFormat::kE4m3, 0x38);            // 1.0
//   uint32_t b = EncodeFloat(NumberFormat::kE4m3, 448.0f);       // 0x7e
#pragma once

#include <cstdint>

namespace whet::emulator {

// The values are the format codes of the f8f6f4 instructions for 0..4; the rest is ours.
enum class NumberFormat {
  kE4m3 = 0,
  kE5m2 = 1,
  kE2m3 = 2,
  kE3m2 = 3,
  kE2m1 = 4,
  kE4m3Fnuz = 5,
  kE5m2Fnuz = 6,
  kBf16 = 7,
  kF16 = 8
};

// Bits of one element.
int FormatBits(NumberFormat format);

// The value of the low FormatBits bits.
float DecodeFloat(NumberFormat format, uint32_t bits);

// Rounds to nearest even. What is too large becomes infinity where the format has one, else NaN, else the largest value.
uint32_t EncodeFloat(NumberFormat format, float value);

// Element `index` of a little-endian packed array.
uint32_t PackedElement(const void* data, NumberFormat format, int index);

}  // namespace whet::emulator
