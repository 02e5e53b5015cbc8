#include "src/compile/rtc_run.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/compile/diagnostics.h"
#include "src/compile/program_run.h"

namespace whet {
namespace {

constexpr absl::Duration kProbeTimeout = absl::Seconds(60);

RtcRun Failed(absl::StatusCode code, std::string cause, std::string log) {
  RtcRun run;
  run.failure = CompileFailure{code, std::move(cause), std::move(log)};
  return run;
}

std::string Joined(const std::string& first, const std::string& second) {
  return first.empty() || second.empty() ? first + second : absl::StrCat(first, "\n", second);
}

}  // namespace

std::vector<std::string> LibraryCandidates(const std::string& configured,
                                           std::vector<std::string> usual) {
  if (configured.empty()) return usual;
  // The helper works in a directory of its own. A bare name is left to the loader's search.
  if (!absl::StrContains(configured, "/")) return {configured};
  std::error_code error;
  const std::string absolute = std::filesystem::absolute(configured, error).string();
  return {error ? configured : absolute};
}

absl::StatusOr<RtcProbe> ProbeRtc(const HelperProcess& helper, const std::string& api,
                                  const std::vector<std::string>& libraries) {
  HelperRequest request;
  request.action = HelperAction::kProbe;
  request.api = api;
  request.libraries = libraries;
  const HelperRun run = helper.Run(
      request, {.timeout = kProbeTimeout, .memory_limit_bytes = kDefaultCompilerMemoryBytes});
  const std::string tried = absl::StrJoin(libraries, ", ");
  if (!run.status.ok()) {
    const std::string said = FirstDiagnostic(run.chatter);
    return absl::Status(run.status.code(),
                        absl::StrCat("cannot open ", tried, ": ", run.status.message(),
                                     said.empty() ? "" : ": ", said));
  }
  if (run.reply.outcome != HelperOutcome::kOk) {
    return absl::NotFoundError(absl::StrCat("cannot open ", tried, ": ", run.reply.message));
  }
  RtcProbe probe;
  probe.api = api;
  probe.identity.compiler = api;
  probe.identity.version = run.reply.version.empty()
                               ? absl::StrCat("probe-failed: ", api, " does not tell its version")
                               : run.reply.version;
  probe.identity.build = run.reply.build;
  probe.identity.path = run.reply.library_path;
  probe.architectures = run.reply.architectures;
  return probe;
}

RtcRun RunRtc(const HelperProcess& helper, const RtcProbe& probe, const RtcCompile& compile,
              const CompileRequest& request) {
  HelperRequest ask;
  ask.action = HelperAction::kCompile;
  ask.api = probe.api;
  ask.libraries = {probe.identity.path};
  ask.source = request.source;
  ask.source_name = "kernel.cu";
  ask.options = compile.options;
  ask.output = compile.output;
  HelperLimits limits;
  limits.timeout = request.timeout;
  limits.memory_limit_bytes =
      request.memory_limit_bytes > 0 ? request.memory_limit_bytes : kDefaultCompilerMemoryBytes;
  HelperRun run = helper.Run(ask, limits);
  if (!run.status.ok()) {
    const bool by_memory = absl::StrContains(run.chatter, "out of memory") ||
                           absl::StrContains(run.chatter, "bad_alloc");
    std::string cause(run.status.message());
    if (by_memory) {
      absl::StrAppend(&cause, " (its memory limit is ", limits.memory_limit_bytes >> 20, " MiB)");
    }
    return Failed(run.status.code(), std::move(cause), std::move(run.chatter));
  }
  std::string log = Joined(run.reply.log, run.chatter);
  switch (run.reply.outcome) {
    case HelperOutcome::kOk:
      break;
    case HelperOutcome::kCompileError:
      return Failed(absl::StatusCode::kInvalidArgument, run.reply.message, std::move(log));
    case HelperOutcome::kNoLibrary:
    case HelperOutcome::kBadLibrary:
      return Failed(absl::StatusCode::kInternal, run.reply.message, std::move(log));
  }
  if (HasErrorLine(run.reply.log)) {
    return Failed(absl::StatusCode::kInvalidArgument,
                  absl::StrCat(probe.api, " reported success with an error in its log"),
                  std::move(log));
  }
  if (run.reply.build != probe.identity.build) {
    return Failed(absl::StatusCode::kInternal,
                  absl::StrCat(probe.identity.path,
                               " was replaced while it was in use; restart the application"),
                  std::move(log));
  }
  RtcRun done;
  done.bytes = std::move(run.reply.bytes);
  done.log = std::move(run.reply.log);
  return done;
}

}  // namespace whet
