// The GPU kernel of quantize_fp8 on AMD's lanes, against the definition on the host: every phase and layout, one block doing all items. From
// its source, and from what compilers make of it (a case for each; with WHET_TEST_ALL_CASES set, all).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/compile/toolchains.h"
#include "src/ops/fp8_host.h"
#include "src/ops/operation.h"
#include "tests/emulate/compiler_cases.h"
#include "tests/emulate/object_player.h"
#include "tests/emulate/template_run.h"

namespace whet::emulator {
namespace {

struct QuantizeCase {
  const char* architecture;
  int64_t heads, rows, dim;
  int64_t scale_rows;
  bool center, rotate, transpose, power_of_two;
  const char* data;
  bool sampled_mean = false;
};

void ExpectWhatTheDefinitionSays(const QuantizeCase& c, const Player& player) {
  const bool fnuz = std::string(c.architecture) == "gfx942";
  const FieldValues fields = OperationFor("quantize_fp8")
                                 .CompleteFields({{"dtype", "bf16"},
                                                  {"to", fnuz ? "e4m3fnuz" : "e4m3"},
                                                  {"batch", int64_t{1}},
                                                  {"heads", c.heads},
                                                  {"seq", c.rows},
                                                  {"dim", c.dim},
                                                  {"scale_rows", c.scale_rows},
                                                  {"center", int64_t{c.center}},
                                                  {"sampled_mean", int64_t{c.sampled_mean}},
                                                  {"rotate", int64_t{c.rotate}},
                                                  {"transpose", int64_t{c.transpose}},
                                                  {"power_of_two", int64_t{c.power_of_two}}});
  std::string problem = "quantize_fp8:";
  for (const auto& [name, value] : fields) {
    absl::StrAppend(&problem, problem.back() == ':' ? "" : ",", name, "=", ValueText(value));
  }
  auto variant = SpecializeForEmulator(problem, "gpu", {}, c.architecture);
  ASSERT_TRUE(variant.ok()) << variant.status();

  HostTensor x = *HostTensor::Make(DType::kBF16, {1, c.heads, c.rows, c.dim});
  ASSERT_TRUE(FillData({.kind = c.data}, "x", &x).ok());
  const HostQuantized want = *QuantizeOnHost(x, {.to = fnuz ? DType::kE4M3Fnuz : DType::kE4M3,
                                                 .scale_rows = c.scale_rows,
                                                 .power_of_two = c.power_of_two,
                                                 .center = c.center,
                                                 .sampled_mean = c.sampled_mean,
                                                 .rotate = c.rotate,
                                                 .transpose = c.transpose});
  HostTensor bytes = want.bytes.Clone(), scale = want.scale.Clone();
  std::memset(bytes.data(), 0xAA, static_cast<size_t>(bytes.span_bytes()));
  std::vector<float> mean(static_cast<size_t>(c.heads * c.dim), NAN);
  const bool statistics = c.center || c.scale_rows == 0;
  const int64_t chunks = std::max<int64_t>(1, (c.rows + 255) / 256);
  const int64_t words_of_head = 4 + c.dim * std::max<int64_t>(3 * (chunks + 1), 36);
  std::vector<int32_t> workspace(static_cast<size_t>(8 + c.heads * words_of_head), 0);
  variant->launch.grid = {1, 1, 1};
  variant->launch.arguments = {
      EmulatorArgument::Buffer("x", x.data(), static_cast<size_t>(x.span_bytes())),
      EmulatorArgument::Buffer("mean_in", nullptr, 0),
      EmulatorArgument::Writable("y", bytes.data(), static_cast<size_t>(bytes.span_bytes())),
      EmulatorArgument::Writable("scale", scale.data(), static_cast<size_t>(scale.span_bytes())),
      EmulatorArgument::Writable("mean", c.center ? mean.data() : nullptr,
                                 c.center ? mean.size() * 4 : 0),
      EmulatorArgument::Writable("lse_shift", nullptr, 0),
      EmulatorArgument::Writable("workspace", statistics ? workspace.data() : nullptr,
                                 statistics ? workspace.size() * 4 : 0),
      EmulatorArgument::Scalar(1.0f),
      EmulatorArgument::Scalar(1.0f)};
  const absl::StatusOr<EmulatorReport> report = player(*variant);
  ASSERT_TRUE(report.ok()) << report.status();
  for (const EmulatorFinding& finding : report->findings) ADD_FAILURE() << finding.text;

  for (int64_t i = 0; i < scale.elements(); ++i) {
    EXPECT_NEAR(scale.At(i) / want.scale.At(i), 1, 1e-5) << "scale " << i;
  }
  for (size_t i = 0; c.center && i < mean.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(mean[i]), want.mean.At(static_cast<int64_t>(i)), 1e-4);
  }
  int64_t different = 0;
  for (int64_t row = 0; row < bytes.RowCount(); ++row) {
    for (int64_t i = 0; i < bytes.RowLength(); ++i) {
      const int64_t at = bytes.RowOffset(row) + i;
      const double got = bytes.At(at), expected = want.bytes.At(at);
      different += got != expected;
      // An element near the middle of two may go either way.
      ASSERT_NEAR(got, expected, 0.13 * std::fabs(expected) + 0.002) << "row " << row << ", " << i;
    }
  }
  EXPECT_LE(different, bytes.elements() / 200 + 1);
  for (const int32_t word : workspace) ASSERT_EQ(word, 0) << "left as it was found";
}

constexpr QuantizeCase kCases[] = {
    {"gfx950", 2, 130, 128, 64, true, true, false, true, "biased"},
    {"gfx942", 2, 100, 128, 0, true, true, false, true, "biased"},
    {"gfx950", 2, 70, 192, 64, false, true, false, true, "outlier"},
    {"gfx942", 1, 65, 256, 64, false, true, false, true, "outlier"},
    {"gfx950", 2, 100, 64, 0, false, false, true, false, "normal"},
    {"gfx942", 2, 300, 72, 0, true, false, false, false, "biased"},
    {"gfx950", 1, 530, 64, 64, true, true, false, true, "biased", true},
    {"gfx942", 1, 270, 72, 0, true, false, false, true, "biased", true}};

class QuantizeKernel : public ::testing::TestWithParam<QuantizeCase> {};

TEST_P(QuantizeKernel, WritesWhatTheDefinitionSays) {
  ExpectWhatTheDefinitionSays(GetParam(), PlaySource);
}

INSTANTIATE_TEST_SUITE_P(Table, QuantizeKernel, ::testing::ValuesIn(kCases));

class CompiledQuantizeKernel : public ::testing::TestWithParam<CompilerCase> {};

TEST_P(CompiledQuantizeKernel, WritesWhatTheDefinitionSays) {
  ToolchainOptions options;
  const char* library = GetParam().library;
  if (absl::StartsWith(library, "WHET_")) {
    library = std::getenv(library);
    if (library == nullptr || *library == '\0') {
      GTEST_SKIP() << "SKIPPED: " << GetParam().library << " names no library";
    }
  }
  options.hiprtc_library = library;
  Toolchains toolchains(std::move(options));
  const absl::StatusOr<Compiler*> compiler = toolchains.Named("hiprtc");
  ASSERT_TRUE(compiler.ok()) << compiler.status();
  const bool all = std::getenv("WHET_TEST_ALL_CASES") != nullptr;
  const bool gfx90a = std::string(GetParam().architecture) == "gfx90a";
  for (QuantizeCase c : kCases) {
    // gfx90a quantises to OCP e4m3, by arithmetic.
    if (gfx90a && std::string(c.architecture) == "gfx950") c.architecture = "gfx90a";
    if (std::string(c.architecture) != GetParam().architecture) continue;
    SCOPED_TRACE(absl::StrCat(c.heads, " x ", c.rows, " x ", c.dim));
    ExpectWhatTheDefinitionSays(c, PlayObject(*compiler, {.reverse_waves = true}));
    if (!all) break;
  }
}

INSTANTIATE_TEST_SUITE_P(Compilers, CompiledQuantizeKernel, ::testing::ValuesIn(kCompilerCases),
                         CompilerCaseName);

}  // namespace
}  // namespace whet::emulator
