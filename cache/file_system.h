// Whether a directory lies on a file system whose locks and shared memory can be believed.
//
//   if (DetectFileSystem("/home/me/.cache/whet").kind == FileSystemKind::kNetwork) ...
#pragma once

#include <cstdint>
#include <string>

namespace whet {

enum class FileSystemKind { kLocal, kNetwork };

struct FileSystem {
  FileSystemKind kind = FileSystemKind::kNetwork;
  std::string name;  // "nfs", "ext4 or similar (0xef53)", ...
};

// By statfs of `path` or its nearest existing parent. What cannot be asked counts as network: the
// cautious answer. FUSE counts as network too, because anything may be behind it.
FileSystem DetectFileSystem(const std::string& path);

// The same from the magic number that statfs gives.
FileSystem ClassifyFileSystem(uint64_t magic);

}  // namespace whet
