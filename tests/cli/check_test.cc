// whet check through the real tool: a template of a user's with faults planted in its kernels, and a
// kernel of the library's own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/files.h"
#include "tests/cli/json_out.h"
#include "tests/cli/tool.h"

namespace whet::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr char kOperation[] = R"({
  "name": "turn", "version": 1, "summary": "y is x, every 128 elements the other way round",
  "fields": [{"name": "n", "type": "int", "min": 1}],
  "arguments": [
    {"name": "x", "direction": "in", "dtype": "f32", "shape": ["n"]},
    {"name": "y", "direction": "out", "dtype": "f32", "shape": ["n"]}
  ],
  "tolerance": {"f32": 0},
  "kernels": ["good", "racy", "beyond"], "reference": {"hip": "good"}
})";

constexpr char kKernel[] = R"({
  "name": "@", "platforms": ["hip"], "source": "@.hip", "when": "n % 128 == 0",
  "parameters": [{"name": "pause", "values": [0, 1], "default": 0}],
  "launch": {"grid": ["n / 128", "1", "1"], "block": ["128", "1", "1"], "shared_bytes": "512"}
})";

// Line 5 is the barrier, line 6 the read.
std::string Source(const std::string& barrier, const std::string& read) {
  return R"(#include "common/amd.h"
extern "C" __global__ void WHET_ENTRY(const float* x, float* y) {
  WHET_SHARED_MEMORY(shared); float* lds = reinterpret_cast<float*>(shared);
  const int t = static_cast<int>(__builtin_amdgcn_workitem_id_x()), at = static_cast<int>(__builtin_amdgcn_workgroup_id_x()) * 128 + t; lds[t] = x[at];
  )" + barrier +
         "\n  y[at] = " + read + ";\n}\n";
}

class CheckTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(MakeDirectories(tool_.Path("templates/turn")).ok());
    tool_.Write("templates/turn/turn.json", kOperation);
    for (const std::string name : {"good", "racy", "beyond"}) {
      std::string json = kKernel;
      for (size_t at; (at = json.find('@')) != std::string::npos;) json.replace(at, 1, name);
      tool_.Write("templates/turn/" + name + ".json", json);
    }
    tool_.Write("templates/turn/good.hip", Source("__syncthreads();", "lds[127 - t]"));
    tool_.Write("templates/turn/racy.hip", Source("", "lds[127 - t]"));
    tool_.Write("templates/turn/beyond.hip", Source("__syncthreads();", "lds[128 - t]"));
  }

  ToolRun Check(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"check", "turn", "-p", "n=512", "--target", "gfx942"});
    return tool_.Run(arguments, {{"WHET_TEMPLATES", tool_.Path("templates")}});
  }

  Tool tool_;
};

TEST_F(CheckTest, CleanKernelPasses) {
  const ToolRun run = Check({});
  EXPECT_EQ(run.exit_code, 0) << run;
  EXPECT_THAT(run.out, HasSubstr("good:pause=0 on gfx942")) << run;
  EXPECT_THAT(run.out, HasSubstr("4 of 4 blocks of 128 threads")) << run;
}

TEST_F(CheckTest, PlantedRaceIsNamedWithLineAndLane) {
  const ToolRun run = Check({"--kernel", "racy", "--json", "--blocks", "1-2"});
  EXPECT_EQ(run.exit_code, 6) << run;
  const nlohmann::json json = JsonOut(run);
  ASSERT_TRUE(json.contains("findings")) << run;
  EXPECT_EQ(json["blocks"]["run"], 2) << run;
  EXPECT_EQ(json["blocks"]["total"], 4) << run;
  ASSERT_FALSE(json["findings"].empty()) << run;
  // Wave 0 reads first, what nobody has written yet; wave 1 then reads what wave 0 wrote.
  EXPECT_THAT(json["findings"][0]["text"].get<std::string>(),
              StartsWith("lane 0 of wave 0 (block 1) reads LDS that was never written"))
      << run;
  EXPECT_THAT(json.dump(), HasSubstr("another wave wrote, with no wait by the writer and barrier"))
      << run;
  EXPECT_EQ(json["findings"][0]["location"], "racy.hip:6") << run;
  EXPECT_EQ(json["error"]["exit_code"], 6) << run;
}

TEST_F(CheckTest, AccessOutsideLdsEndsTheRun) {
  const ToolRun run = Check({"--variant", "beyond:pause=1"});
  EXPECT_EQ(run.exit_code, 6) << run;
  EXPECT_THAT(run.out,
              HasSubstr("lane 0 of wave 0 (block 0) reads outside LDS, at byte 512 of 512, "
                        "at beyond.hip:6"))
      << run;
}

TEST_F(CheckTest, KernelThatDoesNotEndIsGivenUp) {
  tool_.Write("templates/turn/racy.hip",
              Source("volatile float* flag = y; for (;;) flag[0] += 1.0f;", "0.0f"));
  const ToolRun run = Check({"--kernel", "racy", "--limit", "1", "--blocks", "2"});
  EXPECT_EQ(run.exit_code, 6) << run;
  EXPECT_THAT(run.err,
              HasSubstr("racy:pause=0 on gfx942 has 1 finding, the first: lane 0 of wave 0 "
                        "(block 2) does not end: the block was given up after 1s"))
      << run;
  EXPECT_THAT(run.err, HasSubstr("racy.hip:5")) << run;
}

TEST_F(CheckTest, CodeObjectIsPlayed) {
  // In what every compiler for AMD knows; __syncthreads is HIP's.
  tool_.Write("templates/turn/good.hip", Source("whet::wait_lds(); whet::meet();", "lds[127 - t]"));
  const ToolRun clean = Check({"--object"});
  EXPECT_EQ(clean.exit_code, 0) << clean;
  EXPECT_THAT(clean.out, HasSubstr("good:pause=0 on gfx942 by ")) << clean;
  const ToolRun racy = Check({"--object", "--kernel", "racy"});
  EXPECT_EQ(racy.exit_code, 6) << racy;
  EXPECT_THAT(racy.err, HasSubstr("LDS")) << racy;
  EXPECT_THAT(racy.err, HasSubstr("ds_read")) << racy;
  const ToolRun other = tool_.Run({"check", "rms_norm", "--target", "gfx1030", "--object"});
  EXPECT_THAT(other.err, HasSubstr("target gfx1030 is not modelled")) << other;
  EXPECT_NE(other.exit_code, 0) << other;
}

TEST_F(CheckTest, BadInputIsOneLine) {
  const struct {
    std::vector<std::string> arguments;
    int exit_code;
    const char* message;
  } cases[] = {
      {{"--kernel", "none"}, 3, "for this problem there is good, racy, beyond"},
      {{"--variant", "good:pause=7"}, 3, "pause"},
      {{"--blocks", "3-9"}, 3, "blocks of 0 to 3"},
      {{"--blocks", "many"}, 3, "many"},
      {{"--limit", "0"}, 2, "--limit"},
      {{"--drop-lds-loads"}, 2, "--drop-lds-loads is for --object"},
      {{"--target", "sm_90a"}, 2, "--target"},
      {{"--variant", "a:b=1", "--kernel", "c"}, 2, "--kernel"},
  };
  for (const auto& c : cases) {
    const ToolRun run = Check(c.arguments);
    EXPECT_EQ(run.exit_code, c.exit_code) << run;
    EXPECT_THAT(run.err, StartsWith("whet: error: ")) << run;
    EXPECT_THAT(run.err, HasSubstr(c.message)) << run;
  }
  const ToolRun cuda = tool_.Run({"check", "rms_norm", "--target", "sm_90a"});
  EXPECT_EQ(cuda.exit_code, 3) << cuda;
  EXPECT_THAT(cuda.err, HasSubstr("only AMD's targets")) << cuda;
  const ToolRun missing = tool_.Run({"check", "rms_norm"}, {{"WHET_AMDGPU_CLANG", "/none/clang"}});
  EXPECT_EQ(missing.exit_code, 4) << missing;
  EXPECT_THAT(missing.err, HasSubstr("/none/clang")) << missing;
}

TEST_F(CheckTest, SourceThatDoesNotCompileSaysWhere) {
  tool_.Write("templates/turn/good.hip", Source("nonsense;", "0"));
  const ToolRun run = Check({});
  EXPECT_EQ(run.exit_code, 5) << run;
  EXPECT_THAT(run.err, HasSubstr("good.hip:5:")) << run;
}

TEST_F(CheckTest, LibraryKernelAgreesWithFloat64) {
  const ToolRun run = tool_.Run(
      {"check", "rms_norm", "-p", "dtype=bf16,rows=3,columns=100", "--target", "gfx950", "--json"});
  EXPECT_EQ(run.exit_code, 0) << run;
  const nlohmann::json json = JsonOut(run);
  ASSERT_TRUE(json.contains("findings")) << run;
  EXPECT_THAT(json["findings"], IsEmpty()) << run;
  ASSERT_FALSE(json["check"].empty()) << run;
  EXPECT_LT(json["check"][0]["relative_l2"].get<double>(), 4e-3) << run;
}

}  // namespace
}  // namespace whet::testing
