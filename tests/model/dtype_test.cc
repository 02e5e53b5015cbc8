#include "src/model/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace whet {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

uint32_t Encode(DType dtype, double value) {
  uint32_t bits = 0;
  EncodeElement(dtype, value, &bits);
  return bits;
}

double Decode(DType dtype, uint32_t bits) { return DecodeElement(dtype, &bits); }

struct Named {
  DType dtype;
  int number;
  std::string name;
  int64_t bytes;
};

// The numbers and names are persisted: this table may only grow.
const std::vector<Named> kAll = {
    {DType::kF32, 1, "f32", 4},
    {DType::kF16, 2, "f16", 2},
    {DType::kBF16, 3, "bf16", 2},
    {DType::kE4M3, 4, "e4m3", 1},
    {DType::kE4M3Fnuz, 5, "e4m3fnuz", 1},
    {DType::kE5M2, 6, "e5m2", 1},
    {DType::kI8, 7, "i8", 1},
    {DType::kU8, 8, "u8", 1},
    {DType::kI32, 9, "i32", 4},
    {DType::kI64, 10, "i64", 8},
};

TEST(DTypeTest, NamesNumbersAndSizes) {
  for (const Named& named : kAll) {
    EXPECT_EQ(static_cast<int>(named.dtype), named.number);
    EXPECT_EQ(DTypeName(named.dtype), named.name);
    EXPECT_EQ(DTypeBytes(named.dtype), named.bytes);
    EXPECT_EQ(*ParseDType(named.name), named.dtype);
  }
}

TEST(DTypeTest, AnUnknownNameListsTheKnownOnes) {
  const absl::Status status = ParseDType("BF16").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  for (const Named& named : kAll) {
    EXPECT_NE(status.message().find(named.name), absl::string_view::npos) << status;
  }
}

struct Fixed {
  DType dtype;
  double value;
  uint32_t bits;
};

TEST(DTypeTest, KnownBits) {
  const std::vector<Fixed> cases = {
      {DType::kF32, 1.0, 0x3F800000},    {DType::kF32, -0.0, 0x80000000},
      {DType::kF16, 1.0, 0x3C00},        {DType::kF16, 65504.0, 0x7BFF},
      {DType::kF16, -kInfinity, 0xFC00}, {DType::kF16, 0x1p-24, 0x0001},
      {DType::kBF16, 1.0, 0x3F80},       {DType::kBF16, -2.0, 0xC000},
      {DType::kBF16, 0x1p-133, 0x0001},  {DType::kE4M3, 1.0, 0x38},
      {DType::kE4M3, 448.0, 0x7E},       {DType::kE4M3, -448.0, 0xFE},
      {DType::kE4M3, 0x1p-9, 0x01},      {DType::kE4M3, -0.0, 0x80},
      {DType::kE4M3Fnuz, 1.0, 0x40},     {DType::kE4M3Fnuz, 240.0, 0x7F},
      {DType::kE4M3Fnuz, 0x1p-10, 0x01}, {DType::kE5M2, 1.0, 0x3C},
      {DType::kE5M2, 57344.0, 0x7B},     {DType::kE5M2, kInfinity, 0x7C},
      {DType::kI8, -128, 0x80},          {DType::kU8, 255, 0xFF},
      {DType::kI32, -1, 0xFFFFFFFF},
  };
  for (const Fixed& c : cases) {
    EXPECT_EQ(Encode(c.dtype, c.value), c.bits) << DTypeName(c.dtype) << " " << c.value;
    EXPECT_EQ(Decode(c.dtype, c.bits), c.value) << DTypeName(c.dtype) << " " << c.value;
  }
}

TEST(DTypeTest, RoundsToNearestEvenAndSaturates) {
  const std::vector<Fixed> cases = {
      {DType::kBF16, 1.0 + 0x1p-8, 0x3F80},            // half way, even below
      {DType::kBF16, 1.0 + 0x3p-8, 0x3F82},            // half way, even above
      {DType::kBF16, 1.0 + 0x1p-8 + 0x1p-40, 0x3F81},  // just above half: once, not twice
      {DType::kBF16, 3.4e38 * 1.01, 0x7F80},           // past the largest: infinity
      {DType::kF16, 65519.9, 0x7BFF},
      {DType::kF16, 65520.0, 0x7C00},
      {DType::kF16, 0x1p-25, 0x0000},
      {DType::kF16, 0x1.8p-25, 0x0001},
      {DType::kE4M3, 464.0, 0x7E},
      {DType::kE4M3, 1e300, 0x7E},
      {DType::kE4M3, -kInfinity, 0xFE},
      {DType::kE4M3Fnuz, 1e300, 0x7F},
      {DType::kE4M3Fnuz, -0.0, 0x00},  // no negative zero
      {DType::kE4M3Fnuz, -1e-30, 0x00},
      {DType::kE5M2, 1e300, 0x7C},
      {DType::kI8, 2.5, 2},
      {DType::kI8, 1000, 0x7F},
      {DType::kU8, -3, 0},
      {DType::kI32, 1e300, 0x7FFFFFFF},
      {DType::kI32, -kInfinity, 0x80000000},
  };
  for (const Fixed& c : cases) {
    EXPECT_EQ(Encode(c.dtype, c.value), c.bits) << DTypeName(c.dtype) << " " << c.value;
  }
}

TEST(DTypeTest, NotANumberStaysSo) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kE4M3, DType::kE4M3Fnuz, DType::kE5M2}) {
    EXPECT_TRUE(std::isnan(Decode(dtype, Encode(dtype, nan)))) << DTypeName(dtype);
  }
  EXPECT_EQ(Encode(DType::kE4M3, nan), 0x7Fu);
  EXPECT_EQ(Encode(DType::kE4M3Fnuz, nan), 0x80u);
  EXPECT_EQ(Encode(DType::kI32, nan), 0u);
}

// Every bit pattern of the small types comes back, and neighbours are in order.
TEST(DTypeTest, EveryPatternGoesThereAndBack) {
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kE4M3, DType::kE4M3Fnuz, DType::kE5M2,
                            DType::kI8, DType::kU8}) {
    const uint32_t patterns = 1u << (8 * DTypeBytes(dtype));
    for (uint32_t bits = 0; bits < patterns; ++bits) {
      const double value = Decode(dtype, bits);
      if (!std::isnan(value)) {
        ASSERT_EQ(Encode(dtype, value), bits) << DTypeName(dtype);
      }
      const double next = Decode(dtype, bits + 1);
      if (bits + 1 < patterns / 2 && !std::isnan(next)) {
        ASSERT_LT(value, next) << DTypeName(dtype);
      }
    }
  }
}

TEST(DTypeTest, LargeIntegersSaturateAndOthersAreKept) {
  int64_t element = 0;
  for (const double value : {0.0, -5.0, 0x1p52, -0x1p63}) {
    EncodeElement(DType::kI64, value, &element);
    EXPECT_EQ(DecodeElement(DType::kI64, &element), value);
  }
  EncodeElement(DType::kI64, 0x1p63, &element);
  EXPECT_EQ(element, std::numeric_limits<int64_t>::max());
}

}  // namespace
}  // namespace whet
