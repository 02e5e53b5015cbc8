#include "src/compile/hostcxx/hostcxx.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "src/base/subprocess.h"
#include "src/compile/object_check.h"
#include "src/compile/program_run.h"

namespace whet {
namespace {

constexpr int kNewestClang = 22;
constexpr int kOldestClang = 14;  // the first with all of C++20 that kernels use

// First releases that know a feature's -m flag, where that is not every release in use.
struct FeatureSupport {
  absl::string_view feature;
  int clang;
  int gcc;
};
constexpr FeatureSupport kYoungFeatures[] = {
    {"avx512bf16", 9, 10}, {"avx512fp16", 14, 12}, {"amx-tile", 11, 11},
    {"amx-bf16", 11, 11},  {"amx-int8", 11, 11},
};

std::vector<std::string> Candidates(const std::string& program) {
  if (!program.empty()) return {program};
  std::vector<std::string> names;
  for (int version = kNewestClang; version >= kOldestClang; --version) {
    names.push_back(absl::StrCat("clang++-", version));
  }
  names.push_back("clang++");
  names.push_back("g++");
  return names;
}

class HostCxx final : public Compiler {
 public:
  HostCxx(ToolchainIdentity identity, bool is_clang, const FailureStore* failures)
      : identity_(std::move(identity)), is_clang_(is_clang), failures_(failures) {}

  const ToolchainIdentity& identity() const override { return identity_; }

  std::string WhyNot(const Target& target) const override {
    if (target.platform != Platform::kCpu) return "it compiles for the CPU only";
    for (const FeatureSupport& young : kYoungFeatures) {
      if (!target.HasFeature(young.feature)) continue;
      const int first = is_clang_ ? young.clang : young.gcc;
      if (Major() >= 0 && Major() < first) {
        return absl::StrCat(identity_.version, " does not know ", young.feature, " (",
                            is_clang_ ? "clang " : "gcc ", first, " does)");
      }
    }
    return "";
  }

  std::vector<std::string> Options(const CompileRequest& request) const override {
    std::vector<std::string> options = {
        "-std=c++20", "-O3", "-fPIC", "-shared",
        // Exact features, never -march=native: the object's key and its bytes must not depend on
        // the machine that compiles.
        "-march=x86-64"};
    for (const std::string& feature : request.target.features) options.push_back("-m" + feature);
    for (const char* option :
         {"-fno-exceptions", "-fno-rtti",
          // What is fast without touching NaN, infinities or signed zeros.
          "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast",
          // Distributions differ in these defaults; kernels have no use for them.
          "-fno-stack-protector", "-fcf-protection=none", "-U_FORTIFY_SOURCE",
          // Only the entry is exported, so nothing needs to go through the PLT.
          "-fno-semantic-interposition", "-fvisibility-inlines-hidden", "-fdiagnostics-color=never",
          // Libraries that are not used are not needed on the machine that loads the object.
          "-Wl,--as-needed", "-Wl,-Bsymbolic", "-Wl,--build-id=none"}) {
      options.push_back(option);
    }
    options.insert(options.end(), request.options.begin(), request.options.end());
    return options;
  }

  std::string ObjectFormat(const Target&) const override { return "elf-so"; }

  absl::StatusOr<CodeObject> Compile(const CompileRequest& request) override {
    const std::vector<std::string> options = Options(request);
    const auto fail = [&](const CompileFailure& failure) {
      return failures_->Report(identity_, request, options, failure);
    };
    if (const std::string why = WhyNot(request.target); !why.empty()) {
      return fail({absl::StatusCode::kUnimplemented, why, ""});
    }
    ProgramRun run = RunCompilerProgram(Command(request.entry, options), request);
    if (run.failure) return fail(*run.failure);
    const absl::Status fits = CheckSharedObject(run.bytes, request.entry);
    if (!fits.ok()) return fail({fits.code(), std::string(fits.message()), run.log});
    CodeObject object;
    object.bytes = std::move(run.bytes);
    object.format = ObjectFormat(request.target);
    object.entry = request.entry;
    object.log = std::move(run.log);
    return object;
  }

  // Whether it can build anything: clang without the C library's headers, say, can not.
  absl::Status Try() const {
    CompileRequest request;
    request.source = "#include <stdint.h>\nextern \"C\" void whet_probe(void) {}\n";
    request.timeout = absl::Minutes(1);
    const ProgramRun run = RunCompilerProgram(Command("whet_probe", {"-shared", "-fPIC"}), request);
    if (run.failure) {
      return absl::NotFoundError(absl::StrCat(run.failure->cause, " ", run.failure->log));
    }
    return CheckSharedObject(run.bytes, "whet_probe");
  }

 private:
  ProgramCompile Command(const std::string& entry, const std::vector<std::string>& options) const {
    ProgramCompile compile;
    compile.program = identity_.path;
    compile.arguments = options;
    // A symbol map instead of -fvisibility=hidden: kernels need no attribute on their entry, and
    // every other name stays local to the object.
    for (const char* argument :
         {"-Wl,--version-script=kernel.map", "-x", "c++", "kernel.cc", "-o", "kernel.so"}) {
      compile.arguments.push_back(argument);
    }
    compile.source_name = "kernel.cc";
    compile.output_name = "kernel.so";
    compile.extra_files = {{"kernel.map", absl::StrCat("{ global: ", entry, "; local: *; };\n")}};
    return compile;
  }

  int Major() const {
    const std::vector<std::string> words = absl::StrSplit(identity_.version, ' ');
    int major = -1;
    const std::string number = words.back().substr(0, words.back().find('.'));
    return absl::SimpleAtoi(number, &major) ? major : -1;
  }

  const ToolchainIdentity identity_;
  const bool is_clang_;
  const FailureStore* failures_;
};

absl::StatusOr<std::unique_ptr<Compiler>> Open(const std::string& name,
                                               const FailureStore* failures) {
  absl::StatusOr<std::string> path = FindProgram(name);
  if (!path.ok()) return path.status();
  const absl::StatusOr<std::string> line = ProgramVersionLine(*path);
  ToolchainIdentity identity;
  identity.compiler = "hostcxx";
  identity.path = *path;
  bool is_clang = absl::StrContains(name, "clang");
  if (line.ok()) {
    is_clang = absl::StrContains(*line, "clang");
    identity.version = absl::StrCat(is_clang ? "clang " : "gcc ", VersionNumberIn(*line));
    identity.build = ProgramBuild(*path, *line);
  } else {
    identity.version = absl::StrCat("probe-failed: ", line.status().message());
  }
  auto compiler = std::make_unique<HostCxx>(std::move(identity), is_clang, failures);
  const absl::Status works = compiler->Try();
  if (!works.ok()) return works;
  return compiler;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Compiler>> OpenHostCxx(const std::string& program,
                                                      const FailureStore* failures) {
  std::vector<std::string> absent;
  std::string broken;
  for (const std::string& name : Candidates(program)) {
    absl::StatusOr<std::unique_ptr<Compiler>> compiler = Open(name, failures);
    if (compiler.ok()) return compiler;
    if (!program.empty()) {
      return absl::NotFoundError(
          absl::StrCat(program, " cannot be used: ", compiler.status().message()));
    }
    const absl::StatusOr<std::string> found = FindProgram(name);
    if (found.ok()) {
      absl::StrAppend(&broken, "; ", *found, " builds no shared object (",
                      compiler.status().message(), ")");
    } else {
      absent.push_back(name);
    }
  }
  return absl::NotFoundError(
      absl::StrCat("none of ", absl::StrJoin(absent, ", "), " in PATH", broken));
}

}  // namespace whet
