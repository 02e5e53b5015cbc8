// The GPU kernel of RMSNorm, lane by lane, against double precision.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/emulate/number_formats.h"
#include "tests/emulate/template_run.h"

namespace whet::emulator {
namespace {

// Elements of one dtype, read and written as floats.
class Elements {
 public:
  Elements(bool bf16, size_t count)
      : bf16_(bf16), bytes_(std::max<size_t>(count, 1) * (bf16 ? 2 : 4)), count_(count) {}
  float Get(size_t i) const {
    uint32_t bits = 0;
    std::memcpy(&bits, &bytes_[i * (bf16_ ? 2 : 4)], bf16_ ? 2 : 4);
    float value;
    std::memcpy(&value, &bits, 4);
    return bf16_ ? DecodeFloat(NumberFormat::kBf16, bits) : value;
  }
  void Set(size_t i, float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    if (bf16_) bits = EncodeFloat(NumberFormat::kBf16, value);
    std::memcpy(&bytes_[i * (bf16_ ? 2 : 4)], &bits, bf16_ ? 2 : 4);
  }
  void* data() { return bytes_.data(); }
  size_t bytes() const { return count_ * (bf16_ ? 2 : 4); }

 private:
  bool bf16_;
  std::vector<unsigned char> bytes_;
  size_t count_;
};

struct RmsCase {
  bool bf16;
  size_t rows, columns, gap;
  bool residual;
  int64_t threads, unroll;
  const char* architecture;
};

class RmsNormKernel : public ::testing::TestWithParam<RmsCase> {};

TEST_P(RmsNormKernel, AgreesWithDoublePrecision) {
  const RmsCase& c = GetParam();
  const size_t stride = c.columns + c.gap;
  const std::string problem = absl::StrCat(
      "rms_norm:dtype=", c.bf16 ? "bf16" : "f32", ",rows=", c.rows, ",columns=", c.columns,
      ",residual=", c.residual ? 1 : 0, ",x_stride=", stride, ",alignment=4");
  auto variant = SpecializeForEmulator(
      problem, "gpu", {{"threads", c.threads}, {"unroll", c.unroll}}, c.architecture);
  ASSERT_TRUE(variant.ok()) << variant.status();
  Elements x(c.bf16, c.rows * stride), residual(c.bf16, c.rows * c.columns),
      weight(c.bf16, c.columns), y(c.bf16, c.rows * c.columns);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (size_t i = 0; i < c.rows * stride; ++i) x.Set(i, normal(random));
  for (size_t i = 0; i < c.rows * c.columns; ++i) residual.Set(i, normal(random));
  for (size_t i = 0; i < c.columns; ++i) weight.Set(i, normal(random));
  Elements before = residual;
  variant->launch.arguments = {
      EmulatorArgument::Buffer("x", x.data(), x.bytes()),
      EmulatorArgument::Writable("residual", c.residual ? residual.data() : nullptr,
                                 c.residual ? residual.bytes() : 0),
      EmulatorArgument::Buffer("weight", weight.data(), weight.bytes()),
      EmulatorArgument::Writable("y", y.data(), y.bytes()), EmulatorArgument::Scalar(1e-5f)};
  auto program = WaveProgram::Compile(variant->source);
  ASSERT_TRUE(program.ok()) << program.status();
  const auto report = (*program)->Run(variant->launch);
  ASSERT_TRUE(report.ok()) << report.status();
  for (const EmulatorFinding& finding : report->findings) ADD_FAILURE() << finding.text;

  double difference = 0, norm = 0;
  for (size_t row = 0; row < c.rows; ++row) {
    std::vector<double> h(c.columns);
    double squares = 0;
    for (size_t i = 0; i < c.columns; ++i) {
      h[i] = x.Get(row * stride + i);
      if (c.residual) {
        Elements rounded(c.bf16, 1);
        rounded.Set(0, x.Get(row * stride + i) + before.Get(row * c.columns + i));
        h[i] = rounded.Get(0);
        ASSERT_EQ(residual.Get(row * c.columns + i), rounded.Get(0));
      }
      squares += h[i] * h[i];
    }
    const double factor = 1 / std::sqrt(squares / static_cast<double>(c.columns) + 1e-5);
    for (size_t i = 0; i < c.columns; ++i) {
      const double want = h[i] * factor * weight.Get(i);
      difference += std::pow(y.Get(row * c.columns + i) - want, 2);
      norm += want * want;
    }
  }
  EXPECT_LE(std::sqrt(difference), (c.bf16 ? 3e-3 : 1e-6) * std::sqrt(norm));
}

INSTANTIATE_TEST_SUITE_P(Table, RmsNormKernel,
                         ::testing::Values(RmsCase{true, 3, 100, 4, false, 64, 1, "gfx90a"},
                                           RmsCase{true, 2, 1000, 0, true, 256, 2, "gfx942"},
                                           RmsCase{false, 5, 257, 3, true, 64, 4, "gfx950"},
                                           RmsCase{false, 1, 1, 0, false, 64, 1, "gfx1030"},
                                           RmsCase{true, 0, 64, 0, false, 64, 1, "gfx950"},
                                           RmsCase{true, 4, 2048, 0, true, 512, 4, "gfx1030"}));

}  // namespace
}  // namespace whet::emulator
