// The conversions and byte operations of FP8 kernels as the emulator performs them, against the formats and the documentation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "src/emulate/number_formats.h"
#include "src/emulate/wave_program.h"

namespace whet::emulator {
namespace {

constexpr size_t kWords = 10;

// Per lane: two floats in, kWords words out.
constexpr char kKernel[] = R"(
typedef short Pair __attribute__((ext_vector_type(2)));
typedef float Sixteen __attribute__((ext_vector_type(16)));
typedef int Eight __attribute__((ext_vector_type(8)));
extern "C" __global__ void test_kernel(const float* in, unsigned* out) {
  const int t = static_cast<int>(__builtin_amdgcn_workitem_id_x());
  const float a = in[2 * t], b = in[2 * t + 1];
  unsigned* const to = out + 10 * t;
  to[0] = static_cast<unsigned>(__builtin_amdgcn_cvt_pk_fp8_f32(a, b, 0x55667788, false));
  to[1] = static_cast<unsigned>(__builtin_amdgcn_cvt_pk_fp8_f32(a, b, 0x55667788, true));
  to[2] = __builtin_bit_cast(unsigned, __builtin_amdgcn_cvt_scalef32_pk_fp8_f32(
                                           Pair{1, 2}, a, b, 16.0f, true));
  to[3] = __builtin_amdgcn_cvt_pk_u8_f32(a, 0, 0x11223344u);
  to[4] = __builtin_amdgcn_cvt_pk_u8_f32(a, 3, 0x11223344u);
  to[5] = __builtin_bit_cast(unsigned, __builtin_amdgcn_cvt_pknorm_u16(a, b));
  to[6] = __builtin_amdgcn_perm(0x08070605u, 0x04030201u, 0x07050301u);
  to[7] = __builtin_amdgcn_perm(0x80000000u, 0x00008000u, 0x0d0c0908u);
  // Ones times ones over 64 elements of k: literal zeros leave the scales out, anything else applies them.
  Eight ones;
  for (int i = 0; i < 8; ++i) ones[i] = 0x38383838;
  const Sixteen plain = __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(ones, ones, Sixteen{}, 0, 0, 0, 0, 0, 0);
  const int exponent = 127 - t / 32;
  const Sixteen scaled = __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(ones, ones, Sixteen{}, 0, 0, 0, 127, 0, exponent);
  to[8] = __builtin_bit_cast(unsigned, plain[5]);
  to[9] = __builtin_bit_cast(unsigned, scaled[5]);
}
)";

std::vector<float> Inputs() {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> in = {0.0f,    -0.0f,   1.0f,    -1.0f,    448.0f, 463.9f,  464.0f, 480.0f,
                           -448.0f, -500.0f, 240.0f,  247.9f,   248.0f, 256.0f,  inf,    -inf,
                           nan,     1e-9f,   0x1p-9f, 0x1p-10f, 0.5f,   1.5f,    2.5f,   126.4f,
                           126.5f,  127.5f,  254.5f,  255.5f,   300.0f, -3.0f,   0.25f,  0.75f,
                           0.4999f, 0.9999f, 17.0f,   18.0f,    19.0f,  0x1.1p0f};
  while (in.size() < 128) in.push_back(in[in.size() - 38] * 1.37f + 0.01f);
  return in;
}

class Conversions : public ::testing::TestWithParam<const char*> {};

TEST_P(Conversions, RoundSaturateAndPackAsDocumented) {
  const std::string architecture = GetParam();
  const NumberFormat format =
      architecture == "gfx942" ? NumberFormat::kE4m3Fnuz : NumberFormat::kE4m3;
  auto program = WaveProgram::Compile({kKernel, "test_kernel", architecture});
  ASSERT_TRUE(program.ok()) << program.status();
  const std::vector<float> in = Inputs();
  std::vector<uint32_t> out(64 * kWords);
  EmulatorLaunch launch;
  launch.block = {64, 1, 1};
  launch.arguments = {EmulatorArgument::Buffer("in", in.data(), in.size() * 4),
                      EmulatorArgument::Writable("out", out.data(), out.size() * 4)};
  const auto report = (*program)->Run(launch);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->findings.empty());
  for (size_t t = 0; t < 64; ++t) {
    const float a = in[2 * t], b = in[2 * t + 1];
    SCOPED_TRACE(testing::Message() << architecture << " of " << a << " and " << b);
    const uint32_t* const got = &out[t * kWords];
    const uint32_t pair = EncodeFloat(format, a) | EncodeFloat(format, b) << 8;
    EXPECT_EQ(got[0], 0x55660000u | pair);
    EXPECT_EQ(got[1], pair << 16 | 0x7788u);
    EXPECT_EQ(got[2], (EncodeFloat(format, a / 16) | EncodeFloat(format, b / 16) << 8) << 16 | 1u);
    // Nearest even, clamped to a byte; NaN is 0.
    const float clamped = a > 0 ? std::min(a, 255.0f) : 0.0f;
    const auto byte = static_cast<uint32_t>(std::nearbyint(clamped));
    EXPECT_EQ(got[3], 0x11223300u | byte);
    EXPECT_EQ(got[4], byte << 24 | 0x223344u);
    const auto norm = [](float x) {
      return static_cast<uint32_t>(std::nearbyint((x > 0 ? std::min(x, 1.0f) : 0.0f) * 65535.0f));
    };
    EXPECT_EQ(got[5], norm(a) | norm(b) << 16);
    EXPECT_EQ(got[6], 0x08060402u);
    EXPECT_EQ(got[7], 0xff0000ffu);
    float plain, scaled;
    std::memcpy(&plain, &got[8], 4);
    std::memcpy(&scaled, &got[9], 4);
    EXPECT_EQ(plain, 64.0f);
    // Lane l's byte is that of column l % 32 and of the k from 32 (l / 32).
    EXPECT_EQ(scaled, 32.0f + 16.0f);
  }
}

INSTANTIATE_TEST_SUITE_P(Flavours, Conversions, ::testing::Values("gfx950", "gfx942"));

// The bytes that make the difference between the flavours.
TEST(Conversions, EdgesOfTheFlavours) {
  EXPECT_EQ(EncodeFloat(NumberFormat::kE4m3, 448.0f), 0x7eu);
  EXPECT_EQ(EncodeFloat(NumberFormat::kE4m3, 464.0f), 0x7eu);  // a tie, to even
  EXPECT_EQ(EncodeFloat(NumberFormat::kE4m3, 465.0f), 0x7fu);
  EXPECT_EQ(EncodeFloat(NumberFormat::kE4m3Fnuz, 240.0f), 0x7fu);
  EXPECT_EQ(EncodeFloat(NumberFormat::kE4m3Fnuz, 249.0f), 0x80u);
  EXPECT_EQ(EncodeFloat(NumberFormat::kE4m3Fnuz, -0.0f), 0u);
}

}  // namespace
}  // namespace whet::emulator
