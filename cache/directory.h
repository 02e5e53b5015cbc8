// A directory that was checked once and is then held open, so that what was checked is what is
// used: loading a code object is executing code.
//
//   auto directory = PinnedDirectory::Open("/home/me/.cache/whet", /*create=*/true);
//   absl::Status usable = (*directory)->CheckFile("cache.db");
//   Use((*directory)->PathOf("cache.db"));   // "/proc/self/fd/7/cache.db": no component can be
//   swapped
//
// Owned by the effective user, writable by nobody else, not a symbolic link; otherwise
// PermissionDenied, saying what to change. Thread-safe.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace whet {

// Which file a name meant at some moment.
struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  off_t size_bytes = 0;
  bool SameFile(const FileIdentity& other) const {
    return device == other.device && inode == other.inode;
  }
};

// An advisory lock on a directory, given up on destruction and by the kernel at death.
class DirectoryLock {
 public:
  DirectoryLock() = default;
  DirectoryLock(DirectoryLock&& other) noexcept;
  DirectoryLock& operator=(DirectoryLock&& other) noexcept;
  ~DirectoryLock();

 private:
  friend class PinnedDirectory;
  explicit DirectoryLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

// Whether another process holds a mark of MarkInUse on the file behind `fd`.
bool IsMarkedByOthers(int fd);

class PinnedDirectory {
 public:
  // With `create`, missing parents are made with mode 0700. NotFound, PermissionDenied, or what
  // the system says.
  static absl::StatusOr<std::unique_ptr<PinnedDirectory>> Open(const std::string& path,
                                                               bool create);
  ~PinnedDirectory();
  PinnedDirectory(const PinnedDirectory&) = delete;
  PinnedDirectory& operator=(const PinnedDirectory&) = delete;

  // OK for a regular file of this user that nobody else can write. NotFound when there is none;
  // otherwise PermissionDenied.
  absl::StatusOr<FileIdentity> CheckFile(const std::string& name) const;
  // Whether the system would let this user write it.
  bool MayWriteFile(const std::string& name) const;
  // Creates an empty file of mode 0600 without opening it: closing a descriptor of a database file
  // would drop the POSIX locks that SQLite holds on it in this process. OK when it exists.
  absl::Status CreateEmptyFile(const std::string& name) const;
  // Waits at most `timeout`, then Unavailable. For local file systems.
  absl::StatusOr<DirectoryLock> Lock(bool exclusive, absl::Duration timeout) const;
  // Renames `name` and what SQLite keeps beside it to the first free "<name>.corrupt-<n>"; nothing
  // is overwritten. Returns the new name. The caller holds the exclusive lock.
  absl::StatusOr<std::string> SetAside(const std::string& name) const;
  // Marks `name` (an empty file, made when it is missing) as used by this process until the
  // descriptor that is returned is closed, or -1 when that cannot be had; it is not needed for
  // correctness.
  int MarkInUse(const std::string& name) const;
  // Makes what happened to names in it durable.
  absl::Status Sync() const;

  std::string PathOf(const std::string& name) const;
  const std::string& path() const { return path_; }
  int fd() const { return fd_; }

 private:
  PinnedDirectory(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  std::string path_;
  int fd_;
};

}  // namespace whet
