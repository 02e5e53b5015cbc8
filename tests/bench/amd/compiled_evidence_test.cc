// The library's AMD kernels through every compiler that is here: no scratch, registers and LDS within
// what the block's waves can have, waits that leave loads in flight, and the instructions that the
// schedules are made of. One variant of each kernel; `bazel run //bench/amd:compiled_evidence -- --all`
// compiles the rest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "bench/amd/evidence.h"
#include "bench/amd/evidence_cases.h"
#include "src/compile/toolchains.h"
#include "src/model/target.h"

namespace whet::amd {
namespace {

using ::testing::IsEmpty;

struct CompilerCase {
  const char* name;
  const char* compiler;  // "hiprtc"
  const char* library;   // or the variable that names it, in capitals
  const char* target;
};

class CompiledEvidence : public ::testing::TestWithParam<CompilerCase> {
 protected:
  void SetUp() override {
    ToolchainOptions options;
    if (absl::StartsWith(GetParam().library, "WHET_")) {
      const char* const library = std::getenv(GetParam().library);
      if (library == nullptr || *library == '\0') {
        GTEST_SKIP() << "SKIPPED: " << GetParam().library << " names no library";
      }
      options.hiprtc_library = library;
    } else {
      options.hiprtc_library = GetParam().library;
    }
    toolchains_ = std::make_unique<Toolchains>(std::move(options));
    const absl::StatusOr<Compiler*> compiler = toolchains_->Named(GetParam().compiler);
    ASSERT_TRUE(compiler.ok()) << compiler.status();
    compiler_ = *compiler;
  }

  std::unique_ptr<Toolchains> toolchains_;
  Compiler* compiler_ = nullptr;
};

// What the main loop of a kernel issues for 32 query rows and 64 keys, whatever the compiler.
struct LoopExpectation {
  const char* case_begins;  // with this
  const char* target;
  double matrix;     // row sums too
  double most_valu;  // beside the matrix instructions
  double transcendental;
  double lds_read_b128;
  double lds_read_transposed;
  double global_to_lds;
  double global_load;
  double lds_write;
};
constexpr LoopExpectation kExpectations[] = {
    {"attention_forward 128/128 gfx950:", "gfx950", 36, 96, 32, 16, 32, 4, 0, 0},
    {"attention_forward 192/128 gfx950:", "gfx950", 44, 96, 32, 24, 32, 5, 0, 0},
    {"attention_forward 128/128 gfx9:", "gfx942", 64, 185, 32, 32, 0, 0, 10, 6},
    {"attention_forward 192/128 gfx9:", "gfx942", 80, 185, 32, 40, 0, 0, 12, 8},
};

void CheckLoop(const KernelEvidence& evidence, const EvidenceCase& one, const Target& target) {
  const LoopCounts& loop = evidence.loop;
  for (const LoopExpectation& expected : kExpectations) {
    if (!absl::StartsWith(one.Name(), expected.case_begins) ||
        target.architecture != expected.target) {
      continue;
    }
    ASSERT_GT(loop.matrix_total, 0);
    const double tiles = evidence.matrix_flops / one.flops_per_tile;
    EXPECT_EQ(loop.matrix_total / tiles, expected.matrix);
    EXPECT_LE(loop.valu / tiles, expected.most_valu);
    EXPECT_EQ(loop.transcendental / tiles, expected.transcendental);
    EXPECT_EQ(loop.lds_read_b128 / tiles, expected.lds_read_b128);
    EXPECT_EQ(loop.lds_read_transposed / tiles, expected.lds_read_transposed);
    EXPECT_EQ(loop.lds_read_other, 0);
    EXPECT_EQ(loop.global_to_lds / tiles, expected.global_to_lds);
    EXPECT_EQ(loop.global_load / tiles, expected.global_load);
    EXPECT_EQ(loop.lds_write / tiles, expected.lds_write);
    EXPECT_GT(evidence.tflops_r, 0);
    EXPECT_GT(evidence.tflops_v, 0);
  }
}

TEST_P(CompiledEvidence, EveryKernelKeepsTheRules) {
  const Target target = *Target::Parse(GetParam().target);
  const auto cases = EvidenceCases(target, /*all_variants=*/false);
  ASSERT_TRUE(cases.ok()) << cases.status();
  ASSERT_FALSE(cases->empty());
  for (const EvidenceCase& one : *cases) {
    SCOPED_TRACE(one.Name());
    const absl::StatusOr<KernelEvidence> evidence =
        Gather(*compiler_, *one.kernel_template, one.problem, one.variant, target);
    if (!evidence.ok()) {
      ADD_FAILURE() << evidence.status();
      continue;
    }
    EXPECT_THAT(Complaints(*evidence, one, target), IsEmpty());
    CheckLoop(*evidence, one, target);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Compilers, CompiledEvidence,
    ::testing::Values(CompilerCase{"Hiprtc714Gfx950", "hiprtc", "WHET_TEST_HIPRTC7", "gfx950"},
                      CompilerCase{"Hiprtc714Gfx942", "hiprtc", "WHET_TEST_HIPRTC7", "gfx942"},
                      CompilerCase{"Hiprtc70Gfx950", "hiprtc", "WHET_TEST_HIPRTC70", "gfx950"},
                      CompilerCase{"Hiprtc70Gfx942", "hiprtc", "WHET_TEST_HIPRTC70", "gfx942"},
                      CompilerCase{"Hiprtc5Gfx90a", "hiprtc", "libamdhip64.so.5", "gfx90a"},
                      CompilerCase{"ClangGfx950", "clang_amdgpu", "", "gfx950"},
                      CompilerCase{"ClangGfx942", "clang_amdgpu", "", "gfx942"},
                      CompilerCase{"ClangGfx90a", "clang_amdgpu", "", "gfx90a"}),
    [](const auto& one) { return std::string(one.param.name); });

TEST(Complaints, NameWhatIsBroken) {
  const Target gfx942 = *Target::Parse("gfx942");
  const auto cases = EvidenceCases(gfx942, /*all_variants=*/false);
  ASSERT_TRUE(cases.ok()) << cases.status();
  EvidenceCase one = cases->front();
  KernelEvidence evidence;
  evidence.resources = {.registers = 300, .spill_bytes = 8, .shared_bytes = 0};
  evidence.launch.shared_bytes = 70000;
  evidence.waves_per_simd = 2;
  evidence.loop.matrix_total = 1;
  evidence.loop.wait_drained = 2;
  evidence.loop.scratch = 1;
  evidence.loop.accumulator_moves = 3;
  evidence.hazards = {"too near"};
  EXPECT_THAT(Complaints(evidence, one, gfx942),
              ::testing::ElementsAre("8 bytes of scratch", "300 VGPRs, 256 at most",
                                     "70000 bytes of LDS, 65536 at most", "too near",
                                     "1 scratch accesses in the loop",
                                     "3 moves of accumulators in the loop",
                                     "2 waits in the loop that leave nothing in flight"));
  one.drains_each_step = true;
  EXPECT_EQ(Complaints(evidence, one, gfx942).size(), 6u);
  evidence.waves_per_simd = 1;
  EXPECT_EQ(Complaints(evidence, one, *Target::Parse("gfx950")).size(), 4u);
}

}  // namespace
}  // namespace whet::amd
