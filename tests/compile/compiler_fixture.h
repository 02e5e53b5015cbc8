// A test of one compiler: where it may write, the process that hosts vendors' libraries, and the compiler
// itself. A machine that has not got the compiler skips, and says why.
//
//   class NvrtcTest : public CompilerFixture {
//    protected:
//     void SetUp() override { Use(OpenNvrtc("", &helper_, &failures_)); }
//   };
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "src/base/files.h"
#include "src/compile/compiler.h"
#include "src/compile/failure_store.h"
#include "src/compile/helper/helper_process.h"
#include "tests/compile/gpu_kernels.h"

namespace whet {

class CompilerFixture : public ::testing::Test {
 protected:
  void Use(absl::StatusOr<std::unique_ptr<Compiler>> opened) {
    if (absl::IsNotFound(opened.status())) {
      GTEST_SKIP() << "SKIPPED: not installed: " << opened.status();
    }
    ASSERT_TRUE(opened.ok()) << opened.status();
    compiler_ = *std::move(opened);
  }

  static CompileRequest Request(const std::string& target,
                                const std::string& source = kScaleKernel) {
    CompileRequest request;
    request.label = "scale test=1";
    request.source = source;
    request.entry = "scale";
    request.target = *Target::Parse(target);
    return request;
  }

  TemporaryDirectory directory_ = *TemporaryDirectory::Create("whet-compiler-test-");
  FailureStore failures_{JoinPath(directory_.path(), "failures")};
  HelperProcess helper_{""};
  std::unique_ptr<Compiler> compiler_;
};

}  // namespace whet
