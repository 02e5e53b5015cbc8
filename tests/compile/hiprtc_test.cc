#include "src/compile/hiprtc/hiprtc.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/compile/compiler_fixture.h"

namespace whet {
namespace {

// The library of HIP 5 by name: another one of a newer ROCm is free to know more architectures.
constexpr char kHip5[] = "libamdhip64.so.5";

class HiprtcTest : public CompilerFixture {
 protected:
  void SetUp() override { Use(OpenHiprtc(kHip5, &helper_, &failures_)); }
};

TEST_F(HiprtcTest, SaysWhoItIs) {
  const ToolchainIdentity& identity = compiler_->identity();
  EXPECT_EQ(identity.compiler, "hiprtc");
  EXPECT_TRUE(absl::StartsWith(identity.version, "5.")) << identity.version;
  EXPECT_TRUE(absl::StrContains(identity.build, "libamdhip64.so.5")) << identity.build;
  EXPECT_TRUE(absl::StrContains(identity.build, "amd_comgr")) << identity.build;
  EXPECT_FALSE(absl::StrContains(identity.build, "/")) << identity.build;
  EXPECT_EQ(identity.path.front(), '/');
}

TEST_F(HiprtcTest, CompilesForWhatItKnows) {
  for (const char* target :
       {"gfx908", "gfx90a", "gfx90a:sramecc+:xnack-", "gfx90a:xnack+", "gfx1030"}) {
    const CompileRequest request = Request(target);
    EXPECT_EQ(compiler_->WhyNot(request.target), "") << target;
    const absl::StatusOr<CodeObject> object = compiler_->Compile(request);
    ASSERT_TRUE(object.ok()) << object.status();
    EXPECT_EQ(object->format, "hsaco");
    EXPECT_EQ(object->resources.shared_bytes, 256) << target;
    EXPECT_GT(object->resources.registers, 0) << target;
    EXPECT_GT(object->resources.scalar_registers, 0) << target;
    EXPECT_EQ(object->resources.spill_bytes, 0) << target;
    EXPECT_FALSE(absl::StrContains(object->bytes, "whet-compile-")) << target;
  }
}

TEST_F(HiprtcTest, SameRequestGivesSameBytesWhateverTheEnvironment) {
  const absl::StatusOr<CodeObject> first = compiler_->Compile(Request("gfx90a"));
  ASSERT_EQ(setenv("HIPRTC_COMPILE_OPTIONS_APPEND", "-O0 -g", 1), 0);
  ASSERT_EQ(setenv("AMD_COMGR_SAVE_TEMPS", "1", 1), 0);
  ASSERT_EQ(setenv("CPLUS_INCLUDE_PATH", "/nowhere", 1), 0);
  const absl::StatusOr<CodeObject> second = compiler_->Compile(Request("gfx90a"));
  for (const char* name :
       {"HIPRTC_COMPILE_OPTIONS_APPEND", "AMD_COMGR_SAVE_TEMPS", "CPLUS_INCLUDE_PATH"}) {
    unsetenv(name);
  }
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_TRUE(first->bytes == second->bytes);
}

TEST_F(HiprtcTest, ACrashOfTheCompilerIsAStatusHere) {
  // hipRTC 5.2 aborts the process for gfx942; this process is still there to see it.
  const absl::Status status = compiler_->Compile(Request("gfx942")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "does not know gfx942")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "signal 6 (Aborted)")) << status;
  EXPECT_TRUE(absl::StrContains(compiler_->WhyNot(*Target::Parse("gfx942")), "gfx942"));
  EXPECT_TRUE(compiler_->Compile(Request("gfx90a")).ok());
}

TEST_F(HiprtcTest, AnUnlistedArchitectureIsTried) {
  EXPECT_EQ(compiler_->WhyNot(*Target::Parse("gfx1031")), "");
  EXPECT_NE(compiler_->WhyNot(*Target::Parse("gfx9ff")), "");
  EXPECT_NE(compiler_->WhyNot(*Target::Parse("sm_90a")), "");
  const absl::Status status = compiler_->Compile(Request("gfx9ff")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "gfx9ff")) << status;
}

TEST_F(HiprtcTest, AnExitInsideTheCompilerIsAStatusHere) {
  CompileRequest request = Request("gfx90a");
  request.options = {"-mllvm", "-whet-no-such-option"};
  const absl::Status status = compiler_->Compile(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "exited with 1")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "-whet-no-such-option")) << status;
}

TEST_F(HiprtcTest, WrongSourceIsOneClearLine) {
  const absl::Status status =
      compiler_->Compile(Request("gfx90a", absl::StrCat(kScaleKernel, "\nint y = wrong;\n")))
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  for (absl::string_view part : {"cannot compile scale test=1 for gfx90a with hiprtc 5.",
                                 "--offload-arch=gfx90a", "error:", "wrong", "failures/failed-"}) {
    EXPECT_TRUE(absl::StrContains(status.message(), part)) << part << " in " << status;
  }
  EXPECT_FALSE(absl::StrContains(status.message(), "comgr-")) << status;
  EXPECT_FALSE(absl::StrContains(status.message(), "\n")) << status;
}

TEST_F(HiprtcTest, SourceWithoutTheKernelIsTold) {
  for (const char* source :
       {"", "extern \"C\" __device__ void scale() {}", "__global__ void scale() {}",
        "extern \"C\" __global__ void other() {}"}) {
    const absl::Status status = compiler_->Compile(Request("gfx90a", source)).status();
    EXPECT_FALSE(status.ok()) << source;
    EXPECT_GT(status.message().size(), 40u) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "scale test=1")) << status;
  }
}

TEST_F(HiprtcTest, DeadlineAndMemoryLimitHold) {
  CompileRequest request = Request("gfx90a");
  request.timeout = absl::Milliseconds(1);
  EXPECT_EQ(compiler_->Compile(request).status().code(), absl::StatusCode::kDeadlineExceeded);
  request = Request("gfx90a");
  request.memory_limit_bytes = 16 << 20;
  const absl::Status status = compiler_->Compile(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
}

TEST_F(HiprtcTest, MissingLibraryIsNotFound) {
  const absl::Status status = OpenHiprtc("/nowhere/libhiprtc.so", &helper_, &failures_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "/nowhere/libhiprtc.so")) << status;
  const absl::Status other = OpenHiprtc("libc.so.6", &helper_, &failures_).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kNotFound) << other;
  EXPECT_TRUE(absl::StrContains(other.message(), "lacks the functions of hiprtc")) << other;
}

}  // namespace
}  // namespace whet
