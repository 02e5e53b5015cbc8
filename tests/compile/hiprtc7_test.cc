// AMD's hipRTC 7, which knows gfx942 and gfx950. tools/fetch_hiprtc7 DIRECTORY fetches it; run with
//
//   --test_env=WHET_TEST_HIPRTC7=DIRECTORY/libhiprtc.so.7
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/files.h"
#include "src/compile/hiprtc/hiprtc.h"
#include "tests/compile/gpu_kernels.h"

namespace whet {
namespace {

TEST(Hiprtc7, CompilesForMi300AndMi350) {
  const char* library = std::getenv("WHET_TEST_HIPRTC7");
  if (library == nullptr) GTEST_SKIP() << "SKIPPED: WHET_TEST_HIPRTC7 names no library";
  const TemporaryDirectory directory = *TemporaryDirectory::Create("whet-hiprtc7-test-");
  const FailureStore failures(JoinPath(directory.path(), "failures"));
  const HelperProcess helper("");
  absl::StatusOr<std::unique_ptr<Compiler>> opened = OpenHiprtc(library, &helper, &failures);
  ASSERT_TRUE(opened.ok()) << opened.status();
  Compiler& compiler = **opened;
  EXPECT_TRUE(absl::StartsWith(compiler.identity().version, "7.")) << compiler.identity().version;
  for (const char* part : {"libhiprtc", "libamd_comgr"}) {
    EXPECT_TRUE(absl::StrContains(compiler.identity().build, part)) << compiler.identity().build;
  }
  CompileRequest request;
  request.label = "scale hip:test=1";
  request.source = kScaleKernel;
  request.entry = "scale";
  for (const char* target : {"gfx90a", "gfx942", "gfx942:sramecc+:xnack-", "gfx950:sramecc+:xnack-",
                             "gfx1100", "gfx1201"}) {
    request.target = *Target::Parse(target);
    EXPECT_EQ(compiler.WhyNot(request.target), "") << target;
    const absl::StatusOr<CodeObject> object = compiler.Compile(request);
    ASSERT_TRUE(object.ok()) << object.status();
    EXPECT_EQ(object->resources.shared_bytes, 256) << target;
    const absl::StatusOr<CodeObject> again = compiler.Compile(request);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_TRUE(object->bytes == again->bytes) << target;
  }
  // An error that 7.14 reports with an empty log, and 7.0 with a crash.
  request.target = *Target::Parse("gfx9ff");
  EXPECT_EQ(compiler.Compile(request).status().code(), absl::StatusCode::kUnimplemented);
  // Reported as success, with an error in the log.
  request.target = *Target::Parse("gfx942");
  request.options = {"--offload-arch=gfx950"};
  EXPECT_FALSE(compiler.Compile(request).ok());
  request.options = {"-mllvm", "-whet-no-such-option"};
  const absl::Status status = compiler.Compile(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "-whet-no-such-option")) << status;
}

}  // namespace
}  // namespace whet
