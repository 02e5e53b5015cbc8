#include "src/compile/helper/helper_process.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "src/base/files.h"
#include "src/base/subprocess.h"
#include "src/compile/diagnostics.h"
#include "src/compile/helper/embedded_helper.h"

namespace whet {
namespace {

constexpr char kProgramName[] = "whet_compile_helper";

// An anonymous file that holds `bytes` and can no longer be changed; -1 when the system has none.
int MakeSealedFile(absl::string_view bytes) {
  const int fd = memfd_create(kProgramName, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return -1;
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n <= 0) {
      close(fd);
      return -1;
    }
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
  return fd;
}

}  // namespace

struct HelperProcess::Program {
  std::string path;  // when not embedded
  int fd = -1;

  ~Program() {
    if (fd >= 0) close(fd);
  }

  absl::StatusOr<SubprocessResult> Start(SubprocessOptions options) const {
    options.argv = {path.empty() ? kProgramName : path};
    if (!path.empty()) return RunSubprocess(options);
    if (fd >= 0) {
      options.executable_fd = fd;
      absl::StatusOr<SubprocessResult> result = RunSubprocess(options);
      // Some hardened systems refuse to execute anonymous files.
      if (result.ok() || !absl::IsPermissionDenied(result.status())) return result;
      options.executable_fd = -1;
    }
    const std::string copy = JoinPath(options.working_directory, kProgramName);
    absl::Status written = WriteFileAtomically(copy, EmbeddedHelper());
    if (!written.ok()) return written;
    if (chmod(copy.c_str(), 0700) != 0) return ErrnoStatus(errno, "make executable", copy);
    options.argv = {copy};
    return RunSubprocess(options);
  }
};

HelperProcess::HelperProcess(std::string program) : program_(std::make_unique<Program>()) {
  program_->path = std::move(program);
  if (program_->path.empty()) program_->fd = MakeSealedFile(EmbeddedHelper());
}

HelperProcess::~HelperProcess() = default;

HelperRun HelperProcess::Run(const HelperRequest& request, const HelperLimits& limits) const {
  HelperRun run;
  absl::StatusOr<TemporaryDirectory> directory = TemporaryDirectory::Create("whet-compile-");
  if (!directory.ok()) {
    run.status = directory.status();
    return run;
  }
  SubprocessOptions options;
  options.standard_input = EncodeRequest(request);
  options.working_directory = directory->path();
  // Only what finding libraries takes: HIPRTC_COMPILE_OPTIONS_APPEND, AMD_COMGR_*, CPATH and their
  // like would change the code object behind the cache key's back.
  options.inherited_environment = {"PATH", "LD_LIBRARY_PATH"};
  options.environment = {
      {"TMPDIR", directory->path()},
      {"HOME", directory->path()},
      {"LC_ALL", "C"},
      {"AMD_COMGR_CACHE", "0"},
  };
  options.timeout = limits.timeout;
  options.memory_limit_bytes = limits.memory_limit_bytes;
  options.output_limit_bytes = int64_t{1} << 30;

  const absl::StatusOr<SubprocessResult> result = program_->Start(std::move(options));
  if (!result.ok()) {
    run.status =
        absl::Status(result.status().code(),
                     absl::StrCat("the compile helper did not start: ", result.status().message()));
    return run;
  }
  run.chatter = CleanLog(result->standard_error, directory->path());
  if (result->timed_out) {
    run.status = absl::DeadlineExceededError(
        absl::StrCat("the compile helper did not answer within ",
                     absl::FormatDuration(limits.timeout), " and was killed"));
    return run;
  }
  // The reply counts even when the process then died of an exit handler of a vendor library.
  std::optional<HelperReply> reply = DecodeReply(result->standard_output);
  if (!reply) {
    run.status = absl::InternalError(
        result->Succeeded()
            ? absl::StrCat("the compile helper gave ", result->standard_output.size(),
                           " bytes that are no reply")
            : absl::StrCat("the compiler took its helper process with it, which ",
                           result->Outcome()));
    return run;
  }
  reply->log = CleanLog(reply->log, directory->path());
  run.reply = *std::move(reply);
  return run;
}

}  // namespace whet
