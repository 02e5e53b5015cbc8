// Probing and compiling through a run-time compiler library in the helper process: what hipRTC and
// NVRTC share.
//
//   absl::StatusOr<RtcProbe> probe = ProbeRtc(helper, "nvrtc", {"libnvrtc.so.13"});
//   RtcRun run = RunRtc(helper, *probe, {.output = "CUBIN", .options = ...}, request);
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "src/compile/compiler.h"
#include "src/compile/failure_store.h"
#include "src/compile/helper/helper_process.h"

namespace whet {

struct RtcProbe {
  std::string api;
  ToolchainIdentity identity;
  std::vector<std::string> architectures;  // empty when the library cannot say
};

// NotFound when no library opens (with the loader's reasons), otherwise the helper's failure. A
// version that cannot be read is no failure but "probe-failed: ...".
absl::StatusOr<RtcProbe> ProbeRtc(const HelperProcess& helper, const std::string& api,
                                  const std::vector<std::string>& libraries);

struct RtcCompile {
  std::string output;  // see HelperRequest
  std::vector<std::string> options;
};

struct RtcRun {
  std::optional<CompileFailure> failure;
  std::string bytes;
  std::string log;
};

// Also a failure: success with an error line in the log, and a library that was replaced since it
// was probed (the object would be filed under the wrong compiler).
RtcRun RunRtc(const HelperProcess& helper, const RtcProbe& probe, const RtcCompile& compile,
              const CompileRequest& request);

// `configured`, made absolute, when it is not empty; otherwise `usual`.
std::vector<std::string> LibraryCandidates(const std::string& configured,
                                           std::vector<std::string> usual);

}  // namespace whet
