#include "src/compile/toolchains.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "src/base/mutex.h"
#include "src/compile/clang_amdgpu/clang_amdgpu.h"
#include "src/compile/failure_store.h"
#include "src/compile/helper/helper_process.h"
#include "src/compile/hiprtc/hiprtc.h"
#include "src/compile/hostcxx/hostcxx.h"
#include "src/compile/nvrtc/nvrtc.h"

namespace whet {
namespace {

using OpenedCompiler = absl::StatusOr<std::unique_ptr<Compiler>>;

struct Services {
  const ToolchainOptions& options;
  const HelperProcess& helper;
  const FailureStore& failures;
};

struct RegistryEntry {
  const char* name;
  Platform platform;
  // Targets that people ask about, comma-separated; Report() lists those that it compiles for.
  absl::string_view well_known;
  // How to get it, for people whose machine lacks it.
  const char* remedy;
  OpenedCompiler (*open)(const Services& services);
};

constexpr absl::string_view kAmdTargets =
    "gfx906,gfx908,gfx90a,gfx942,gfx950,gfx1030,gfx1100,gfx1201";
constexpr absl::string_view kNvidiaTargets =
    "sm_75,sm_80,sm_86,sm_89,sm_90,sm_90a,sm_100,sm_100a,sm_103a,sm_120,sm_120a";

// In order of preference for a target. A new compiler is a folder and a line here.
constexpr RegistryEntry kRegistry[] = {
    {"hiprtc", Platform::kHip, kAmdTargets, "install ROCm's hipRTC, or set hiprtc_library",
     [](const Services& s) {
       return OpenHiprtc(s.options.hiprtc_library, &s.helper, &s.failures);
     }},
    {"clang_amdgpu", Platform::kHip, kAmdTargets,
     "install clang-22 and lld-22, or set amdgpu_clang",
     [](const Services& s) { return OpenClangAmdGpu(s.options.amdgpu_clang, &s.failures); }},
    {"nvrtc", Platform::kCuda, kNvidiaTargets,
     "install the CUDA toolkit's NVRTC, or set nvrtc_library",
     [](const Services& s) { return OpenNvrtc(s.options.nvrtc_library, &s.helper, &s.failures); }},
    {"hostcxx", Platform::kCpu, "x86-64", "install clang or g++, or set host_compiler",
     [](const Services& s) { return OpenHostCxx(s.options.host_compiler, &s.failures); }},
};

}  // namespace

// Invariants: (1) `opened` is set once, by the first caller that needs the slot, and never changes
// after; (2) opening runs outside the state's lock, under the slot's own, so that a slow vendor
// library holds up only those who want it.
struct Toolchains::State {
  struct Slot {
    Mutex mutex;
    bool tried ABSL_GUARDED_BY(mutex) = false;
    absl::Status error ABSL_GUARDED_BY(mutex);
    std::unique_ptr<Compiler> compiler ABSL_GUARDED_BY(mutex);
  };

  explicit State(ToolchainOptions o)
      : options(std::move(o)),
        helper(options.helper_program),
        failures(options.failure_directory),
        services{options, helper, failures} {}

  bool IsWanted(const RegistryEntry& entry) const {
    return options.only.empty() ||
           std::find(options.only.begin(), options.only.end(), entry.name) != options.only.end();
  }

  absl::StatusOr<Compiler*> Open(size_t index) {
    Slot& slot = slots[index];
    MutexLock lock(slot.mutex);
    if (!slot.tried) {
      OpenedCompiler opened = kRegistry[index].open(services);
      slot.tried = true;
      if (opened.ok()) {
        slot.compiler = *std::move(opened);
      } else {
        slot.error = opened.status();
      }
    }
    if (slot.compiler == nullptr) return slot.error;
    return slot.compiler.get();
  }

  const ToolchainOptions options;
  const HelperProcess helper;
  const FailureStore failures;
  const Services services;
  Slot slots[std::size(kRegistry)];
};

Toolchains::Toolchains(ToolchainOptions options)
    : state_(std::make_unique<State>(std::move(options))) {}

Toolchains::~Toolchains() = default;

absl::StatusOr<Compiler*> Toolchains::For(const Target& target) {
  std::vector<std::string> reasons;
  for (size_t i = 0; i < std::size(kRegistry); ++i) {
    const RegistryEntry& entry = kRegistry[i];
    if (entry.platform != target.platform) continue;
    if (!state_->IsWanted(entry)) {
      reasons.push_back(absl::StrCat(entry.name, ": left out by the option 'only'"));
      continue;
    }
    const absl::StatusOr<Compiler*> compiler = state_->Open(i);
    if (!compiler.ok()) {
      reasons.push_back(
          absl::StrCat(entry.name, ": ", compiler.status().message(), " (", entry.remedy, ")"));
      continue;
    }
    const std::string why = (*compiler)->WhyNot(target);
    if (why.empty()) return compiler;
    reasons.push_back(absl::StrCat(entry.name, " ", (*compiler)->identity().version, ": ", why,
                                   " (", entry.remedy, ")"));
  }
  return absl::NotFoundError(absl::StrCat("cannot find a compiler for ", target.ToString(), ": ",
                                          absl::StrJoin(reasons, "; ")));
}

absl::StatusOr<Compiler*> Toolchains::Named(absl::string_view name) {
  std::vector<std::string> names;
  for (size_t i = 0; i < std::size(kRegistry); ++i) {
    const RegistryEntry& entry = kRegistry[i];
    names.push_back(entry.name);
    if (name != entry.name) continue;
    const absl::StatusOr<Compiler*> compiler = state_->Open(i);
    if (compiler.ok()) return compiler;
    return absl::NotFoundError(absl::StrCat("cannot use compiler ", name, ": ",
                                            compiler.status().message(), " (", entry.remedy, ")"));
  }
  return absl::NotFoundError(absl::StrCat(
      "cannot use compiler ", name, ": no such compiler; known are ", absl::StrJoin(names, ", ")));
}

std::vector<ToolchainReport> Toolchains::Report() {
  std::vector<ToolchainReport> reports;
  for (size_t i = 0; i < std::size(kRegistry); ++i) {
    ToolchainReport report;
    report.compiler = kRegistry[i].name;
    const absl::StatusOr<Compiler*> compiler = state_->Open(i);
    report.found = compiler.ok();
    if (compiler.ok()) {
      report.identity = (*compiler)->identity();
      for (absl::string_view text : absl::StrSplit(kRegistry[i].well_known, ',')) {
        const absl::StatusOr<Target> target = Target::Parse(text);
        // PTX runs on architectures that the compiler does not know; it is not listed as knowing
        // them.
        if (target.ok() && (*compiler)->WhyNot(*target).empty() &&
            (*compiler)->ObjectFormat(*target) != "ptx") {
          report.targets.emplace_back(text);
        }
      }
    } else {
      report.reason = absl::StrCat(compiler.status().message(), " (", kRegistry[i].remedy, ")");
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

}  // namespace whet
