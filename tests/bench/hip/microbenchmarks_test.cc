// The microbenchmarks for AMD GPUs, as far as they go without one: each compiles for its targets and times the instruction that it says,
// and the layout kernels give the documented layouts in the wave emulator.
#include "bench/hip/microbenchmarks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "bench/amd/build_variant.h"
#include "bench/amd/listing.h"
#include "src/base/subprocess.h"
#include "src/compile/toolchains.h"
#include "src/emulate/wave_program.h"
#include "tests/support/runfile.h"

namespace whet::amd {
namespace {

using ::testing::HasSubstr;

MicrobenchmarkTemplates Templates() {
  const std::string file = RunfilePath("bench/hip/templates/rates/rates.json");
  absl::StatusOr<MicrobenchmarkTemplates> templates =
      LoadMicrobenchmarks(file.substr(0, file.rfind("/rates/")));
  EXPECT_TRUE(templates.ok()) << templates.status();
  return *std::move(templates);
}

struct CompilerCase {
  const char* name;
  const char* compiler;
  const char* library;  // or the variable that names it
  const char* target;
  int rates;
  int layouts;
};

class MicrobenchmarksCompile : public ::testing::TestWithParam<CompilerCase> {};

// The timed instruction stands in a loop sixteen times.
int TimedInstructions(const CodeObject& object, const std::string& name) {
  const absl::StatusOr<std::string> listing = Disassemble(object.bytes);
  EXPECT_TRUE(listing.ok()) << listing.status();
  const std::vector<Instruction> code = ParseListing(*listing);
  int most = 0;
  const std::vector<BasicBlock> blocks = BasicBlocks(code);
  for (size_t b = 0; b < blocks.size(); ++b) {
    if (std::find(blocks[b].successors.begin(), blocks[b].successors.end(), b) ==
        blocks[b].successors.end()) {
      continue;
    }
    most = std::max(
        most, static_cast<int>(std::count_if(
                  code.begin() + static_cast<int64_t>(blocks[b].begin),
                  code.begin() + static_cast<int64_t>(blocks[b].end),
                  [&](const Instruction& x) { return absl::StartsWith(x.operation, name); })));
  }
  return most;
}

TEST_P(MicrobenchmarksCompile, AndTimeWhatTheySay) {
  std::string library = GetParam().library;
  if (absl::StartsWith(library, "WHET_")) {
    const char* const value = std::getenv(library.c_str());
    if (value == nullptr || *value == '\0') GTEST_SKIP() << "SKIPPED: " << library << " is not set";
    library = value;
  }
  Toolchains toolchains({.hiprtc_library = library});
  const absl::StatusOr<Compiler*> compiler = toolchains.Named(GetParam().compiler);
  ASSERT_TRUE(compiler.ok()) << compiler.status();
  const MicrobenchmarkTemplates templates = Templates();
  const Target target = *Target::Parse(GetParam().target);
  const auto rates = Rates(templates, target);
  ASSERT_TRUE(rates.ok()) << rates.status();
  EXPECT_EQ(rates->size(), static_cast<size_t>(GetParam().rates));
  // A quick run takes every third rate, each compiler others; with WHET_TEST_ALL_CASES set, all.
  const size_t stride = std::getenv("WHET_TEST_ALL_CASES") != nullptr ? 1 : 3;
  for (size_t i = std::strlen(GetParam().name) % stride; i < rates->size(); i += stride) {
    const Rate& rate = (*rates)[i];
    SCOPED_TRACE(rate.name);
    const auto built =
        BuildVariant(**compiler, templates.rates, rate.problem, rate.variant, target);
    if (!built.ok()) {
      ADD_FAILURE() << built.status();
      continue;
    }
    EXPECT_EQ(built->object.resources.spill_bytes, 0);
    EXPECT_EQ(TimedInstructions(built->object, rate.instruction), rate.instructions);
  }
  const auto layouts = Layouts(templates, target);
  ASSERT_TRUE(layouts.ok()) << layouts.status();
  EXPECT_EQ(layouts->size(), static_cast<size_t>(GetParam().layouts));
  for (const Layout& layout : *layouts) {
    SCOPED_TRACE(layout.name);
    const auto built = BuildVariant(
        **compiler, templates.layouts, layout.problems[0],
        *templates.layouts.DefaultVariant(layout.problems[0], target, DeviceLimits{}), target);
    EXPECT_TRUE(built.ok()) << built.status();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Compilers, MicrobenchmarksCompile,
    ::testing::Values(CompilerCase{"ClangGfx950", "clang_amdgpu", "", "gfx950", 39, 9},
                      CompilerCase{"ClangGfx942", "clang_amdgpu", "", "gfx942", 31, 4},
                      CompilerCase{"Hiprtc5Gfx90a", "hiprtc", "libamdhip64.so.5", "gfx90a", 25, 2},
                      CompilerCase{"Hiprtc7Gfx950", "hiprtc", "WHET_TEST_HIPRTC7", "gfx950", 39,
                                   9}),
    [](const auto& one) { return std::string(one.param.name); });

TEST(Microbenchmarks, LayoutKernelsGiveTheDocumentedLayouts) {
  const MicrobenchmarkTemplates templates = Templates();
  for (const char* architecture : {"gfx942", "gfx950"}) {
    const Target target = *Target::Parse(architecture);
    const auto layouts = Layouts(templates, target);
    ASSERT_TRUE(layouts.ok()) << layouts.status();
    for (const Layout& layout : *layouts) {
      // The widest ones take seconds, and say nothing that the others do not.
      if (layout.shape == 6 || layout.shape == 7 ||
          (layout.shape == 2 && target.architecture == "gfx950")) {
        continue;
      }
      SCOPED_TRACE(absl::StrCat(layout.name, " on ", architecture));
      const Problem& problem = layout.problems.back();
      const Specialization special = *templates.layouts.Specialize(
          problem, *templates.layouts.DefaultVariant(problem, target, DeviceLimits{}), target,
          DeviceLimits{});
      const auto program =
          emulator::WaveProgram::Compile({special.source, special.entry, architecture});
      ASSERT_TRUE(program.ok()) << program.status();
      std::vector<float> d(
          static_cast<size_t>(templates.layouts.Arguments(problem)->front().span_bytes / 4), -1.0f);
      emulator::EmulatorLaunch launch;
      launch.grid[0] = static_cast<uint32_t>(special.launch.grid[0]);
      launch.block[0] = static_cast<uint32_t>(special.launch.block[0]);
      launch.shared_bytes = static_cast<size_t>(special.launch.shared_bytes);
      launch.arguments = {
          emulator::EmulatorArgument::Writable("d", d.data(), d.size() * sizeof(float))};
      const auto report = (*program)->Run(launch);
      ASSERT_TRUE(report.ok()) << report.status();
      for (const auto& finding : report->findings) ADD_FAILURE() << finding.text;
      EXPECT_EQ(CheckLayout(layout, static_cast<int>(layout.problems.size()) - 1, d), "");
      // And the check can fail.
      d[d.size() / 3] += 1.0f;
      EXPECT_THAT(CheckLayout(layout, static_cast<int>(layout.problems.size()) - 1, d),
                  HasSubstr("lane"));
    }
  }
}

TEST(Microbenchmarks, ClocksOfARate) {
  const MicrobenchmarkTemplates templates = Templates();
  Rate rate = Rates(templates, *Target::Parse("gfx942")).value().front();
  rate.iterations = 10;
  rate.instruction = "v_exp_f32";
  rate.variant = *Variant::Parse("vector:what=3");
  EXPECT_DOUBLE_EQ(RateClocks(rate, {2560, 2400, 2500, 2560}), 16);
  rate.waves_per_simd = 2;
  EXPECT_DOUBLE_EQ(RateClocks(rate, std::vector<int64_t>(8, 5120)), 16);
  rate.variant = *Variant::Parse("overlap:what=3");
  EXPECT_DOUBLE_EQ(RateClocks(rate, {5120, 5120, 5120, 5120, 9999, 9999, 9999, 9999}), 32);
  EXPECT_DOUBLE_EQ(RateClocks(rate, {}), 0);
}

TEST(Microbenchmarks, WithoutAGpuTheProgramSaysSo) {
  const std::string program = RunfilePath("bench/hip/microbench");
  const std::string file = RunfilePath("bench/hip/templates/rates/rates.json");
  const std::string templates = file.substr(0, file.rfind("/rates/"));
  const auto run = RunSubprocess({.argv = {program, "--templates", templates}});
  ASSERT_TRUE(run.ok()) << run.status();
  if (run->Succeeded()) GTEST_SKIP() << "this machine has an AMD GPU";
  EXPECT_EQ(run->exit_code, 4) << run->standard_error;
  EXPECT_THAT(run->standard_error, HasSubstr("no AMD GPU"));
  const auto wrong = RunSubprocess({.argv = {program, "--templates", "/none"}});
  EXPECT_EQ(wrong->exit_code, 1);
  EXPECT_THAT(wrong->standard_error, HasSubstr("/none"));
}

}  // namespace
}  // namespace whet::amd
