#include "src/emulate/number_formats.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace whet::emulator {
namespace {

struct Layout {
  int exponent_bits;
  int mantissa_bits;
  int bias;
  enum {
    kIeee,
    kNanOnly,
    kFinite,
    kUnsignedZero
  } special;  // kUnsignedZero: FNUZ, where "minus zero" is the only NaN
};

Layout LayoutOf(NumberFormat format) {
  switch (format) {
    case NumberFormat::kE4m3:
      return {4, 3, 7, Layout::kNanOnly};
    case NumberFormat::kE5m2:
      return {5, 2, 15, Layout::kIeee};
    case NumberFormat::kE2m3:
      return {2, 3, 1, Layout::kFinite};
    case NumberFormat::kE3m2:
      return {3, 2, 3, Layout::kFinite};
    case NumberFormat::kE2m1:
      return {2, 1, 1, Layout::kFinite};
    case NumberFormat::kE4m3Fnuz:
      return {4, 3, 8, Layout::kUnsignedZero};
    case NumberFormat::kE5m2Fnuz:
      return {5, 2, 16, Layout::kUnsignedZero};
    case NumberFormat::kBf16:
      return {8, 7, 127, Layout::kIeee};
    case NumberFormat::kF16:
      return {5, 10, 15, Layout::kIeee};
  }
  return {8, 7, 127, Layout::kIeee};
}

uint32_t Overflow(const Layout& l, uint32_t sign) {
  const uint32_t exponent = (1u << l.exponent_bits) - 1;
  switch (l.special) {
    case Layout::kIeee:
      return sign | exponent << l.mantissa_bits;
    case Layout::kNanOnly:
      return sign | exponent << l.mantissa_bits | ((1u << l.mantissa_bits) - 1);
    case Layout::kUnsignedZero:
      return 1u << (l.exponent_bits + l.mantissa_bits);
    case Layout::kFinite:
      break;
  }
  return sign | exponent << l.mantissa_bits | ((1u << l.mantissa_bits) - 1);
}

}  // namespace

int FormatBits(NumberFormat format) {
  const Layout l = LayoutOf(format);
  return 1 + l.exponent_bits + l.mantissa_bits;
}

float DecodeFloat(NumberFormat format, uint32_t bits) {
  if (format == NumberFormat::kBf16) {
    const uint32_t wide = bits << 16;
    float value;
    std::memcpy(&value, &wide, sizeof(value));
    return value;
  }
  const Layout l = LayoutOf(format);
  const uint32_t mantissa_mask = (1u << l.mantissa_bits) - 1;
  const uint32_t exponent_mask = (1u << l.exponent_bits) - 1;
  const uint32_t mantissa = bits & mantissa_mask;
  const uint32_t exponent = bits >> l.mantissa_bits & exponent_mask;
  const bool negative = bits >> (l.mantissa_bits + l.exponent_bits) & 1;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  if (l.special == Layout::kIeee && exponent == exponent_mask) {
    if (mantissa != 0) return nan;
    return negative ? -std::numeric_limits<float>::infinity()
                    : std::numeric_limits<float>::infinity();
  }
  if (l.special == Layout::kNanOnly && exponent == exponent_mask && mantissa == mantissa_mask)
    return nan;
  if (l.special == Layout::kUnsignedZero && negative && exponent == 0 && mantissa == 0) return nan;
  const float magnitude =
      exponent == 0 ? std::ldexp(static_cast<float>(mantissa), 1 - l.bias - l.mantissa_bits)
                    : std::ldexp(static_cast<float>(mantissa | (1u << l.mantissa_bits)),
                                 static_cast<int>(exponent) - l.bias - l.mantissa_bits);
  return negative ? -magnitude : magnitude;
}

uint32_t EncodeFloat(NumberFormat format, float value) {
  const Layout l = LayoutOf(format);
  uint32_t sign = std::signbit(value) ? 1u << (l.exponent_bits + l.mantissa_bits) : 0;
  if (std::isnan(value)) {
    if (l.special == Layout::kIeee) return Overflow(l, sign) | 1u << (l.mantissa_bits - 1);
    return Overflow(l, sign);
  }
  if (std::isinf(value)) return Overflow(l, sign);
  const double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude == 0) return l.special == Layout::kUnsignedZero ? 0 : sign;
  int exponent;
  std::frexp(magnitude, &exponent);
  exponent -= 1;
  if (exponent < 1 - l.bias) exponent = 1 - l.bias;
  // nearbyint rounds to nearest even in the default mode.
  const auto mantissa =
      static_cast<int64_t>(std::nearbyint(std::ldexp(magnitude, l.mantissa_bits - exponent)));
  const int64_t code =
      mantissa + static_cast<int64_t>(exponent + l.bias - 1) * (int64_t{1} << l.mantissa_bits);
  if (code == 0) return l.special == Layout::kUnsignedZero ? 0 : sign;
  int64_t largest = (int64_t{1} << (l.exponent_bits + l.mantissa_bits)) - 1;
  if (l.special == Layout::kIeee)
    largest = (((int64_t{1} << l.exponent_bits) - 1) << l.mantissa_bits) - 1;
  if (l.special == Layout::kNanOnly) largest -= 1;
  if (code > largest) return Overflow(l, sign);
  return sign | static_cast<uint32_t>(code);
}

uint32_t PackedElement(const void* data, NumberFormat format, int index) {
  const int bits = FormatBits(format);
  const auto* const bytes = static_cast<const uint8_t*>(data);
  if (bits == 8) return bytes[index];
  if (bits == 16) return bytes[2 * index] | static_cast<uint32_t>(bytes[2 * index + 1]) << 8;
  uint32_t value = 0;
  for (int b = 0; b < bits; ++b) {
    const int at = index * bits + b;
    value |= static_cast<uint32_t>(bytes[at / 8] >> at % 8 & 1) << b;
  }
  return value;
}

}  // namespace whet::emulator
