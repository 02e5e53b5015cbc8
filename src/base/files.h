// Files as whole values, with errors that name the path.
//
//   absl::StatusOr<std::string> text = ReadFile("/etc/os-release", /*max_bytes=*/1 << 20);
//   absl::Status written = WriteFileAtomically("/var/cache/x/manifest", bytes);
//
// Every function is thread-safe and returns: NotFound (no such file), PermissionDenied (a read-only
// file system too), ResourceExhausted (disk full, out of descriptors, or a file larger than
// max_bytes), otherwise Internal; the message holds action, path and the system's reason.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace whet {

// The whole file; the size is checked before anything is allocated. Refuses directories, pipes and
// sockets, so it never blocks on a writer that does not come.
absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes);

// Writes a temporary file beside `path` (O_EXCL, mode 0600), syncs it, renames it over `path` and
// syncs the directory: after OK the content survives power loss; on failure the temporary is
// removed and `path` is as it was (or, when only the directory's sync failed, wholly the new
// content). A symbolic link at `path` is replaced, not followed; InvalidArgument when it is a device,
// a pipe or a directory.
absl::Status WriteFileAtomically(const std::string& path, absl::string_view bytes);

// Creates `path` and its missing parents with mode 0700. OK when it is there already as a
// directory.
absl::Status MakeDirectories(const std::string& path);

// Names (not paths) of the directory's entries without "." and "..", sorted.
absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path);

// Removes a file or a whole tree, without following symbolic links. OK when there is nothing.
absl::Status RemoveTree(const std::string& path);

bool IsRegularFile(const std::string& path);
bool IsDirectory(const std::string& path);

// "a" + "b" -> "a/b"; an absolute `name` stands alone.
std::string JoinPath(absl::string_view directory, absl::string_view name);

// A fresh 0700 directory under the system's temporary directory (or `parent`), removed with all it
// holds on destruction.
class TemporaryDirectory {
 public:
  static absl::StatusOr<TemporaryDirectory> Create(absl::string_view prefix,
                                                   const std::string& parent = "");
  TemporaryDirectory(TemporaryDirectory&& other) noexcept;
  TemporaryDirectory& operator=(TemporaryDirectory&& other) noexcept;
  ~TemporaryDirectory();
  const std::string& path() const { return path_; }

 private:
  explicit TemporaryDirectory(std::string path);
  std::string path_;
};

// The status for an errno value: "cannot <action> <path>: <reason>".
absl::Status ErrnoStatus(int error_number, absl::string_view action, absl::string_view path);

}  // namespace whet
