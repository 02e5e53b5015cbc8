// Single files of the store: read whole, written whole, stamped, removed. The header says why this
// needs no lock.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "cache/entry_file_format.h"
#include "cache/entry_files_internal.h"
#include "src/base/descriptor.h"
#include "src/base/files.h"

namespace whet {
namespace {

constexpr int64_t kTouchIntervalSeconds = 3600;
constexpr int kTries = 2;

}  // namespace

absl::StatusOr<EntryFileStore::FoundFile> EntryFileStore::ReadEntry(const std::string& name) const {
  const int64_t limit = EntryFileLimit(options_.object_limit_bytes);
  int error = ENOENT;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    Descriptor fd(openat(directory_->fd(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    struct stat info;
    if (fd.get() < 0 || fstat(fd.get(), &info) != 0) {
      error = errno;
      if (error == ESTALE) continue;
      break;
    }
    if (!IsTrusted(info)) {
      return absl::PermissionDeniedError(absl::StrCat("cannot trust ", name));
    }
    if (info.st_size > limit) return absl::DataLossError(absl::StrCat(name, " is too large"));
    FoundFile file{.bytes = std::string(info.st_size, '\0'),
                   .used_unix_s = info.st_mtim.tv_sec,
                   .inode = info.st_ino};
    size_t done = 0;
    error = 0;
    while (done < file.bytes.size()) {
      const ssize_t got = pread(fd.get(), file.bytes.data() + done, file.bytes.size() - done,
                                static_cast<off_t>(done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        error = got < 0 ? errno : EIO;
        break;
      }
      done += static_cast<size_t>(got);
    }
    if (error == 0) return file;
    if (error != ESTALE) break;
  }
  return ErrnoStatus(error, "read", JoinPath(directory_->path(), name));
}

absl::Status EntryFileStore::WriteEntry(const std::string& name, const std::string& bytes,
                                        const std::string& second_name) {
  if (options_.read_only) return absl::UnavailableError("cannot write the cache: it is read-only");
  const int at = directory_->fd();
  for (const std::string& target : {name, second_name}) {
    if (target.empty()) continue;
    const size_t first = target.find('/'), last = target.rfind('/');
    mkdirat(at, target.substr(0, first).c_str(), 0700);
    mkdirat(at, target.substr(0, last).c_str(), 0700);
  }
  // Unique among nodes, processes and threads; O_EXCL guards what chance leaves.
  std::random_device random;
  const std::string temporary =
      absl::StrCat(name, ".tmp-", absl::Hex(random()), absl::Hex(random()), "-", next_temporary_++);
  const std::string path = JoinPath(directory_->path(), name);
  absl::Status status;
  struct stat written = {};
  {
    Descriptor fd(
        openat(at, temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (fd.get() < 0) return ErrnoStatus(errno, "create", path);
    for (size_t done = 0; status.ok() && done < bytes.size();) {
      const ssize_t put = write(fd.get(), bytes.data() + done, bytes.size() - done);
      if (put < 0 && errno != EINTR) status = ErrnoStatus(errno, "write", path);
      if (put > 0) done += static_cast<size_t>(put);
    }
    if (status.ok() && fsync(fd.get()) != 0) status = ErrnoStatus(errno, "sync", path);
    if (status.ok() && fstat(fd.get(), &written) != 0) status = ErrnoStatus(errno, "inspect", path);
  }
  if (status.ok() && !second_name.empty()) {
    // A second name for the same file, put in place the same way. Without hard links the code is
    // still found by its key.
    const std::string link = absl::StrCat(temporary, ".link");
    if (linkat(at, temporary.c_str(), at, link.c_str(), 0) == 0) {
      if (renameat(at, link.c_str(), at, second_name.c_str()) != 0) unlinkat(at, link.c_str(), 0);
    }
  }
  if (status.ok() && renameat(at, temporary.c_str(), at, name.c_str()) != 0) {
    // A network client that sends a rename twice may see its own success as ENOENT.
    const int error = errno;
    struct stat placed;
    const bool done = error == ENOENT &&
                      fstatat(at, name.c_str(), &placed, AT_SYMLINK_NOFOLLOW) == 0 &&
                      placed.st_ino == written.st_ino;
    if (!done) status = ErrnoStatus(error, "rename", path);
  }
  // Not before it is in place: until then its time is the file server's, see RemoveAbandoned.
  if (status.ok()) SetTime(name);
  if (!status.ok()) {
    unlinkat(at, temporary.c_str(), 0);
    return status;
  }
  for (const std::string& target : {name, second_name}) {
    if (target.empty()) continue;
    Descriptor folder(openat(at, target.substr(0, target.rfind('/')).c_str(),
                             O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    // Some network file systems refuse to sync a directory; their rename is durable by itself.
    if (folder.get() >= 0 && fsync(folder.get()) != 0 && errno != EINVAL && errno != ENOTSUP) {
      return ErrnoStatus(errno, "sync the directory of", path);
    }
  }
  return absl::OkStatus();
}

void EntryFileStore::Touch(const std::string& name, int64_t used_unix_s) const {
  if (options_.read_only) return;
  const int64_t now = NowUnixSeconds();
  if (now - used_unix_s < kTouchIntervalSeconds && used_unix_s <= now + kTouchIntervalSeconds) {
    return;
  }
  SetTime(name);
}

void EntryFileStore::SetTime(const std::string& name) const {
  const timespec now = {NowUnixSeconds(), 0};
  const timespec times[2] = {now, now};
  utimensat(directory_->fd(), name.c_str(), times, AT_SYMLINK_NOFOLLOW);
}

absl::Status EntryFileStore::Erase(const std::string& name) {
  if (options_.read_only) return absl::UnavailableError("cannot write the cache: it is read-only");
  if (unlinkat(directory_->fd(), name.c_str(), 0) == 0 || errno == ENOENT) return absl::OkStatus();
  return ErrnoStatus(errno, "remove", JoinPath(directory_->path(), name));
}

}  // namespace whet
