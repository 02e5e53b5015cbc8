#include "src/compile/hiprtc/hiprtc.h"

#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "src/base/mutex.h"
#include "src/compile/object_check.h"
#include "src/compile/rtc_run.h"

namespace whet {
namespace {

// Which architectures a release compiles for; hipRTC cannot say. Architectures that are not here
// are tried once: a release that does not know one answers with an error at best and a crash at
// worst, in the helper.
struct Support {
  absl::string_view pattern;
  int first_major;
  int first_minor;
};
constexpr Support kSupport[] = {
    {"gfx803", 4, 0},  {"gfx900", 4, 0},  {"gfx906", 4, 0},  {"gfx908", 4, 0},  {"gfx90a", 4, 3},
    {"gfx1010", 4, 3}, {"gfx1030", 4, 3}, {"gfx940", 6, 0},  {"gfx941", 6, 0},  {"gfx942", 6, 0},
    {"gfx950", 7, 0},  {"gfx1100", 6, 0}, {"gfx1101", 6, 0}, {"gfx1102", 6, 0}, {"gfx120?", 6, 4},
};

constexpr char kProbeSource[] = "extern \"C\" __global__ void whet_probe() {}\n";

class Hiprtc final : public Compiler {
 public:
  Hiprtc(RtcProbe probe, const HelperProcess* helper, const FailureStore* failures)
      : probe_(std::move(probe)), helper_(helper), failures_(failures) {
    const std::vector<std::string> parts = absl::StrSplit(probe_.identity.version, '.');
    if (parts.size() < 2 || !absl::SimpleAtoi(parts[0], &major_) ||
        !absl::SimpleAtoi(parts[1], &minor_)) {
      major_ = 0;
    }
  }

  const ToolchainIdentity& identity() const override { return probe_.identity; }

  std::string WhyNot(const Target& target) const override {
    if (target.platform != Platform::kHip) return "it compiles for AMD GPUs only";
    for (const Support& support : kSupport) {
      // Without a version nothing is known.
      if (major_ == 0 || !MatchesGlob(support.pattern, target.architecture)) continue;
      if (std::pair(major_, minor_) >= std::pair(support.first_major, support.first_minor)) {
        // Later releases dropped gfx940 and gfx941; a try tells.
        if (target.architecture == "gfx940" || target.architecture == "gfx941") break;
        return "";
      }
      return absl::StrCat("hipRTC before ", support.first_major, ".", support.first_minor,
                          " does not know ", target.architecture);
    }
    return TryOnce(target.architecture);
  }

  std::vector<std::string> Options(const CompileRequest& request) const override {
    std::vector<std::string> options = {absl::StrCat("--offload-arch=", request.target.ToString()),
                                        // Releases differ in their default.
                                        "-std=c++17", "-O3"};
    options.insert(options.end(), request.options.begin(), request.options.end());
    return options;
  }

  std::string ObjectFormat(const Target&) const override { return "hsaco"; }

  absl::StatusOr<CodeObject> Compile(const CompileRequest& request) override {
    const std::vector<std::string> options = Options(request);
    const auto fail = [&](const CompileFailure& failure) {
      return failures_->Report(probe_.identity, request, options, failure);
    };
    // Not WhyNot: the helper bears whatever a release does to an architecture it does not know.
    if (request.target.platform != Platform::kHip) {
      return fail({absl::StatusCode::kUnimplemented, WhyNot(request.target), ""});
    }
    RtcRun run = RunRtc(*helper_, probe_, {.output = "Code", .options = options}, request);
    if (run.failure) {
      // An unknown architecture gives an empty log, or no answer at all.
      const std::string why =
          run.failure->code == absl::StatusCode::kDeadlineExceeded ? "" : WhyNot(request.target);
      if (!why.empty()) {
        run.failure->code = absl::StatusCode::kUnimplemented;
        run.failure->cause = absl::StrCat(why, "; ", run.failure->cause);
      }
      return fail(*run.failure);
    }
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
  // Compiles an empty kernel, outside the lock: two callers at once both try, and agree.
  std::string TryOnce(const std::string& architecture) const {
    {
      MutexLock lock(mutex_);
      const auto found = tried_.find(architecture);
      if (found != tried_.end()) return found->second;
    }
    CompileRequest request;
    request.source = kProbeSource;
    request.entry = "whet_probe";
    request.target.platform = Platform::kHip;
    request.target.architecture = architecture;
    request.timeout = absl::Minutes(1);
    const RtcRun run =
        RunRtc(*helper_, probe_, {.output = "Code", .options = Options(request)}, request);
    std::string why;
    ResourceUse resources;
    if (run.failure) {
      why = absl::StrCat("it does not compile an empty kernel for ", architecture, " (",
                         run.failure->cause, ")");
    } else if (const absl::Status fits =
                   CheckAmdObject(run.bytes, request.entry, request.target, &resources);
               !fits.ok()) {
      why = std::string(fits.message());
    }
    MutexLock lock(mutex_);
    tried_.emplace(architecture, why);
    return why;
  }

  const RtcProbe probe_;
  int major_ = 0;
  int minor_ = 0;
  const HelperProcess* helper_;
  const FailureStore* failures_;
  mutable Mutex mutex_;
  mutable absl::flat_hash_map<std::string, std::string> tried_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<Compiler>> OpenHiprtc(const std::string& library,
                                                     const HelperProcess* helper,
                                                     const FailureStore* failures) {
  absl::StatusOr<RtcProbe> probe =
      ProbeRtc(*helper, "hiprtc",
               LibraryCandidates(library, {"libhiprtc.so.7", "/opt/rocm/lib/libhiprtc.so.7",
                                           "libhiprtc.so.6", "/opt/rocm/lib/libhiprtc.so.6",
                                           "libamdhip64.so.5", "/opt/rocm/lib/libamdhip64.so.5"}));
  if (!probe.ok()) return probe.status();
  return std::make_unique<Hiprtc>(*std::move(probe), helper, failures);
}

}  // namespace whet
