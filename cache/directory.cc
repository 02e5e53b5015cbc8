#include "cache/directory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "src/base/clock.h"
#include "src/base/files.h"

namespace whet {
namespace {

// Why `info` must not be trusted; empty when it may be.
std::string Objection(const struct stat& info) {
  if (info.st_uid != geteuid()) {
    return absl::StrCat("it belongs to user ", info.st_uid, " and this process runs as user ",
                        geteuid());
  }
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return absl::StrFormat("others may write it (mode %04o); chmod go-w it",
                           static_cast<unsigned>(info.st_mode & 07777));
  }
  return "";
}

absl::Status Refusal(const std::string& path, const std::string& why) {
  return absl::PermissionDeniedError(absl::StrCat("cannot trust ", path, ": ", why));
}

// Open file description locks: unlike POSIX locks they stay when another descriptor of the file is
// closed.
bool SetLock(int fd, short type) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_len = 1;
  return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

std::string WithoutTrailingSlashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path.empty() ? "." : path;
}

}  // namespace

bool IsMarkedByOthers(int fd) {
  if (fd < 0) return false;
  const bool others = !SetLock(fd, F_WRLCK);
  SetLock(fd, F_RDLCK);
  return others;
}

DirectoryLock::DirectoryLock(DirectoryLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

DirectoryLock& DirectoryLock::operator=(DirectoryLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

DirectoryLock::~DirectoryLock() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<std::unique_ptr<PinnedDirectory>> PinnedDirectory::Open(const std::string& given,
                                                                       bool create) {
  const std::string path = WithoutTrailingSlashes(given);
  if (create) {
    if (absl::Status made = MakeDirectories(path); !made.ok()) return made;
  }
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) {
    if (errno == ELOOP || errno == ENOTDIR) {
      return Refusal(path, "it is a symbolic link or no directory");
    }
    return ErrnoStatus(errno, "open directory", path);
  }
  std::unique_ptr<PinnedDirectory> directory(new PinnedDirectory(path, fd));
  struct stat info;
  if (fstat(fd, &info) != 0) return ErrnoStatus(errno, "inspect", path);
  if (const std::string why = Objection(info); !why.empty()) return Refusal(path, why);
  return directory;
}

PinnedDirectory::~PinnedDirectory() { close(fd_); }

absl::StatusOr<FileIdentity> PinnedDirectory::CheckFile(const std::string& name) const {
  const std::string path = JoinPath(path_, name);
  struct stat info;
  if (fstatat(fd_, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    return ErrnoStatus(errno, "inspect", path);
  }
  if (!S_ISREG(info.st_mode)) return Refusal(path, "it is no regular file");
  if (const std::string why = Objection(info); !why.empty()) return Refusal(path, why);
  return FileIdentity{info.st_dev, info.st_ino, info.st_size};
}

bool PinnedDirectory::MayWriteFile(const std::string& name) const {
  return faccessat(fd_, name.c_str(), W_OK, AT_EACCESS) == 0;
}

absl::Status PinnedDirectory::CreateEmptyFile(const std::string& name) const {
  if (mknodat(fd_, name.c_str(), S_IFREG | 0600, 0) == 0 || errno == EEXIST) {
    return absl::OkStatus();
  }
  return ErrnoStatus(errno, "create", JoinPath(path_, name));
}

absl::StatusOr<DirectoryLock> PinnedDirectory::Lock(bool exclusive, absl::Duration timeout) const {
  // A description of its own: the lock belongs to it, and dup or fork would share it.
  DirectoryLock lock(openat(fd_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (lock.fd_ < 0) return ErrnoStatus(errno, "open directory", path_);
  Clock* const clock = Clock::Real();
  const int64_t deadline_ns = clock->MonotonicNanoseconds() + absl::ToInt64Nanoseconds(timeout);
  while (flock(lock.fd_, (exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return ErrnoStatus(errno, "lock", path_);
    if (clock->MonotonicNanoseconds() >= deadline_ns) {
      return absl::UnavailableError(absl::StrCat(
          "cannot lock ", path_, ": another process held it for ", absl::FormatDuration(timeout)));
    }
    const timespec pause = {0, 1'000'000};
    nanosleep(&pause, nullptr);
  }
  return lock;
}

absl::StatusOr<std::string> PinnedDirectory::SetAside(const std::string& name) const {
  for (int n = 1; n < 10'000; ++n) {
    const std::string aside = absl::StrCat(name, ".corrupt-", n);
    struct stat info;
    if (fstatat(fd_, aside.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) continue;
    // The log goes first: a new file that finds the old one's log beside it would replay it.
    bool taken = false;
    for (const char* const suffix : {"-journal", "-wal", "-shm", ""}) {
      if (renameat2(fd_, (name + suffix).c_str(), fd_, (aside + suffix).c_str(),
                    RENAME_NOREPLACE) == 0) {
        continue;
      }
      if (errno == ENOENT) continue;
      if (errno == EEXIST) {
        taken = true;
        break;
      }
      return ErrnoStatus(errno, "set aside", JoinPath(path_, name + suffix));
    }
    if (taken) continue;
    if (absl::Status synced = Sync(); !synced.ok()) return synced;
    return aside;
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("cannot set aside ", JoinPath(path_, name), ": 9999 earlier ones are there"));
}

int PinnedDirectory::MarkInUse(const std::string& name) const {
  const int fd =
      openat(fd_, name.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
  if (fd < 0) return -1;
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || !Objection(info).empty() ||
      !SetLock(fd, F_RDLCK)) {
    close(fd);
    return -1;
  }
  return fd;
}

absl::Status PinnedDirectory::Sync() const {
  if (fsync(fd_) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, "sync directory", path_);
}

std::string PinnedDirectory::PathOf(const std::string& name) const {
  const std::string through = absl::StrCat("/proc/self/fd/", fd_);
  struct stat by_path, by_fd;
  // Without /proc there is only the name.
  if (stat(through.c_str(), &by_path) != 0 || fstat(fd_, &by_fd) != 0 ||
      by_path.st_ino != by_fd.st_ino || by_path.st_dev != by_fd.st_dev) {
    return JoinPath(path_, name);
  }
  return JoinPath(through, name);
}

}  // namespace whet
