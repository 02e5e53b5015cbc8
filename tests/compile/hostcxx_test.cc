#include "src/compile/hostcxx/hostcxx.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/stat.h>

#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/files.h"
#include "src/base/subprocess.h"
#include "src/compile/elf.h"

namespace whet {
namespace {

constexpr char kSum[] = R"(
#include <stdint.h>
template <int kCount> inline float Sum(const float* x) { float s = 0; for (int i = 0; i < kCount; ++i) s += x[i]; return s; }
float Helper(const float* x) { return Sum<8>(x); }
extern "C" void sum(const void* block, void* const* args) {
  **static_cast<float* const*>(args[1]) = Helper(*static_cast<const float* const*>(args[0]));
}
)";

class HostCxxTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    absl::StatusOr<TemporaryDirectory> made = TemporaryDirectory::Create("whet-hostcxx-test-");
    ASSERT_TRUE(made.ok()) << made.status();
    directory_.emplace(*std::move(made));
    failures_ = std::make_unique<FailureStore>(Path("failures"));
    const std::string name = GetParam();
    if (!FindProgram(name).ok()) GTEST_SKIP() << "SKIPPED: " << name << " is not installed";
    absl::StatusOr<std::unique_ptr<Compiler>> compiler = OpenHostCxx(name, failures_.get());
    ASSERT_TRUE(compiler.ok()) << compiler.status();
    compiler_ = *std::move(compiler);
  }

  std::string Path(const std::string& name) const { return JoinPath(directory_->path(), name); }

  CompileRequest Request(const std::string& source, const std::string& entry = "sum",
                         const std::string& target = "x86-64:avx2,fma") const {
    CompileRequest request;
    request.label = "sum cpu:test=1";
    request.source = source;
    request.entry = entry;
    request.target = *Target::Parse(target);
    return request;
  }

  std::optional<TemporaryDirectory> directory_;
  std::unique_ptr<FailureStore> failures_;
  std::unique_ptr<Compiler> compiler_;
};

INSTANTIATE_TEST_SUITE_P(Compilers, HostCxxTest, ::testing::Values("clang++-22", "clang++", "g++"),
                         [](const auto& test) {
                           std::string name = test.param;
                           for (char& c : name) {
                             if (c == '+') c = 'x';
                             if (c == '-') c = '_';
                           }
                           return name;
                         });

TEST_P(HostCxxTest, SaysWhoItIs) {
  const ToolchainIdentity& identity = compiler_->identity();
  EXPECT_EQ(identity.compiler, "hostcxx");
  EXPECT_TRUE(absl::StartsWith(identity.version, "clang ") ||
              absl::StartsWith(identity.version, "gcc "))
      << identity.version;
  EXPECT_TRUE(absl::StrContains(identity.build, identity.version.substr(6))) << identity.build;
  EXPECT_EQ(identity.path.front(), '/');
}

TEST_P(HostCxxTest, CompilesWhatRuns) {
  // The base target, so that any machine can run it.
  const absl::StatusOr<CodeObject> object = compiler_->Compile(Request(kSum, "sum", "x86-64"));
  ASSERT_TRUE(object.ok()) << object.status();
  EXPECT_EQ(object->format, "elf-so");
  EXPECT_EQ(object->entry, "sum");
  EXPECT_EQ(object->log, "");
  ASSERT_TRUE(WriteFileAtomically(Path("sum.so"), object->bytes).ok());
  void* library = dlopen(Path("sum.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  auto* sum = reinterpret_cast<void (*)(const void*, void* const*)>(dlsym(library, "sum"));
  ASSERT_NE(sum, nullptr);
  const float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  float y = 0;
  const float* in = x;
  float* out = &y;
  void* const args[] = {&in, &out};
  sum(nullptr, args);
  EXPECT_EQ(y, 36);
  dlclose(library);
}

TEST_P(HostCxxTest, KeepsNotANumberInfinityAndSignedZero) {
  constexpr char kSource[] = R"(
extern "C" int special(double nan, double inf, double zero) {
  return (nan == nan) | (inf - inf == 0) << 1 | (__builtin_isnan(nan) == 0) << 2 |
         (__builtin_signbit(zero + -0.0) != 0) << 3 | (__builtin_isinf(inf) == 0) << 4;
})";
  const absl::StatusOr<CodeObject> object =
      compiler_->Compile(Request(kSource, "special", "x86-64"));
  ASSERT_TRUE(object.ok()) << object.status();
  ASSERT_TRUE(WriteFileAtomically(Path("special.so"), object->bytes).ok());
  void* library = dlopen(Path("special.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  auto* special = reinterpret_cast<int (*)(double, double, double)>(dlsym(library, "special"));
  EXPECT_EQ(special(std::numeric_limits<double>::quiet_NaN(),
                    std::numeric_limits<double>::infinity(), 0.0),
            0);
  dlclose(library);
}

TEST_P(HostCxxTest, SameRequestGivesSameBytesAndNoTemporaryPath) {
  const CompileRequest request =
      Request(absl::StrCat(kSum, "extern \"C\" const char* file() { return __FILE__; }\n"));
  const absl::StatusOr<CodeObject> first = compiler_->Compile(request);
  const absl::StatusOr<CodeObject> second = compiler_->Compile(request);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_TRUE(first->bytes == second->bytes);
  EXPECT_FALSE(absl::StrContains(first->bytes, "whet-compile-"));
  EXPECT_FALSE(absl::StrContains(first->bytes, "/tmp"));
}

TEST_P(HostCxxTest, ExportsTheEntryAlone) {
  const absl::StatusOr<CodeObject> object = compiler_->Compile(Request(kSum));
  ASSERT_TRUE(object.ok()) << object.status();
  const absl::StatusOr<ElfFile> elf = ElfFile::Parse(object->bytes);
  ASSERT_TRUE(elf.ok());
  for (const ElfSymbol& symbol : elf->symbols()) {
    if (!symbol.defined || !symbol.global) continue;
    EXPECT_EQ(symbol.name, "sum");
  }
}

// g++ gives a static of an inline function a binding (STB_GNU_UNIQUE) that keeps the object in the
// process for ever: every loser of a tuning would stay in memory.
TEST_P(HostCxxTest, UnloadsWithStaticsOfInlineFunctions) {
  constexpr char kSource[] = R"(
inline int Next() { static int counter = 0; return ++counter; }
template <int kStep> struct Table { static inline int value = kStep; };
extern "C" int sum() { return Next() + Table<3>::value++; }
)";
  const absl::StatusOr<CodeObject> object = compiler_->Compile(Request(kSource, "sum", "x86-64"));
  ASSERT_TRUE(object.ok()) << object.status();
  const std::string path = Path("unload.so");
  ASSERT_TRUE(WriteFileAtomically(path, object->bytes).ok());
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  EXPECT_EQ(reinterpret_cast<int (*)()>(dlsym(library, "sum"))(), 4);
  dlclose(library);
  EXPECT_EQ(dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD), nullptr);
}

TEST_P(HostCxxTest, FeaturesAreExact) {
  constexpr char kSource[] = R"(
#if !defined(__AVX2__) || !defined(__FMA__) || defined(__AVX512F__) || defined(__AVX512BW__)
#error "features differ from the target's"
#endif
extern "C" void sum() {}
)";
  const absl::StatusOr<CodeObject> object = compiler_->Compile(Request(kSource));
  EXPECT_TRUE(object.ok()) << object.status();
  const std::string everything =
      "x86-64:amx-bf16,amx-int8,amx-tile,avx2,avx512bf16,avx512bw,avx512dq,avx512f,avx512fp16,"
      "avx512vl,avx512vnni,f16c,fma";
  const CompileRequest all =
      Request("#include <immintrin.h>\nextern \"C\" void sum() {}", "sum", everything);
  EXPECT_EQ(compiler_->WhyNot(all.target), "");
  const absl::StatusOr<CodeObject> with_all = compiler_->Compile(all);
  EXPECT_TRUE(with_all.ok()) << with_all.status();
  EXPECT_NE(compiler_->WhyNot(*Target::Parse("sm_90a")), "");
  EXPECT_EQ(compiler_->Compile(Request(kSum, "sum", "sm_90a")).status().code(),
            absl::StatusCode::kUnimplemented);
}

TEST_P(HostCxxTest, WrongSourceIsOneClearLine) {
  CompileRequest request = Request("extern \"C\" void sum() { wrong }\nint x = also_wrong;\n");
  request.options = {"-DWHET_TEST=1"};
  const absl::Status status = compiler_->Compile(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  for (const std::string& part :
       {std::string("cannot compile sum cpu:test=1 for x86-64:avx2,fma with hostcxx "),
        compiler_->identity().version, std::string("-mavx2 -mfma"), std::string("-DWHET_TEST=1"),
        std::string("kernel.cc:1:"), std::string("wrong"), Path("failures")}) {
    EXPECT_TRUE(absl::StrContains(status.message(), part)) << part << " in " << status;
  }
  EXPECT_FALSE(absl::StrContains(status.message(), "\n"));
  EXPECT_FALSE(absl::StrContains(status.message(), "whet-compile-"));
  const std::string message(status.message());
  const std::string kept = message.substr(message.rfind(' ') + 1);
  EXPECT_EQ(*ReadFile(JoinPath(kept, "source.cc"), 1 << 20), request.source);
  EXPECT_TRUE(absl::StrContains(*ReadFile(JoinPath(kept, "log.txt"), 1 << 20), "also_wrong"));
}

TEST_P(HostCxxTest, MissingEntryIsTold) {
  for (const char* source : {"", "void sum() {}", "extern \"C\" { extern int sum; }"}) {
    const absl::Status status = compiler_->Compile(Request(source)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << source << ": " << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "does not define sum")) << status;
  }
}

TEST_P(HostCxxTest, MemoryLimitEndsIt) {
  CompileRequest request = Request(kSum);
  request.memory_limit_bytes = 4 << 20;
  const absl::Status status = compiler_->Compile(request).status();
  EXPECT_FALSE(status.ok());
  request.memory_limit_bytes = 0;
  EXPECT_TRUE(compiler_->Compile(request).ok());
}

// A shell script in place of a compiler: works when it is probed, then misbehaves.
class BrokenHostCxxTest : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<TemporaryDirectory> made = TemporaryDirectory::Create("whet-hostcxx-test-");
    ASSERT_TRUE(made.ok()) << made.status();
    directory_.emplace(*std::move(made));
    failures_ = std::make_unique<FailureStore>(Path("failures"));
  }

  std::string Path(const std::string& name) const { return JoinPath(directory_->path(), name); }

  absl::StatusOr<std::unique_ptr<Compiler>> Open(const std::string& then) {
    const std::string script = absl::StrCat(
        "#!/bin/sh\ncase \"$1\" in --version) echo 'broken clang version 99.1.2'; exit 0;; "
        "esac\n",
        "if grep -q whet_probe kernel.cc; then exec g++ \"$@\"; fi\n", then, "\n");
    EXPECT_TRUE(WriteFileAtomically(Path("broken"), script).ok());
    EXPECT_EQ(chmod(Path("broken").c_str(), 0700), 0);
    return OpenHostCxx(Path("broken"), failures_.get());
  }

  absl::Status CompileStatus(const std::string& then, absl::Duration timeout = absl::Minutes(2)) {
    absl::StatusOr<std::unique_ptr<Compiler>> compiler = Open(then);
    if (!compiler.ok()) return compiler.status();
    CompileRequest request;
    request.label = "sum";
    request.source = kSum;
    request.entry = "sum";
    request.target = *Target::Parse("x86-64");
    request.timeout = timeout;
    return (*compiler)->Compile(request).status();
  }

  std::optional<TemporaryDirectory> directory_;
  std::unique_ptr<FailureStore> failures_;
};

TEST_F(BrokenHostCxxTest, EveryWayToFailHasItsCode) {
  const struct {
    const char* script;
    absl::StatusCode code;
    const char* part;
  } cases[] = {
      {"kill -SEGV $$", absl::StatusCode::kInternal, "killed by signal 11"},
      {"kill -ABRT $$", absl::StatusCode::kInternal, "killed by signal 6"},
      {"exit 7", absl::StatusCode::kInvalidArgument, "exited with 7"},
      {"echo 'internal compiler error: Segmentation fault' >&2; exit 1",
       absl::StatusCode::kInternal, "internal compiler error"},
      {"echo 'LLVM ERROR: out of memory' >&2; exit 1", absl::StatusCode::kInternal,
       "memory limit of 8192 MiB"},
      {"exit 0", absl::StatusCode::kInternal, "left no object"},
      {"echo garbage > kernel.so", absl::StatusCode::kInternal, "no 64-bit little-endian header"},
      {": > kernel.so", absl::StatusCode::kInternal, "gave no code object"},
      {"echo 'int other(){return 0;}' > k.c; gcc -shared -o kernel.so k.c",
       absl::StatusCode::kInternal, "does not define sum"},
      {"echo 'kernel.cc:1:1: error: odd' >&2; exit 1", absl::StatusCode::kInvalidArgument,
       "kernel.cc:1:1: error: odd"},
      {"printf 'odd \\001\\377 bytes error: here\\n'; exit 1", absl::StatusCode::kInvalidArgument,
       "bytes error: here"},
  };
  for (const auto& c : cases) {
    const absl::Status status = CompileStatus(c.script);
    EXPECT_EQ(status.code(), c.code) << c.script << ": " << status;
    EXPECT_TRUE(absl::StrContains(status.message(), c.part)) << c.script << ": " << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "clang 99.1.2")) << status;
  }
}

TEST_F(BrokenHostCxxTest, AHangIsEndedAtItsDeadline) {
  const absl::Status status =
      CompileStatus("mkfifo pipe; cat <pipe & cat <pipe", absl::Milliseconds(300));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "300ms")) << status;
}

TEST_F(BrokenHostCxxTest, MissingCompilerIsNotFound) {
  const absl::Status absent = OpenHostCxx("/nowhere/c++", failures_.get()).status();
  EXPECT_EQ(absent.code(), absl::StatusCode::kNotFound) << absent;
  EXPECT_TRUE(absl::StrContains(absent.message(), "/nowhere/c++")) << absent;
  const absl::Status useless = OpenHostCxx("/bin/true", failures_.get()).status();
  EXPECT_EQ(useless.code(), absl::StatusCode::kNotFound) << useless;
}

}  // namespace
}  // namespace whet
