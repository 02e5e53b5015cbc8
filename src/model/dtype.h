// Element types.
//
//   DType t = *ParseDType("bf16");   DTypeName(t) == "bf16";   DTypeBytes(t) == 2;
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace whet {

// The numbers are what kernel sources see (WHET_BF16 and so on) and what keys hold: never renumber.
enum class DType : uint8_t {
  kF32 = 1,
  kF16 = 2,
  kBF16 = 3,
  kE4M3 = 4,      // OCP: bias 7, largest 448, NaN 0x7F
  kE4M3Fnuz = 5,  // AMD gfx942: bias 8, largest 240, NaN 0x80
  kE5M2 = 6,
  kI8 = 7,
  kU8 = 8,
  kI32 = 9,
  kI64 = 10,
};

absl::string_view DTypeName(
    DType dtype);  // "f32", "f16", "bf16", "e4m3", "e4m3fnuz", "e5m2", "i8", ...
absl::StatusOr<DType> ParseDType(absl::string_view name);  // InvalidArgument lists the known names
absl::StatusOr<DType> DTypeFromCode(int64_t code);  // InvalidArgument unless it is one of the above
int64_t DTypeBytes(DType dtype);

// Conversions of one element through its bytes, for references and checks; round to nearest even,
// NaN stays NaN (and is 0 as an integer), what is too large becomes infinity where the type has one
// and the largest value (e4m3, e4m3fnuz, integers) where not. Only the floating types and the
// integers up to 32 bits are exact through double.
double DecodeElement(DType dtype, const void* element);
void EncodeElement(DType dtype, double value, void* element);

}  // namespace whet
