#include "src/compile/clang_amdgpu/clang_amdgpu.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/compile/compiler_fixture.h"

namespace whet {
namespace {

class ClangAmdGpuTest : public CompilerFixture {
 protected:
  void SetUp() override { Use(OpenClangAmdGpu("", &failures_)); }
};

TEST_F(ClangAmdGpuTest, CompilesForMachinesThatAreNotHere) {
  for (const char* target :
       {"gfx90a", "gfx942", "gfx942:sramecc+:xnack-", "gfx950", "gfx950:sramecc+:xnack-"}) {
    const CompileRequest request = Request(target);
    EXPECT_EQ(compiler_->WhyNot(request.target), "") << target;
    const absl::StatusOr<CodeObject> object = compiler_->Compile(request);
    ASSERT_TRUE(object.ok()) << object.status();
    EXPECT_EQ(object->format, "hsaco");
    EXPECT_EQ(object->resources.shared_bytes, 256) << target;
    EXPECT_GT(object->resources.registers, 0) << target;
    const absl::StatusOr<CodeObject> again = compiler_->Compile(request);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_TRUE(object->bytes == again->bytes) << target;
    EXPECT_FALSE(absl::StrContains(object->bytes, "/tmp")) << target;
  }
}

TEST_F(ClangAmdGpuTest, UnknownArchitectureIsTold) {
  EXPECT_TRUE(absl::StrContains(compiler_->WhyNot(*Target::Parse("gfx9ff")), "gfx9ff"));
  EXPECT_EQ(compiler_->Compile(Request("gfx9ff")).status().code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_NE(compiler_->WhyNot(*Target::Parse("sm_90a")), "");
}

TEST_F(ClangAmdGpuTest, FailuresSayWhy) {
  absl::Status status =
      compiler_->Compile(Request("gfx942", absl::StrCat(kScaleKernel, "\nint y = wrong;\n")))
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  for (absl::string_view part :
       {"scale test=1", "gfx942", "clang_amdgpu ", "kernel.cu:", "error:", "failures/failed-"}) {
    EXPECT_TRUE(absl::StrContains(status.message(), part)) << part << " in " << status;
  }
  // Compiles to an object without a kernel, and without an error.
  status = compiler_
               ->Compile(
                   Request("gfx942", "extern \"C\" __attribute__((amdgpu_kernel)) void scale() {}"))
               .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "does not define scale")) << status;
}

TEST_F(ClangAmdGpuTest, MissingCompilerIsNotFound) {
  for (const char* program : {"/nowhere/clang", "/bin/true"}) {
    const absl::Status status = OpenClangAmdGpu(program, &failures_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), program)) << status;
  }
}

}  // namespace
}  // namespace whet
