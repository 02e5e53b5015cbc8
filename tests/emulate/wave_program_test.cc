#include "src/emulate/wave_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace whet::emulator {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A kernel over in[256], out[256] with 1 KiB of LDS and two waves, and what the report must say.
struct FaultCase {
  const char* name;
  const char* body;
  std::vector<const char*> findings;  // "" for none
};

class WaveProgramFaults : public ::testing::TestWithParam<FaultCase> {};

std::string Kernel(const std::string& body) {
  return absl::StrCat(R"(
extern "C" __global__ void test_kernel(const int* in, int* out) {
  WHET_SHARED_MEMORY(shared);
  int* lds = reinterpret_cast<int*>(shared);
  const int t = static_cast<int>(__builtin_amdgcn_workitem_id_x());
  (void)lds;
)",
                      body, "\n}\n");
}

TEST_P(WaveProgramFaults, AreReported) {
  const FaultCase& c = GetParam();
  auto program = WaveProgram::Compile({Kernel(c.body), "test_kernel", "gfx950"});
  ASSERT_TRUE(program.ok()) << program.status();
  std::vector<int> in(256, 5), out(256, 0);
  EmulatorLaunch launch;
  launch.block = {128, 1, 1};
  launch.shared_bytes = 1024;
  launch.arguments = {EmulatorArgument::Buffer("in", in.data(), 1024),
                      EmulatorArgument::Writable("out", out.data(), 1024)};
  const auto report = (*program)->Run(launch);
  ASSERT_TRUE(report.ok()) << report.status();
  std::string all;
  for (const EmulatorFinding& finding : report->findings) absl::StrAppend(&all, finding.text, "\n");
  for (const char* finding : c.findings) EXPECT_THAT(all, HasSubstr(finding));
  if (c.findings.empty()) {
    EXPECT_THAT(all, IsEmpty());
  }
}

constexpr char kAsync[] = R"(
  __builtin_amdgcn_global_load_lds(in + t, lds + t / 64 * 64, 4, 0, 0);
)";

std::vector<FaultCase> Faults() {
  static const std::string wait_then_read =
      absl::StrCat(kAsync, "__builtin_amdgcn_s_waitcnt(0x0f70); out[t] = lds[t];");
  static const std::string no_wait =
      absl::StrCat(kAsync, "out[t] = lds[t]; __builtin_amdgcn_s_waitcnt(0);");
  static const std::string wrong_count = absl::StrCat(
      kAsync,
      "__builtin_amdgcn_s_waitcnt(0x0f71); out[t] = lds[t]; __builtin_amdgcn_s_waitcnt(0);");
  static const std::string other_wave = absl::StrCat(
      kAsync,
      "__builtin_amdgcn_s_waitcnt(0); __builtin_amdgcn_s_barrier(); out[t] = lds[127 - t];");
  static const std::string wait_after_barrier = absl::StrCat(
      kAsync,
      "__builtin_amdgcn_s_barrier(); __builtin_amdgcn_s_waitcnt(0); out[t] = lds[127 - t];");
  static const std::string never_waited = kAsync;
  return {
      {"CleanExchange", "lds[t] = in[t]; __syncthreads(); out[t] = lds[127 - t];", {}},
      {"NeverWritten",
       "out[t] = lds[t];",
       {"lane 0 of wave 0 (block 0) reads LDS that was never written, at byte 0, at kernel:7"}},
      {"NoBarrier",
       "lds[t] = in[t]; out[t] = lds[127 - t];",
       {"another wave wrote, with no wait by the writer and barrier since"}},
      {"BarrierWithoutWait",
       "lds[t] = in[t]; __builtin_amdgcn_s_barrier(); out[t] = lds[127 - t];",
       {"with no wait by the writer"}},
      {"SameWaveNeedsAStep",
       "lds[t] = in[t]; out[t] = lds[t ^ 1];",
       {"another lane of its wave wrote"}},
      {"SameWaveWithAStep",
       "lds[t] = in[t]; __builtin_amdgcn_wave_barrier(); out[t] = lds[t ^ 1];",
       {}},
      {"WriteAfterRead",
       "lds[t] = in[t]; __syncthreads(); out[t] = lds[127 - t]; lds[t] = 0;",
       {"another wave has read since the last barrier"}},
      {"AsyncCovered", wait_then_read.c_str(), {}},
      {"AsyncNotCovered", no_wait.c_str(), {"an asynchronous load still owns"}},
      {"AsyncWrongCount", wrong_count.c_str(), {"an asynchronous load still owns"}},
      {"AsyncToOtherWave", other_wave.c_str(), {}},
      {"AsyncWaitAfterBarrier",
       wait_after_barrier.c_str(),
       {"with no wait by the writer and barrier since"}},
      {"AsyncNeverWaited", never_waited.c_str(), {"has ended with asynchronous loads in flight"}},
      {"LdsOutOfBounds",
       "lds[256 + t] = 1;",
       {"writes outside LDS, at byte 1024 of 1024, at kernel:7"}},
      {"GlobalOutOfBounds",
       "out[256 + t] = 1;",
       {"writes 4 bytes outside every buffer, at 1024 of 1024 bytes of out, at kernel:7"}},
      {"GlobalReadBefore",
       "out[t] = in[t - 1];",
       {"reads 4 bytes outside every buffer, at -4 of 1024 bytes of in"}},
      {"WritesInput", "const_cast<int*>(in)[t] = 1;", {"writes 4 bytes to input in"}},
      {"DivergedWave",
       "if (t & 1) __builtin_amdgcn_s_barrier(); else out[t] = __builtin_amdgcn_readfirstlane(t);",
       {"the wave has diverged"}},
      {"UnequalBarriers",
       "__builtin_amdgcn_s_barrier(); if (t < 64) __builtin_amdgcn_s_barrier();",
       {"has passed 1 barriers, wave 0 has passed 2"}},
      {"EarlyExitIsFine",
       "if (t % 64 > 10) return; out[t] = static_cast<int>(__builtin_amdgcn_ballot_w64(1));",
       {}},
  };
}

INSTANTIATE_TEST_SUITE_P(All, WaveProgramFaults, ::testing::ValuesIn(Faults()),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(WaveProgram, RunsEveryBlockAndThreadOnce) {
  auto program = WaveProgram::Compile({R"(
extern "C" __global__ void count(int* out, int width) {
  const unsigned x = __builtin_amdgcn_workgroup_id_x() * 24 + __builtin_amdgcn_workitem_id_x() + 8 * __builtin_amdgcn_workitem_id_y();
  out[x + static_cast<unsigned>(width) * (__builtin_amdgcn_workgroup_id_y() + 2 * __builtin_amdgcn_workgroup_id_z())] += 1;
}
)",
                                       "count", "gfx90a"});
  ASSERT_TRUE(program.ok()) << program.status();
  std::vector<int> out(2 * 3 * 5 * 24, 0);
  EmulatorLaunch launch;
  launch.grid = {5, 2, 3};
  launch.block = {8, 3, 1};
  launch.arguments = {EmulatorArgument::Writable("out", out.data(), out.size() * 4),
                      EmulatorArgument::Scalar(120)};
  const auto report = (*program)->Run(launch);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->findings, IsEmpty());
  EXPECT_EQ(out, std::vector<int>(out.size(), 1));
}

// Endless loops with and without memory accesses, and a lane that waits for another of its wave.
TEST(WaveProgram, BlocksThatDoNotEndAreGivenUp) {
  const struct {
    const char* body;
    std::vector<const char*> findings;
  } cases[] = {
      {"unsigned x = 1; while (x != 0) asm volatile(\"\" : \"+r\"(x)); out[t] = int(x);",
       {"lane 0 of wave 0 (block 0) does not end", "wave 1: 64 lanes running"}},
      {"volatile int* flag = out; if (t == 70) { while (flag[0] == 0) {} } out[t] = 1;", {}},
      {"volatile int* flag = out + 1; if (t == 70) { while (flag[0] == 0) out[2] += 1; } "
       "__syncthreads();",
       {"lane 6 of wave 1 (block 0) does not end", "wave 0: at its barrier 1",
        "6 waiting for the others", "kernel:7"}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.body);
    auto program = WaveProgram::Compile({Kernel(c.body), "test_kernel", "gfx950"});
    ASSERT_TRUE(program.ok()) << program.status();
    std::vector<int> in(256, 5), out(256, 0);
    EmulatorLaunch launch;
    launch.block = {128, 1, 1};
    launch.shared_bytes = 1024;
    launch.block_limit = absl::Milliseconds(300);
    launch.arguments = {EmulatorArgument::Buffer("in", in.data(), 1024),
                        EmulatorArgument::Writable("out", out.data(), 1024)};
    const auto report = (*program)->Run(launch);
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_EQ(report->findings.size(), c.findings.empty() ? 0u : 1u);
    for (const char* finding : c.findings) {
      EXPECT_THAT(report->findings.front().text, HasSubstr(finding));
    }
  }
}

TEST(WaveProgram, SourceThatDoesNotCompileSaysWhere) {
  const auto program = WaveProgram::Compile(
      {"extern \"C\" __global__ void broken() { nonsense; }", "broken", "gfx950"});
  EXPECT_EQ(program.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(program.status().message()),
              AllOf(HasSubstr("kernel:1:"), HasSubstr("nonsense")));
}

TEST(WaveProgram, MissingCompilerIsNotFound) {
  const auto program = WaveProgram::Compile({"", "none", "gfx950", "clang-that-is-not-here"});
  EXPECT_EQ(program.status().code(), absl::StatusCode::kNotFound);
}

TEST(WaveProgram, RefusesImpossibleBlocks) {
  auto program =
      WaveProgram::Compile({"extern \"C\" __global__ void empty() {}", "empty", "gfx950"});
  ASSERT_TRUE(program.ok()) << program.status();
  EmulatorLaunch launch;
  launch.block = {2048, 1, 1};
  EXPECT_EQ((*program)->Run(launch).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace whet::emulator
