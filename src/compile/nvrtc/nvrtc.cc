#include "src/compile/nvrtc/nvrtc.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "src/compile/object_check.h"
#include "src/compile/rtc_run.h"

namespace whet {
namespace {

struct Architecture {
  int number = 0;      // 90
  std::string suffix;  // "a": features of this architecture alone; "f": of its family
};

Architecture ParseArchitecture(absl::string_view text) {
  Architecture architecture;
  absl::ConsumePrefix(&text, "sm_");
  if (!text.empty() && (text.back() == 'a' || text.back() == 'f')) {
    architecture.suffix = std::string(1, text.back());
    text.remove_suffix(1);
  }
  if (!absl::SimpleAtoi(text, &architecture.number)) architecture.number = 0;
  return architecture;
}

class Nvrtc final : public Compiler {
 public:
  Nvrtc(RtcProbe probe, const HelperProcess* helper, const FailureStore* failures)
      : probe_(std::move(probe)), helper_(helper), failures_(failures) {
    for (const std::string& name : probe_.architectures) {
      known_.push_back(ParseArchitecture(name).number);
    }
    std::sort(known_.begin(), known_.end());
  }

  const ToolchainIdentity& identity() const override { return probe_.identity; }

  std::string WhyNot(const Target& target) const override {
    if (target.platform != Platform::kCuda) return "it compiles for NVIDIA GPUs only";
    const Architecture architecture = ParseArchitecture(target.architecture);
    if (Knows(architecture) || NewestBelow(architecture.number) > 0) return "";
    return absl::StrCat("NVRTC ", probe_.identity.version, " does not know ", target.architecture,
                        known_.empty() ? "" : absl::StrCat(", its oldest is sm_", known_.front()));
  }

  std::vector<std::string> Options(const CompileRequest& request) const override {
    const Architecture architecture = ParseArchitecture(request.target.architecture);
    std::vector<std::string> options;
    if (Knows(architecture)) {
      options.push_back(absl::StrCat("--gpu-architecture=", request.target.architecture));
    } else {
      options.push_back(
          absl::StrCat("--gpu-architecture=compute_", NewestBelow(architecture.number)));
    }
    options.push_back("--std=c++17");
    options.insert(options.end(), request.options.begin(), request.options.end());
    return options;
  }

  std::string ObjectFormat(const Target& target) const override {
    return Knows(ParseArchitecture(target.architecture)) ? "cubin" : "ptx";
  }

  absl::StatusOr<CodeObject> Compile(const CompileRequest& request) override {
    const std::vector<std::string> options = Options(request);
    const auto fail = [&](const CompileFailure& failure) {
      return failures_->Report(probe_.identity, request, options, failure);
    };
    if (const std::string why = WhyNot(request.target); !why.empty()) {
      return fail({absl::StatusCode::kUnimplemented, why, ""});
    }
    CodeObject object;
    object.format = ObjectFormat(request.target);
    object.entry = request.entry;
    const bool cubin = object.format == "cubin";
    RtcRun run =
        RunRtc(*helper_, probe_, {.output = cubin ? "CUBIN" : "PTX", .options = options}, request);
    if (run.failure) return fail(*run.failure);
    const absl::Status fits =
        cubin ? CheckCubin(run.bytes, request.entry, request.target, &object.resources)
              : CheckPtx(run.bytes, request.entry);
    if (!fits.ok()) return fail({fits.code(), std::string(fits.message()), run.log});
    object.bytes = std::move(run.bytes);
    object.log = std::move(run.log);
    return object;
  }

 private:
  bool Knows(const Architecture& architecture) const {
    return std::find(known_.begin(), known_.end(), architecture.number) != known_.end();
  }

  // The newest known architecture older than `number`; 0 without one.
  int NewestBelow(int number) const {
    const auto above = std::lower_bound(known_.begin(), known_.end(), number);
    return above == known_.begin() ? 0 : *(above - 1);
  }

  const RtcProbe probe_;
  std::vector<int> known_;
  const HelperProcess* helper_;
  const FailureStore* failures_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Compiler>> OpenNvrtc(const std::string& library,
                                                    const HelperProcess* helper,
                                                    const FailureStore* failures) {
  absl::StatusOr<RtcProbe> probe = ProbeRtc(
      *helper, "nvrtc",
      LibraryCandidates(library, {"libnvrtc.so.13", "/usr/local/cuda/lib64/libnvrtc.so.13",
                                  "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so.12"}));
  if (!probe.ok()) return probe.status();
  return std::make_unique<Nvrtc>(*std::move(probe), helper, failures);
}

}  // namespace whet
