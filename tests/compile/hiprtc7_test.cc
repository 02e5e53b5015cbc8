// AMD's hipRTC 7, which knows gfx942 and gfx950, and what is odd about its releases. The test command has
// tools/fetch_hiprtc7 fetch both; by hand:
//
//   --test_env=WHET_TEST_HIPRTC7=DIRECTORY/libhiprtc.so.7      ROCm 7.14
//   --test_env=WHET_TEST_HIPRTC70=DIRECTORY/libhiprtc.so.7     ROCm 7.0
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/base/files.h"
#include "src/compile/hiprtc/hiprtc.h"
#include "tests/compile/compiler_fixture.h"

namespace whet {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Release {
  const char* variable;
  const char* version;  // how it begins
};

class Hiprtc7 : public CompilerFixture, public ::testing::WithParamInterface<Release> {
 protected:
  void SetUp() override {
    const char* const library = std::getenv(GetParam().variable);
    if (library == nullptr || *library == '\0') {
      GTEST_SKIP() << "SKIPPED: " << GetParam().variable << " names no library";
    }
    library_ = library;
    Use(OpenHiprtc(library_, &helper_, &failures_));
    ASSERT_NE(compiler_, nullptr) << library_ << " is named and not found";
  }

  // The failure of a request, as people read it.
  std::string Failure(const CompileRequest& request, absl::StatusCode code) {
    const absl::Status status = compiler_->Compile(request).status();
    EXPECT_EQ(status.code(), code) << status;
    const std::string message(status.message());
    EXPECT_THAT(message, HasSubstr("scale test=1"));
    EXPECT_THAT(message, HasSubstr(absl::StrCat("hiprtc ", compiler_->identity().version)));
    EXPECT_THAT(message, Not(HasSubstr("\n")));
    return message;
  }

  std::string library_;
};

INSTANTIATE_TEST_SUITE_P(Releases, Hiprtc7,
                         ::testing::Values(Release{"WHET_TEST_HIPRTC7", "7.14."},
                                           Release{"WHET_TEST_HIPRTC70", "7.0."}),
                         [](const auto& one) {
                           return one.param.version[2] == '0' ? "Rocm70" : "Rocm714";
                         });

// hiprtcVersion says 9.0 in every release.
TEST_P(Hiprtc7, IsToldApartByWhatDiffers) {
  const ToolchainIdentity& identity = compiler_->identity();
  EXPECT_TRUE(absl::StartsWith(identity.version, GetParam().version)) << identity.version;
  for (const char* part : {"libhiprtc", "libamd_comgr"}) {
    EXPECT_THAT(identity.build, HasSubstr(part));
  }
  EXPECT_THAT(identity.build, Not(HasSubstr("/")));
}

TEST_P(Hiprtc7, CompilesForMi300AndMi350TheSameBytesEachTime) {
  for (const char* target : {"gfx90a", "gfx942", "gfx942:sramecc+:xnack-", "gfx950:sramecc+:xnack-",
                             "gfx1100", "gfx1201"}) {
    const CompileRequest request = Request(target);
    EXPECT_EQ(compiler_->WhyNot(request.target), "") << target;
    const absl::StatusOr<CodeObject> object = compiler_->Compile(request);
    ASSERT_TRUE(object.ok()) << object.status();
    EXPECT_EQ(object->resources.shared_bytes, 256) << target;
    const absl::StatusOr<CodeObject> again = compiler_->Compile(request);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_TRUE(object->bytes == again->bytes) << target;
  }
}

// Unlike in HIP 5, libamdhip64 has none of the functions.
TEST_P(Hiprtc7, TheRuntimeLibraryIsNotTheCompiler) {
  const std::string runtime =
      JoinPath(std::filesystem::path(library_).parent_path().string(), "libamdhip64.so.7");
  const absl::Status status = OpenHiprtc(runtime, &helper_, &failures_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("lacks the functions of hiprtc"));
}

// 7.14 answers with code 6 and an empty log, 7.0 crashes.
TEST_P(Hiprtc7, AnUnknownArchitectureIsNamed) {
  const std::string message = Failure(Request("gfx9ff"), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(message, HasSubstr("does not compile an empty kernel for gfx9ff"));
  EXPECT_TRUE(compiler_->Compile(Request("gfx942")).ok());
}

TEST_P(Hiprtc7, SuccessWithAnErrorInTheLogIsAFailure) {
  CompileRequest request = Request("gfx942");
  request.options = {"--offload-arch=gfx950"};
  EXPECT_FALSE(compiler_->Compile(request).ok());
}

TEST_P(Hiprtc7, AnExitInsideTheCompilerIsAStatus) {
  CompileRequest request = Request("gfx942");
  request.options = {"-mllvm", "-whet-no-such-option"};
  const std::string message = Failure(request, absl::StatusCode::kInternal);
  EXPECT_THAT(message, HasSubstr("exited with 1"));
  EXPECT_THAT(message, HasSubstr("-whet-no-such-option"));
}

TEST_P(Hiprtc7, ABuiltinThatTheTargetLacksIsNamed) {
  const std::string source = absl::StrCat(kScaleKernel, R"(
typedef short Short4 __attribute__((ext_vector_type(4)));
__device__ Short4 read(__attribute__((address_space(3))) Short4* from) {
  return __builtin_amdgcn_ds_read_tr16_b64_v4i16(from);
})");
  EXPECT_TRUE(compiler_->Compile(Request("gfx950", source)).ok());
  const std::string message =
      Failure(Request("gfx942", source), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(message, HasSubstr("for gfx942"));
  EXPECT_THAT(message, HasSubstr("__builtin_amdgcn_ds_read_tr16_b64_v4i16"));
}

TEST_P(Hiprtc7, HeadersOfTheMachineAreNoPartOfIt) {
  for (const char* header : {"hip/hip_bf16.h", "hip/hip_fp8.h"}) {
    const std::string message =
        Failure(Request("gfx942", absl::StrCat("#include <", header, ">\n", kScaleKernel)),
                absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(message, HasSubstr(header));
  }
}

TEST_P(Hiprtc7, TheEnvironmentChangesNothing) {
  const absl::StatusOr<CodeObject> first = compiler_->Compile(Request("gfx942"));
  const std::string include = JoinPath(directory_.path(), "include");
  ASSERT_TRUE(MakeDirectories(include).ok());
  const std::vector<std::pair<const char*, std::string>> variables = {
      {"HIPRTC_COMPILE_OPTIONS_APPEND", "-O0 -g"},
      {"AMD_COMGR_SAVE_TEMPS", "1"},
      {"CPATH", include},
      {"TMPDIR", "/nowhere/at/all"},  // by itself: code 6 and an empty log
      {"AMD_COMGR_CACHE", "1"},
      {"XDG_CACHE_HOME", JoinPath(directory_.path(), "cache")}};
  for (const auto& [name, value] : variables) ASSERT_EQ(setenv(name, value.c_str(), 1), 0);
  const absl::StatusOr<CodeObject> second = compiler_->Compile(Request("gfx942"));
  for (const auto& [name, value] : variables) unsetenv(name);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_TRUE(first->bytes == second->bytes);
  // AMD's own disk cache, which makes a second compile look fast, has not been used.
  EXPECT_FALSE(IsDirectory(JoinPath(directory_.path(), "cache")));
}

// One library compiles one kernel at a time; each of ours has a process of its own.
TEST_P(Hiprtc7, CompilesSideBySide) {
  std::vector<absl::Status> statuses(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < statuses.size(); ++i) {
    threads.emplace_back([this, &statuses, i] {
      statuses[i] =
          compiler_->Compile(Request("gfx950", absl::StrCat(kScaleKernel, "\nint x", i, ";")))
              .status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
}

// A library without its comgr crashes at the first use: that must stay in the helper.
TEST_P(Hiprtc7, HalfAnInstallationIsToldAndSurvived) {
  const std::filesystem::path whole = std::filesystem::path(library_).parent_path();
  const std::filesystem::path half = JoinPath(directory_.path(), "half");
  std::filesystem::create_directory(half);
  for (const auto& entry : std::filesystem::directory_iterator(whole)) {
    const std::string name = entry.path().filename().string();
    if (absl::StartsWith(name, "libamd_comgr")) continue;
    std::filesystem::create_symlink(entry.path(), half / name);
  }
  const std::string library = (half / "libhiprtc.so.7").string();
  absl::StatusOr<std::unique_ptr<Compiler>> opened = OpenHiprtc(library, &helper_, &failures_);
  absl::Status status = opened.status();
  if (opened.ok()) status = (*opened)->Compile(Request("gfx942")).status();
  EXPECT_FALSE(status.ok());
  EXPECT_GT(status.message().size(), 40u) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), library) ||
              absl::StrContains(status.message(), "gfx942"))
      << status;
  EXPECT_TRUE(compiler_->Compile(Request("gfx942")).ok());
}

}  // namespace
}  // namespace whet
