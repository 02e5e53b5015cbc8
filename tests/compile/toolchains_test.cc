#include "src/compile/toolchains.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/files.h"
#include "src/compile/compile_pool.h"

namespace whet {
namespace {

ToolchainOptions Options(const TemporaryDirectory& directory) {
  ToolchainOptions options;
  options.failure_directory = JoinPath(directory.path(), "failures");
  return options;
}

// A machine with no compiler at all.
ToolchainOptions Nothing(const TemporaryDirectory& directory) {
  ToolchainOptions options = Options(directory);
  options.host_compiler = "/nowhere/c++";
  options.hiprtc_library = "/nowhere/libhiprtc.so";
  options.nvrtc_library = "/nowhere/libnvrtc.so";
  options.amdgpu_clang = "/nowhere/clang";
  return options;
}

CompileRequest Request(const std::string& source, const std::string& entry) {
  CompileRequest request;
  request.label = entry;
  request.source = source;
  request.entry = entry;
  request.target = *Target::Parse("x86-64");
  return request;
}

class ToolchainsTest : public ::testing::Test {
 protected:
  TemporaryDirectory directory_ = *TemporaryDirectory::Create("whet-toolchains-test-");
};

TEST_F(ToolchainsTest, FindsACompilerForThisProcessor) {
  Toolchains toolchains(Options(directory_));
  const absl::StatusOr<Compiler*> compiler = toolchains.For(HostCpuTarget());
  ASSERT_TRUE(compiler.ok()) << compiler.status();
  EXPECT_EQ((*compiler)->identity().compiler, "hostcxx");
  EXPECT_EQ(*toolchains.Named("hostcxx"), *compiler);
  EXPECT_EQ(*toolchains.For(*Target::Parse("x86-64")), *compiler);
}

TEST_F(ToolchainsTest, PrefersAmdsOwnCompilerWhereItKnowsTheTarget) {
  Toolchains toolchains(Options(directory_));
  const absl::StatusOr<Compiler*> hiprtc = toolchains.Named("hiprtc");
  const absl::StatusOr<Compiler*> clang = toolchains.Named("clang_amdgpu");
  for (const char* text : {"gfx90a", "gfx942", "gfx950"}) {
    const Target target = *Target::Parse(text);
    const absl::StatusOr<Compiler*> chosen = toolchains.For(target);
    if (hiprtc.ok() && (*hiprtc)->WhyNot(target).empty()) {
      EXPECT_EQ(*chosen, *hiprtc) << text;
    } else if (clang.ok()) {
      EXPECT_EQ(*chosen, *clang) << text;
    } else {
      EXPECT_EQ(chosen.status().code(), absl::StatusCode::kNotFound) << text;
    }
  }
}

TEST_F(ToolchainsTest, WithoutCompilersEveryReasonIsGiven) {
  Toolchains toolchains(Nothing(directory_));
  const struct {
    const char* target;
    std::vector<std::string> parts;
  } cases[] = {
      {"x86-64", {"hostcxx", "/nowhere/c++", "host_compiler"}},
      {"gfx942",
       {"hiprtc", "/nowhere/libhiprtc.so", "hiprtc_library", "clang_amdgpu", "/nowhere/clang",
        "amdgpu_clang"}},
      {"sm_90a", {"nvrtc", "/nowhere/libnvrtc.so", "nvrtc_library"}},
  };
  for (const auto& c : cases) {
    const absl::Status status = toolchains.For(*Target::Parse(c.target)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), c.target)) << status;
    for (const std::string& part : c.parts) {
      EXPECT_TRUE(absl::StrContains(status.message(), part)) << part << " in " << status;
    }
    EXPECT_FALSE(absl::StrContains(status.message(), "\n")) << status;
  }
  for (const ToolchainReport& report : toolchains.Report()) {
    EXPECT_FALSE(report.found) << report.compiler;
    EXPECT_TRUE(absl::StrContains(report.reason, "/nowhere/")) << report.reason;
  }
  EXPECT_EQ(toolchains.Named("nvcc").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ToolchainsTest, ReportNamesEveryCompilerOnce) {
  Toolchains toolchains(Options(directory_));
  std::vector<std::string> names;
  for (const ToolchainReport& report : toolchains.Report()) {
    names.push_back(report.compiler);
    if (!report.found) {
      EXPECT_NE(report.reason, "") << report.compiler;
      continue;
    }
    EXPECT_EQ(report.identity.compiler, report.compiler);
    EXPECT_NE(report.identity.version, "");
    EXPECT_NE(report.identity.build, "");
    EXPECT_FALSE(report.targets.empty()) << report.compiler;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"hiprtc", "clang_amdgpu", "nvrtc", "hostcxx"}));
}

TEST_F(ToolchainsTest, OnlyLimitsTheChoice) {
  ToolchainOptions options = Options(directory_);
  options.only = {"clang_amdgpu"};
  Toolchains toolchains(options);
  EXPECT_EQ(toolchains.For(*Target::Parse("x86-64")).status().code(), absl::StatusCode::kNotFound);
  const absl::StatusOr<Compiler*> compiler = toolchains.For(*Target::Parse("gfx90a"));
  if (compiler.ok()) {
    EXPECT_EQ((*compiler)->identity().compiler, "clang_amdgpu");
  } else {
    EXPECT_TRUE(absl::StrContains(compiler.status().message(), "hiprtc: left out"));
  }
}

TEST_F(ToolchainsTest, ManyThreadsAskAtOnce) {
  Toolchains toolchains(Options(directory_));
  std::vector<Compiler*> found(8);
  std::vector<std::thread> threads;
  for (Compiler*& slot : found) {
    threads.emplace_back([&] { slot = *toolchains.For(*Target::Parse("x86-64")); });
  }
  for (std::thread& thread : threads) thread.join();
  for (Compiler* compiler : found) EXPECT_EQ(compiler, found[0]);
}

TEST_F(ToolchainsTest, CompilesManySideBySide) {
  Toolchains toolchains(Options(directory_));
  Compiler* compiler = *toolchains.For(*Target::Parse("x86-64"));
  std::vector<CompileJob> jobs;
  for (int i = 0; i < 12; ++i) {
    const std::string entry = absl::StrCat("f", i);
    const char* broken = i % 4 == 3 ? "wrong" : "";
    jobs.push_back({compiler, Request(absl::StrCat("extern \"C\" int ", entry, "() { ", broken,
                                                   " return ", i, "; }"),
                                      entry)});
  }
  std::atomic<int> done{0};
  CompilePoolOptions options;
  options.workers = 4;
  options.on_done = [&](size_t, const absl::StatusOr<CodeObject>&) { ++done; };
  const std::vector<absl::StatusOr<CodeObject>> objects = CompileAll(jobs, options);
  ASSERT_EQ(objects.size(), jobs.size());
  EXPECT_EQ(done, 12);
  for (size_t i = 0; i < objects.size(); ++i) {
    EXPECT_EQ(objects[i].ok(), i % 4 != 3) << i;
    if (objects[i].ok()) {
      EXPECT_EQ(objects[i]->entry, jobs[i].request.entry);
    } else {
      EXPECT_TRUE(absl::StrContains(objects[i].status().message(), jobs[i].request.entry));
    }
  }
  EXPECT_EQ(CompileAll({}, {}).size(), 0u);
  EXPECT_GE(CompileWorkers(), 1);
}

TEST(CompilePool, FreeMemoryIsTheTighterOfMachineAndGroup) {
  constexpr absl::string_view kInfo = "MemTotal: 100 kB\nMemAvailable:   2048 kB\nX: 1 kB\n";
  EXPECT_EQ(FreeMemoryBytes(kInfo, "", ""), 2048 * 1024);
  EXPECT_EQ(FreeMemoryBytes(kInfo, "max\n", "5\n"), 2048 * 1024);
  EXPECT_EQ(FreeMemoryBytes(kInfo, "1000\n", "400\n"), 600);
  EXPECT_EQ(FreeMemoryBytes(kInfo, "1000\n", "4000\n"), 0);
  EXPECT_EQ(FreeMemoryBytes("", "1000", "400"), 600);
  EXPECT_EQ(FreeMemoryBytes("nonsense", "", ""), -1);
  EXPECT_EQ(FreeMemoryBytes("MemAvailable: 99999999999999999999 kB", "", ""), -1);
}

}  // namespace
}  // namespace whet
