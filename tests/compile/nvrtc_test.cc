#include "src/compile/nvrtc/nvrtc.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/compile/compiler_fixture.h"

namespace whet {
namespace {

class NvrtcTest : public CompilerFixture {
 protected:
  void SetUp() override { Use(OpenNvrtc("", &helper_, &failures_)); }
};

TEST_F(NvrtcTest, SaysWhoItIs) {
  EXPECT_EQ(compiler_->identity().compiler, "nvrtc");
  EXPECT_TRUE(absl::StrContains(compiler_->identity().version, "."));
  EXPECT_TRUE(absl::StrContains(compiler_->identity().build, "libnvrtc"));
  EXPECT_TRUE(absl::StrContains(compiler_->identity().build, "builtins"));
}

TEST_F(NvrtcTest, CompilesExactArchitectures) {
  for (const char* target : {"sm_80", "sm_90", "sm_90a"}) {
    const CompileRequest request = Request(target);
    ASSERT_EQ(compiler_->WhyNot(request.target), "") << target;
    EXPECT_EQ(compiler_->ObjectFormat(request.target), "cubin");
    const absl::StatusOr<CodeObject> object = compiler_->Compile(request);
    ASSERT_TRUE(object.ok()) << object.status();
    EXPECT_EQ(object->format, "cubin");
    EXPECT_EQ(object->resources.shared_bytes, 256) << target;
    EXPECT_GT(object->resources.registers, 0) << target;
    EXPECT_EQ(object->resources.spill_bytes, 0) << target;
    const absl::StatusOr<CodeObject> again = compiler_->Compile(request);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_TRUE(object->bytes == again->bytes) << target;
  }
}

TEST_F(NvrtcTest, ArchitectureSpecificInstructionsAreThere) {
  constexpr char kWarpGroup[] = R"(
extern "C" __global__ void scale() { asm volatile("wgmma.fence.sync.aligned;"); }
)";
  EXPECT_TRUE(compiler_->Compile(Request("sm_90a", kWarpGroup)).ok());
  const absl::Status status = compiler_->Compile(Request("sm_90", kWarpGroup)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
}

TEST_F(NvrtcTest, ANewerArchitectureGetsPtxForTheDriver) {
  const CompileRequest request = Request("sm_299a");
  EXPECT_EQ(compiler_->WhyNot(request.target), "");
  EXPECT_EQ(compiler_->ObjectFormat(request.target), "ptx");
  const absl::StatusOr<CodeObject> object = compiler_->Compile(request);
  ASSERT_TRUE(object.ok()) << object.status();
  EXPECT_EQ(object->format, "ptx");
  EXPECT_TRUE(absl::StrContains(object->bytes, ".entry scale("));
}

TEST_F(NvrtcTest, AnOlderArchitectureIsRefused) {
  EXPECT_TRUE(absl::StrContains(compiler_->WhyNot(*Target::Parse("sm_20")), "sm_20"));
  EXPECT_EQ(compiler_->Compile(Request("sm_20")).status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(compiler_->WhyNot(*Target::Parse("gfx90a")), "");
}

TEST_F(NvrtcTest, FailuresSayWhy) {
  absl::Status status =
      compiler_->Compile(Request("sm_90a", absl::StrCat(kScaleKernel, "\nint y = wrong;\n")))
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  for (absl::string_view part :
       {"scale test=1", "sm_90a", "nvrtc ", "kernel.cu(", "error:", "failures/failed-"}) {
    EXPECT_TRUE(absl::StrContains(status.message(), part)) << part << " in " << status;
  }
  CompileRequest request = Request("sm_90a");
  request.options = {"--no-such-option"};
  status = compiler_->Compile(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "--no-such-option")) << status;
  for (const char* source : {"", "__global__ void scale() {}"}) {
    status = compiler_->Compile(Request("sm_90a", source)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "does not define scale")) << status;
  }
}

TEST_F(NvrtcTest, SpillsAreCounted) {
  constexpr char kGreedy[] = R"(
extern "C" __global__ void __launch_bounds__(1024, 2) scale(float* x, int n) {
  float a[96];
  for (int i = 0; i < 96; ++i) a[i] = x[i * n];
  for (int k = 0; k < n; ++k)
#pragma unroll
    for (int i = 0; i < 96; ++i) a[i] = a[i] * a[(i + 1) % 96] + a[(i + 7) % 96];
  for (int i = 0; i < 96; ++i) x[i * n] = a[i];
}
)";
  const absl::StatusOr<CodeObject> object = compiler_->Compile(Request("sm_90a", kGreedy));
  ASSERT_TRUE(object.ok()) << object.status();
  EXPECT_GT(object->resources.spill_bytes, 0);
}

}  // namespace
}  // namespace whet
