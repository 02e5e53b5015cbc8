// What the source files of EntryFileStore share.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "cache/entry_codec.h"
#include "cache/entry_files.h"

namespace whet {

// After this many new bytes the directory is walked to see whether something has to give way.
inline constexpr int64_t kWalkEveryBytes = 64 << 20;

inline std::string HexOf(absl::string_view bytes) {
  return absl::BytesToHexString(HashColumn(bytes));
}

inline std::string NameOf(absl::string_view kind, const std::string& hex) {
  return absl::StrCat(kind, "/", hex.substr(0, 2), "/", hex);
}

inline std::string CodeName(absl::string_view key) { return NameOf("code", HexOf(key)); }
inline std::string RequestName(absl::string_view request) {
  return NameOf("request", HexOf(request));
}
inline std::string WinnerName(absl::string_view key) { return NameOf("winner", HexOf(key)); }

// The same file may be written by nobody but us, as for every file of the cache.
inline bool IsTrusted(const struct stat& info) {
  return S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
         (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

struct EntryFileStore::FoundFile {
  std::string bytes;
  int64_t used_unix_s = 0;
  ino_t inode = 0;
};

struct EntryFileStore::ListedFile {
  std::string name;
  int64_t bytes = 0;
  int64_t used_unix_s = 0;
};

}  // namespace whet
