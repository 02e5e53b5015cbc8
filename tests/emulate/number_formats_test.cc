#include "src/emulate/number_formats.h"

#include <gtest/gtest.h>

#include <cmath>

namespace whet::emulator {
namespace {

TEST(NumberFormats, KnownCodes) {
  struct Case {
    NumberFormat format;
    uint32_t code;
    float value;
  };
  const Case cases[] = {
      {NumberFormat::kE4m3, 0x38, 1.0f},       {NumberFormat::kE4m3, 0x7e, 448.0f},
      {NumberFormat::kE4m3, 0x01, 0x1p-9f},    {NumberFormat::kE4m3Fnuz, 0x40, 1.0f},
      {NumberFormat::kE4m3Fnuz, 0x7f, 240.0f}, {NumberFormat::kE4m3Fnuz, 0x01, 0x1p-10f},
      {NumberFormat::kE5m2, 0x3c, 1.0f},       {NumberFormat::kE5m2, 0x7b, 57344.0f},
      {NumberFormat::kE5m2Fnuz, 0x40, 1.0f},   {NumberFormat::kE2m1, 0x7, 6.0f},
      {NumberFormat::kE2m1, 0x1, 0.5f},        {NumberFormat::kE2m3, 0x1f, 7.5f},
      {NumberFormat::kE3m2, 0x1f, 28.0f},      {NumberFormat::kBf16, 0x3f80, 1.0f},
      {NumberFormat::kF16, 0x7bff, 65504.0f},  {NumberFormat::kE4m3, 0xb8, -1.0f},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(DecodeFloat(c.format, c.code), c.value);
    EXPECT_EQ(EncodeFloat(c.format, c.value), c.code);
  }
}

TEST(NumberFormats, EveryCodeSurvives) {
  for (int f = 0; f <= 8; ++f) {
    const auto format = static_cast<NumberFormat>(f);
    for (uint32_t code = 0; code < 1u << FormatBits(format); ++code) {
      const float value = DecodeFloat(format, code);
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(DecodeFloat(format, EncodeFloat(format, value))));
      } else {
        EXPECT_EQ(EncodeFloat(format, value), code) << f;
      }
    }
  }
}

TEST(NumberFormats, TiesGoToEvenAndOverflowIsNotSaturated) {
  EXPECT_EQ(EncodeFloat(NumberFormat::kE4m3, 1.0625f), 0x38u);
  EXPECT_EQ(EncodeFloat(NumberFormat::kE4m3, 1.1875f), 0x3au);
  EXPECT_EQ(EncodeFloat(NumberFormat::kE4m3, 464.0f), 0x7eu);
  EXPECT_EQ(EncodeFloat(NumberFormat::kE4m3, 465.0f), 0x7fu);
  EXPECT_EQ(EncodeFloat(NumberFormat::kE4m3Fnuz, 1e9f), 0x80u);
  EXPECT_EQ(EncodeFloat(NumberFormat::kE2m1, 100.0f), 0x7u);
  EXPECT_EQ(EncodeFloat(NumberFormat::kBf16, 1.00390625f), 0x3f80u);
}

TEST(NumberFormats, PackedFourAndSixBits) {
  const unsigned char bytes[] = {0x21, 0x43, 0x65};
  EXPECT_EQ(PackedElement(bytes, NumberFormat::kE2m1, 3), 4u);
  EXPECT_EQ(PackedElement(bytes, NumberFormat::kE2m3, 1), (0x4321u >> 6) & 63u);
}

}  // namespace
}  // namespace whet::emulator
