#include "src/compile/failure_store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "src/base/files.h"
#include "src/compile/diagnostics.h"

namespace whet {
namespace {

// Entries carry their time first, so that their names sort by age.
constexpr absl::string_view kEntryPrefix = "failed-";

std::string DefaultDirectory() {
  std::error_code error;
  std::string base = std::filesystem::temp_directory_path(error).string();
  if (error) base = "/tmp";
  return JoinPath(base, absl::StrCat("whet-failures-", getuid()));
}

std::string OneLine(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"\n", " "}, {"\r", " "}});
}

}  // namespace

FailureStore::FailureStore(std::string directory, int keep)
    : directory_(directory.empty() ? DefaultDirectory() : std::move(directory)),
      keep_(static_cast<size_t>(keep)) {}

absl::Status FailureStore::Prepare() const {
  absl::Status made = MakeDirectories(directory_);
  if (!made.ok()) return made;
  // Under /tmp another user may have put a directory, or a link to one of ours, at this name.
  struct stat info;
  if (lstat(directory_.c_str(), &info) != 0) return ErrnoStatus(errno, "use", directory_);
  if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 0022) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("cannot use ", directory_, ": not a directory that only its user can write"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> FailureStore::Keep(const CompileRequest& request,
                                               const std::string& log) const {
  absl::Status ready = Prepare();
  if (!ready.ok()) return ready;
  std::string entry = JoinPath(
      directory_, absl::StrFormat("%s%020d-XXXXXX", kEntryPrefix, absl::ToUnixNanos(absl::Now())));
  if (mkdtemp(entry.data()) == nullptr) return ErrnoStatus(errno, "create", entry);
  const std::string extension = request.target.platform == Platform::kCpu ? ".cc" : ".cu";
  absl::Status written = WriteFileAtomically(JoinPath(entry, "source" + extension), request.source);
  if (written.ok()) written = WriteFileAtomically(JoinPath(entry, "log.txt"), log);
  if (!written.ok()) {
    RemoveTree(entry).IgnoreError();
    return written;
  }
  DropOldest();
  return entry;
}

void FailureStore::DropOldest() const {
  absl::StatusOr<std::vector<std::string>> names = ListDirectory(directory_);
  if (!names.ok()) return;
  std::vector<std::string> entries;
  for (const std::string& name : *names) {
    if (absl::StartsWith(name, kEntryPrefix)) entries.push_back(name);
  }
  for (size_t i = 0; i + keep_ < entries.size(); ++i) {
    RemoveTree(JoinPath(directory_, entries[i])).IgnoreError();
  }
}

absl::Status FailureStore::Report(const ToolchainIdentity& identity, const CompileRequest& request,
                                  const std::vector<std::string>& options,
                                  const CompileFailure& failure) const {
  const std::string diagnostic = FirstDiagnostic(failure.log);
  std::string why = failure.cause;
  if (!diagnostic.empty()) absl::StrAppend(&why, why.empty() ? "" : ": ", diagnostic);
  if (why.empty()) why = "the compiler gave no reason";
  const std::string head = OneLine(absl::StrCat(
      "cannot compile ", request.label, " for ", request.target.ToString(), " with ",
      identity.compiler, " ", identity.version, " [", absl::StrJoin(options, " "), "]: ", why));
  const std::string log = absl::StrCat(head, "\n\n", failure.log);
  const absl::StatusOr<std::string> kept = Keep(request, log);
  return absl::Status(failure.code, kept.ok()
                                        ? absl::StrCat(head, "; source and log are in ", *kept)
                                        : absl::StrCat(head, "; source and log could not be kept (",
                                                       kept.status().message(), ")"));
}

}  // namespace whet
