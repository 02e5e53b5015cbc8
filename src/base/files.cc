#include "src/base/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/descriptor.h"

namespace whet {
namespace {

struct DirectoryCloser {
  void operator()(DIR* directory) const { closedir(directory); }
};
using DirectoryStream = std::unique_ptr<DIR, DirectoryCloser>;

bool IsDotEntry(const char* name) {
  return std::strcmp(name, ".") == 0 || std::strcmp(name, "..") == 0;
}

std::string ParentOf(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Unique among live processes by pid, within one by counter; O_EXCL catches what a crashed process
// with the same pid left.
std::string TemporaryNameBeside(const std::string& path) {
  static std::atomic<uint64_t> counter{0};
  const std::string parent = ParentOf(path);
  const std::string name = path.substr(path.find_last_of('/') + 1);
  return JoinPath(parent, absl::StrCat(".", name, ".", getpid(), ".", ++counter, ".tmp"));
}

absl::Status WriteAll(int fd, absl::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, "write", path);
    }
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::Status SyncDirectory(const std::string& path) {
  Descriptor directory(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0) return ErrnoStatus(errno, "open directory", path);
  // EINVAL: the file system has no such notion, and so nothing to wait for.
  if (fsync(directory.get()) != 0 && errno != EINVAL) {
    return ErrnoStatus(errno, "sync directory", path);
  }
  return absl::OkStatus();
}

absl::Status WriteTemporary(const std::string& temporary, int fd, absl::string_view bytes) {
  Descriptor file(fd);
  absl::Status written = WriteAll(file.get(), bytes, temporary);
  if (!written.ok()) return written;
  if (fsync(file.get()) != 0) return ErrnoStatus(errno, "sync", temporary);
  if (file.Close() != 0) return ErrnoStatus(errno, "close", temporary);
  return absl::OkStatus();
}

absl::Status RemoveEntry(int parent, const char* name, const std::string& path) {
  if (unlinkat(parent, name, 0) == 0 || errno == ENOENT) return absl::OkStatus();
  // Linux says EISDIR for a directory, POSIX allows EPERM.
  if (errno != EISDIR && errno != EPERM) return ErrnoStatus(errno, "remove", path);
  const int unlink_error = errno;
  // O_NOFOLLOW: the entry may have been swapped for a link since.
  const int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno == ENOTDIR ? unlink_error : errno, "remove", path);
  DirectoryStream directory(fdopendir(fd));
  if (directory == nullptr) {
    const int error = errno;
    close(fd);
    return ErrnoStatus(error, "read directory", path);
  }
  errno = 0;
  while (const dirent* entry = readdir(directory.get())) {
    if (!IsDotEntry(entry->d_name)) {
      absl::Status removed =
          RemoveEntry(dirfd(directory.get()), entry->d_name, JoinPath(path, entry->d_name));
      if (!removed.ok()) return removed;
    }
    errno = 0;
  }
  if (errno != 0) return ErrnoStatus(errno, "read directory", path);
  directory.reset();
  if (unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT) return absl::OkStatus();
  return ErrnoStatus(errno, "remove", path);
}

}  // namespace

absl::Status ErrnoStatus(int error_number, absl::string_view action, absl::string_view path) {
  char buffer[128];
  const std::string message = absl::StrCat("cannot ", action, " ", path, ": ",
                                           strerror_r(error_number, buffer, sizeof buffer));
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case EAGAIN:
    case E2BIG:
      return absl::ResourceExhaustedError(message);
    default:
      return absl::InternalError(message);
  }
}

absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes) {
  // O_NONBLOCK: opening a pipe would wait for its writer.
  Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return ErrnoStatus(errno, "open", path);
  struct stat info;
  if (fstat(file.get(), &info) != 0) return ErrnoStatus(errno, "read", path);
  if (S_ISDIR(info.st_mode)) return ErrnoStatus(EISDIR, "read", path);
  if (!S_ISREG(info.st_mode) && !S_ISCHR(info.st_mode)) {
    return absl::InternalError(absl::StrCat("cannot read ", path, ": not a regular file"));
  }
  const auto too_large = [&] {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot read ", path, ": larger than the limit of ", max_bytes, " bytes"));
  };
  if (info.st_size > max_bytes) return too_large();
  std::string bytes;
  bytes.reserve(static_cast<size_t>(info.st_size));
  char buffer[1 << 16];
  while (true) {
    // The size is a hint: files under /proc say 0, and a file may grow while it is read.
    const ssize_t n = read(file.get(), buffer, sizeof buffer);
    if (n < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, "read", path);
    }
    if (n == 0) return bytes;
    if (static_cast<int64_t>(bytes.size()) + n > max_bytes) return too_large();
    bytes.append(buffer, static_cast<size_t>(n));
  }
}

absl::Status WriteFileAtomically(const std::string& path, absl::string_view bytes) {
  struct stat info;
  // Renaming over a device or a pipe would replace it by a file: /dev/null, by a careless root.
  if (lstat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISLNK(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot write ", path, ": it exists and is not a regular file; name another"));
  }
  std::string temporary;
  int fd = -1;
  do {
    temporary = TemporaryNameBeside(path);
    fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  } while (fd < 0 && errno == EEXIST);
  if (fd < 0) return ErrnoStatus(errno, "create", temporary);
  absl::Status status = WriteTemporary(temporary, fd, bytes);
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) {
    status = ErrnoStatus(errno, "replace", path);
  }
  if (!status.ok()) {
    unlink(temporary.c_str());
    return status;
  }
  return SyncDirectory(ParentOf(path));
}

absl::Status MakeDirectories(const std::string& path) {
  if (path.empty()) return ErrnoStatus(ENOENT, "create directory", "''");
  size_t end = 0;
  while (end != std::string::npos) {
    end = path.find('/', end + 1);
    const std::string part = path.substr(0, end);
    if (mkdir(part.c_str(), 0700) == 0) continue;
    const int error = errno;
    // A read-only or forbidden parent that is there already is no obstacle.
    if (IsDirectory(part)) continue;
    return ErrnoStatus(error == EEXIST ? ENOTDIR : error, "create directory", part);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) {
  DirectoryStream directory(opendir(path.c_str()));
  if (directory == nullptr) return ErrnoStatus(errno, "read directory", path);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(directory.get())) {
    if (!IsDotEntry(entry->d_name)) names.emplace_back(entry->d_name);
    errno = 0;
  }
  if (errno != 0) return ErrnoStatus(errno, "read directory", path);
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status RemoveTree(const std::string& path) {
  // A trailing slash would make the system follow a link.
  std::string plain = path;
  while (plain.size() > 1 && plain.back() == '/') plain.pop_back();
  return RemoveEntry(AT_FDCWD, plain.c_str(), plain);
}

bool IsRegularFile(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

bool IsDirectory(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

std::string JoinPath(absl::string_view directory, absl::string_view name) {
  if (directory.empty() || (!name.empty() && name.front() == '/')) return std::string(name);
  if (directory.back() == '/') return absl::StrCat(directory, name);
  return absl::StrCat(directory, "/", name);
}

absl::StatusOr<TemporaryDirectory> TemporaryDirectory::Create(absl::string_view prefix,
                                                              const std::string& parent) {
  std::string base = parent;
  if (base.empty()) {
    std::error_code error;
    base = std::filesystem::temp_directory_path(error).string();
    if (error) base = "/tmp";
  }
  std::string path = JoinPath(base, absl::StrCat(prefix, "XXXXXX"));
  if (mkdtemp(path.data()) == nullptr) {
    return ErrnoStatus(errno, "create a temporary directory", path);
  }
  return TemporaryDirectory(std::move(path));
}

TemporaryDirectory::TemporaryDirectory(std::string path) : path_(std::move(path)) {}

TemporaryDirectory::TemporaryDirectory(TemporaryDirectory&& other) noexcept
    : path_(std::exchange(other.path_, std::string())) {}

TemporaryDirectory& TemporaryDirectory::operator=(TemporaryDirectory&& other) noexcept {
  std::swap(path_, other.path_);
  return *this;
}

TemporaryDirectory::~TemporaryDirectory() {
  if (!path_.empty()) RemoveTree(path_).IgnoreError();
}

}  // namespace whet
