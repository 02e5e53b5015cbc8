#include "src/compile/clang_amdgpu/clang_amdgpu.h"

#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/base/mutex.h"
#include "src/base/subprocess.h"
#include "src/compile/object_check.h"
#include "src/compile/program_run.h"

namespace whet {
namespace {

constexpr char kProbeSource[] = "extern \"C\" __attribute__((global)) void whet_probe() {}\n";

class ClangAmdGpu final : public Compiler {
 public:
  ClangAmdGpu(ToolchainIdentity identity, const FailureStore* failures)
      : identity_(std::move(identity)), failures_(failures) {}

  const ToolchainIdentity& identity() const override { return identity_; }

  std::string WhyNot(const Target& target) const override {
    if (target.platform != Platform::kHip) return "it compiles for AMD GPUs only";
    {
      MutexLock lock(mutex_);
      const auto found = tried_.find(target.architecture);
      if (found != tried_.end()) return found->second;
    }
    // An empty kernel tells more than a table: distributions leave the linker or the back end out.
    CompileRequest request;
    request.source = kProbeSource;
    request.entry = "whet_probe";
    request.target.platform = Platform::kHip;
    request.target.architecture = target.architecture;
    request.timeout = absl::Minutes(1);
    const ProgramRun run = RunCompilerProgram(Command(Options(request)), request);
    std::string why;
    ResourceUse resources;
    if (run.failure) {
      why = absl::StrCat("it does not compile an empty kernel for ", target.architecture, " (",
                         run.failure->cause, run.failure->log, ")");
    } else if (const absl::Status fits =
                   CheckAmdObject(run.bytes, request.entry, request.target, &resources);
               !fits.ok()) {
      why = std::string(fits.message());
    }
    MutexLock lock(mutex_);
    tried_.emplace(target.architecture, why);
    return why;
  }

  std::vector<std::string> Options(const CompileRequest& request) const override {
    std::vector<std::string> options = {
        absl::StrCat("--offload-arch=", request.target.ToString()),
        "--offload-device-only",
        // Otherwise the output is an offload bundle, not an ELF file.
        "--no-gpu-bundle-output",
        // What every ROCm since 5.0 loads.
        "-mcode-object-version=5",
        "-nogpuinc",
        "-nogpulib",
        "-std=c++17",
        "-O3",
        "-fno-color-diagnostics",
    };
    options.insert(options.end(), request.options.begin(), request.options.end());
    return options;
  }

  std::string ObjectFormat(const Target&) const override { return "hsaco"; }

  absl::StatusOr<CodeObject> Compile(const CompileRequest& request) override {
    const std::vector<std::string> options = Options(request);
    const auto fail = [&](const CompileFailure& failure) {
      return failures_->Report(identity_, request, options, failure);
    };
    if (const std::string why = WhyNot(request.target); !why.empty()) {
      return fail({absl::StatusCode::kUnimplemented, why, ""});
    }
    ProgramRun run = RunCompilerProgram(Command(options), request);
    if (run.failure) return fail(*run.failure);
    CodeObject object;
    const absl::Status fits =
        CheckAmdObject(run.bytes, request.entry, request.target, &object.resources);
    if (!fits.ok()) return fail({fits.code(), std::string(fits.message()), run.log});
    object.bytes = std::move(run.bytes);
    object.format = ObjectFormat(request.target);
    object.entry = request.entry;
    object.log = std::move(run.log);
    return object;
  }

 private:
  ProgramCompile Command(const std::vector<std::string>& options) const {
    ProgramCompile compile;
    compile.program = identity_.path;
    compile.arguments = {"-x", "hip"};
    compile.arguments.insert(compile.arguments.end(), options.begin(), options.end());
    for (const char* argument : {"kernel.cu", "-o", "kernel.hsaco"}) {
      compile.arguments.push_back(argument);
    }
    compile.source_name = "kernel.cu";
    compile.output_name = "kernel.hsaco";
    return compile;
  }

  const ToolchainIdentity identity_;
  const FailureStore* failures_;
  mutable Mutex mutex_;
  mutable absl::flat_hash_map<std::string, std::string> tried_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<Compiler>> OpenClangAmdGpu(const std::string& program,
                                                          const FailureStore* failures) {
  const std::vector<std::string> candidates =
      program.empty()
          ? std::vector<std::string>{"clang-22", "clang-21", "clang-20", "/opt/rocm/llvm/bin/clang"}
          : std::vector<std::string>{program};
  std::vector<std::string> reasons;
  for (const std::string& name : candidates) {
    const absl::StatusOr<std::string> path = FindProgram(name);
    if (!path.ok()) {
      reasons.push_back(std::string(path.status().message()));
      continue;
    }
    const absl::StatusOr<std::string> line = ProgramVersionLine(*path);
    if (!line.ok() || !absl::StrContains(*line, "clang")) {
      reasons.push_back(absl::StrCat(*path, " does not say that it is clang"));
      continue;
    }
    ToolchainIdentity identity;
    identity.compiler = "clang_amdgpu";
    identity.version = VersionNumberIn(*line);
    identity.build = ProgramBuild(*path, *line);
    identity.path = *path;
    return std::make_unique<ClangAmdGpu>(std::move(identity), failures);
  }
  return absl::NotFoundError(
      program.empty() ? absl::StrCat("none of ", absl::StrJoin(candidates, ", "), " is there")
                      : absl::StrJoin(reasons, "; "));
}

}  // namespace whet
