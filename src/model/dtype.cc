#include "src/model/dtype.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace whet {
namespace {

struct Names {
  DType dtype;
  absl::string_view name;
  int64_t bytes;
};

constexpr std::array<Names, 10> kNames = {{
    {DType::kF32, "f32", 4},
    {DType::kF16, "f16", 2},
    {DType::kBF16, "bf16", 2},
    {DType::kE4M3, "e4m3", 1},
    {DType::kE4M3Fnuz, "e4m3fnuz", 1},
    {DType::kE5M2, "e5m2", 1},
    {DType::kI8, "i8", 1},
    {DType::kU8, "u8", 1},
    {DType::kI32, "i32", 4},
    {DType::kI64, "i64", 8},
}};

const Names& Find(DType dtype) { return kNames[static_cast<size_t>(dtype) - 1]; }

// A floating type of at most 16 bits, by its layout: sign, exponent, mantissa from the top.
struct SmallFloat {
  int bits;
  int mantissa;
  int bias;
  uint32_t largest;  // bits of the largest finite value
  uint32_t nan;
  bool infinity;  // largest + 1 is infinity; without it, too large becomes the largest
  bool negative_zero;
};

constexpr SmallFloat kF16{16, 10, 15, 0x7BFF, 0x7E00, true, true};
constexpr SmallFloat kBF16{16, 7, 127, 0x7F7F, 0x7FC0, true, true};
constexpr SmallFloat kE4M3{8, 3, 7, 0x7E, 0x7F, false, true};
constexpr SmallFloat kE4M3Fnuz{8, 3, 8, 0x7F, 0x80, false, false};
constexpr SmallFloat kE5M2{8, 2, 15, 0x7B, 0x7E, true, true};

const SmallFloat* SmallFloatOf(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return &kF16;
    case DType::kBF16:
      return &kBF16;
    case DType::kE4M3:
      return &kE4M3;
    case DType::kE4M3Fnuz:
      return &kE4M3Fnuz;
    case DType::kE5M2:
      return &kE5M2;
    default:
      return nullptr;
  }
}

double Decode(const SmallFloat& type, uint32_t bits) {
  const uint32_t sign_bit = 1u << (type.bits - 1);
  const uint32_t magnitude = bits & (sign_bit - 1);
  const bool negative = (bits & sign_bit) != 0;
  if (!type.negative_zero && bits == type.nan) return std::numeric_limits<double>::quiet_NaN();
  if (magnitude > type.largest) {
    if (!type.infinity || magnitude != type.largest + 1) {
      return std::numeric_limits<double>::quiet_NaN();
    }
    const double infinity = std::numeric_limits<double>::infinity();
    return negative ? -infinity : infinity;
  }
  const uint32_t one = 1u << type.mantissa;
  const int exponent = static_cast<int>(magnitude >> type.mantissa);
  const uint32_t fraction = magnitude & (one - 1);
  const double value = exponent == 0
                           ? std::scalbn(fraction, 1 - type.bias - type.mantissa)
                           : std::scalbn(one + fraction, exponent - type.bias - type.mantissa);
  return negative ? -value : value;
}

uint32_t Encode(const SmallFloat& type, double value) {
  if (std::isnan(value)) return type.nan;
  const uint32_t sign = std::signbit(value) ? 1u << (type.bits - 1) : 0;
  const double size = std::fabs(value);
  const uint32_t beyond = type.infinity ? type.largest + 1 : type.largest;
  if (std::isinf(size) || size > 2 * Decode(type, type.largest)) return sign | beyond;
  // In units of the last place the value is below 2^(mantissa + 1), so it rounds exactly, once;
  // and the sum below carries into the exponent by itself.
  const int exponent = size == 0 ? 1 - type.bias : std::max(std::ilogb(size), 1 - type.bias);
  const double units = std::nearbyint(std::scalbn(size, type.mantissa - exponent));
  const uint32_t magnitude = (static_cast<uint32_t>(exponent + type.bias - 1) << type.mantissa) +
                             static_cast<uint32_t>(units);
  if (magnitude == 0 && !type.negative_zero) return 0;
  return sign | std::min(magnitude, beyond);
}

template <typename Integer>
void EncodeInteger(double value, void* element) {
  // Compared as doubles, where 2^63 is exact and INT64_MAX is not.
  const double rounded = std::isnan(value) ? 0 : std::nearbyint(value);
  const double low = static_cast<double>(std::numeric_limits<Integer>::min());
  const double past = std::scalbn(1.0, std::numeric_limits<Integer>::digits);
  const Integer integer = rounded < low     ? std::numeric_limits<Integer>::min()
                          : rounded >= past ? std::numeric_limits<Integer>::max()
                                            : static_cast<Integer>(rounded);
  std::memcpy(element, &integer, sizeof(integer));
}

template <typename T>
double DecodePlain(const void* element) {
  T value;
  std::memcpy(&value, element, sizeof(value));
  return static_cast<double>(value);
}

}  // namespace

absl::string_view DTypeName(DType dtype) { return Find(dtype).name; }

int64_t DTypeBytes(DType dtype) { return Find(dtype).bytes; }

absl::StatusOr<DType> ParseDType(absl::string_view name) {
  for (const Names& known : kNames) {
    if (known.name == name) return known.dtype;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown dtype \"", absl::CEscape(name), "\": expected one of ",
      absl::StrJoin(kNames, ", ",
                    [](std::string* out, const Names& n) { absl::StrAppend(out, n.name); })));
}

absl::StatusOr<DType> DTypeFromCode(int64_t code) {
  if (code >= 1 && code <= static_cast<int64_t>(kNames.size())) return static_cast<DType>(code);
  return absl::InvalidArgumentError(
      absl::StrCat("unknown dtype code ", code, ": expected 1..", kNames.size()));
}

double DecodeElement(DType dtype, const void* element) {
  if (const SmallFloat* type = SmallFloatOf(dtype)) {
    if (type->bits == 8) return Decode(*type, *static_cast<const uint8_t*>(element));
    uint16_t bits;
    std::memcpy(&bits, element, sizeof(bits));
    return Decode(*type, bits);
  }
  switch (dtype) {
    case DType::kI8:
      return DecodePlain<int8_t>(element);
    case DType::kU8:
      return DecodePlain<uint8_t>(element);
    case DType::kI32:
      return DecodePlain<int32_t>(element);
    case DType::kI64:
      return DecodePlain<int64_t>(element);
    default:
      return DecodePlain<float>(element);
  }
}

void EncodeElement(DType dtype, double value, void* element) {
  if (const SmallFloat* type = SmallFloatOf(dtype)) {
    const uint32_t bits = Encode(*type, value);
    if (type->bits == 8) {
      *static_cast<uint8_t*>(element) = static_cast<uint8_t>(bits);
    } else {
      const uint16_t narrow = static_cast<uint16_t>(bits);
      std::memcpy(element, &narrow, sizeof(narrow));
    }
    return;
  }
  switch (dtype) {
    case DType::kI8:
      return EncodeInteger<int8_t>(value, element);
    case DType::kU8:
      return EncodeInteger<uint8_t>(value, element);
    case DType::kI32:
      return EncodeInteger<int32_t>(value, element);
    case DType::kI64:
      return EncodeInteger<int64_t>(value, element);
    default: {
      const float narrow = static_cast<float>(value);
      std::memcpy(element, &narrow, sizeof(narrow));
    }
  }
}

}  // namespace whet
