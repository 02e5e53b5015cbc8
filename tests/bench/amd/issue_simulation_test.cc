// The simulation against numbers that the model's first implementation (in Python, whose constants were
// fitted to published speeds) gave for the same loops.
#include "bench/amd/issue_simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"

namespace whet::amd {
namespace {

struct Recorded {
  double clocks;
  double matrix, vector, lds;  // busy, rounded to hundredths
};

struct LoopCase {
  const char* name;
  const char* listing;
  Recorded r1, r2, v1, v2;  // constants R and V, one wave and two
};

const LoopCase kLoops[] = {
    {"MatrixBesideExponentials",
     R"(v_mfma_f32_32x32x16_bf16 v[0:15], v[64:67], v[68:71], v[0:15]
        v_exp_f32_e32 v100, v101
        v_exp_f32_e32 v102, v103
        v_mfma_f32_32x32x16_bf16 v[16:31], v[64:67], v[72:75], v[16:31]
        v_pk_fma_f32 v[104:105], v[106:107], v[108:109], v[110:111]
        v_max3_f32 v112, v104, v105, v112
        v_cvt_pk_bf16_f32 v113, v100, v102
        s_barrier)",
     {80, 0.80, 0.45, 0},
     {144, 0.89, 0.50, 0},
     {64, 1.00, 0.69, 0},
     {128, 1.00, 0.69, 0}},
    {"BoundByLds",
     R"(ds_read_b128 v[64:67], v200
        ds_read_b128 v[68:71], v200 offset:1024
        ds_read_b64_tr_b16 v[72:73], v201
        ds_read_b64_tr_b16 v[74:75], v201 offset:512
        s_waitcnt lgkmcnt(2)
        v_mfma_f32_32x32x16_bf16 v[0:15], v[64:67], v[68:71], v[0:15]
        s_waitcnt lgkmcnt(0)
        v_mfma_f32_32x32x16_bf16 v[16:31], v[72:75], v[68:71], v[16:31]
        buffer_load_dwordx4 v202, s[0:3], 0 offen lds
        s_waitcnt vmcnt(4)
        s_barrier)",
     {240, 0.27, 0, 0.53},
     {336, 0.38, 0, 0.76},
     {276, 0.23, 0, 0.62},
     {404, 0.32, 0, 0.84}},
    {"ConversionsAndNarrowFormats",
     R"(s_setprio 1
        v_mfma_f32_32x32x64_f8f6f4 v[0:15], v[64:71], v[72:79], v[0:15]
        v_mfma_f32_32x32x64_f8f6f4 v[16:31], v[64:67], v[72:75], v[16:31] cbsz:4 blgp:4
        s_setprio 0
        v_cvt_u32_f32_e32 v80, v0
        v_cvt_pk_fp8_f32 v81, v1, v2
        v_cvt_f32_i32_e32 v82, v3
        v_cvt_pk_u8_f32 v83, v4, 1, v83
        v_permlane32_swap_b32_e32 v84, v85
        v_smfmac_f32_16x16x128_fp8_fp8 v[32:35], v[86:89], v[64:71], v90
        s_nop 3
        s_barrier)",
     {160, 0.70, 0.23, 0},
     {272, 0.82, 0.26, 0},
     {156, 0.72, 0.36, 0},
     {252, 0.89, 0.44, 0}},
    {"ChainsOfResults",
     R"(v_mfma_f32_32x32x8_bf16 v[0:15], v[64:65], v[66:67], 0
        v_mfma_f32_32x32x8_bf16 v[0:15], v[68:69], v[70:71], v[0:15]
        v_mul_f32_e32 v80, v0, v1
        v_add_f32_e32 v81, v80, v80
        v_fmac_f32_e32 v82, v81, v81
        ds_write_b64 v83, v[80:81]
        ds_bpermute_b32 v84, v85, v82
        s_add_u32 s0, s0, 1
        s_waitcnt vmcnt(0) lgkmcnt(0)
        global_load_dword v86, v[87:88], off
        v_mov_b32_e32 v66, v84)",
     {216, 0.30, 0.07, 0.11},
     {216, 0.59, 0.15, 0.22},
     {224, 0.29, 0.07, 0.14},
     {224, 0.57, 0.14, 0.29}},
};

std::vector<Instruction> Parse(const char* listing) {
  std::vector<Instruction> code;
  for (absl::string_view line : absl::StrSplit(listing, '\n')) {
    const std::vector<std::string> parts =
        absl::StrSplit(absl::StripAsciiWhitespace(line), absl::MaxSplits(' ', 1));
    Instruction x;
    x.operation = parts[0];
    if (parts.size() > 1) x.arguments = parts[1];
    code.push_back(x);
  }
  return code;
}

class IssueSimulation : public ::testing::TestWithParam<LoopCase> {};

TEST_P(IssueSimulation, GivesTheRecordedClocks) {
  const LoopCase& c = GetParam();
  const struct {
    const IssueConstants& constants;
    size_t waves;
    const Recorded& recorded;
  } runs[] = {{kSetR, 1, c.r1}, {kSetR, 2, c.r2}, {kSetV, 1, c.v1}, {kSetV, 2, c.v2}};
  for (const auto& run : runs) {
    SCOPED_TRACE(run.waves);
    const absl::StatusOr<std::vector<WaveStep>> steps = WaveSteps(Parse(c.listing), run.constants);
    ASSERT_TRUE(steps.ok()) << steps.status();
    const IssueResult result =
        SimulateIssue(std::vector<std::vector<WaveStep>>(run.waves, *steps), run.constants);
    EXPECT_DOUBLE_EQ(result.clocks, run.recorded.clocks);
    EXPECT_NEAR(result.matrix_busy, run.recorded.matrix, 0.0051);
    EXPECT_NEAR(result.vector_busy, run.recorded.vector, 0.0051);
    EXPECT_NEAR(result.lds_busy, run.recorded.lds, 0.0051);
  }
}

INSTANTIATE_TEST_SUITE_P(Loops, IssueSimulation, ::testing::ValuesIn(kLoops),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(IssueSimulationEdges, UnknownMatrixInstructionIsNamed) {
  const auto steps =
      WaveSteps(Parse("v_mfma_f64_16x16x4_f64 v[0:7], v[8:9], v[10:11], v[0:7]"), kSetR);
  EXPECT_EQ(steps.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(steps.status().message()),
              ::testing::HasSubstr("v_mfma_f64_16x16x4_f64"));
}

TEST(IssueSimulationEdges, WavesThatNeverMeetTakeNoClocks) {
  const std::vector<WaveStep> with = *WaveSteps(Parse("s_barrier\nv_nop"), kSetR);
  const std::vector<WaveStep> without = *WaveSteps(Parse("v_nop\nv_nop"), kSetR);
  EXPECT_EQ(SimulateIssue({with, without}, kSetR).clocks, 0);
  EXPECT_EQ(SimulateIssue({}, kSetR).clocks, 0);
  EXPECT_EQ(SimulateIssue({with, {}}, kSetR).clocks, 0);
}

// AITER's published BF16 loop: 1536 clocks for a wave's 32 x 64 tile is 1384 TFLOP/s.
TEST(PredictedTflops, IsThePublishedModel) {
  EXPECT_NEAR(PredictedTflops("gfx950", 2.0 * 32 * 64 * 256, 1536, kSetR), 1384, 1);
  EXPECT_NEAR(PredictedTflops("gfx950", 2.0 * 32 * 64 * 256, 1865, kSetV), 1358, 1);
  EXPECT_NEAR(PredictedTflops("gfx942", 2.0 * 32 * 32 * 256, 1087, kSetR), 623, 1);
  EXPECT_EQ(PredictedTflops("gfx90a", 1e6, 1000, kSetR), 0);
  EXPECT_EQ(PredictedTflops("gfx950", 1e6, 0, kSetR), 0);
  EXPECT_NEAR(CausalFactor(16384, 256), 0.9403, 1e-4);
}

TEST(PackedInstructions, WaitForTheMatrixPipeWhereTheyRunAlone) {
  const std::vector<Instruction> loop = Parse(
      R"(v_mfma_f32_32x32x8_bf16 v[0:15], v[64:65], v[66:67], v[0:15]
         v_pk_add_f32 v[80:81], v[82:83], v[84:85]
         v_pk_mul_f32 v[86:87], v[82:83], v[84:85])");
  const auto clocks = [&](const IssueConstants& constants) {
    return SimulateIssue({*WaveSteps(loop, constants)}, constants).clocks;
  };
  EXPECT_EQ(clocks(kSetR), 32);
  EXPECT_EQ(clocks(PackedAlone(kSetR)), 40);
}

}  // namespace
}  // namespace whet::amd
