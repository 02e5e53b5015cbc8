// From a path to an open, checked, current database: creation, set-aside, fallbacks.
//
//   absl::StatusOr<CacheFile> file = OpenCacheFile(options, log);
//   if (!file.ok()) file = OpenMemoryCache(options);    // a slow start, not a failure
//
// States of the file and who may change it. Openers hold the directory's lock shared, so that none
// of them sees a half-made or half-renamed file; making, setting aside and migrating hold it
// exclusively, and look again at what they saw before they act:
//
//   absent or empty --create--> current        (exclusive)
//   corrupt, foreign --set aside--> absent     (exclusive, only while it is the same inode)
//   older version --migrate--> current         (exclusive)
//   current --open--> connection               (shared)
//   newer version --open--> connection         (shared) as far as the file itself allows it
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cache/directory.h"
#include "cache/pinned_vfs.h"
#include "cache/sqlite_db.h"
#include "cache/store.h"
#include "src/base/log.h"

namespace whet {

// An open database with all that it stands on; members are destroyed in reverse order.
struct CacheFile {
  CacheFile() = default;
  CacheFile(CacheFile&& other) noexcept;
  CacheFile& operator=(CacheFile&& other) noexcept;
  ~CacheFile();

  std::unique_ptr<PinnedDirectory> directory;  // null in memory
  std::unique_ptr<PinnedVfs> vfs;
  std::unique_ptr<Database> db;
  std::string name;       // in the directory
  FileIdentity identity;  // what the name meant when it was opened
  bool read_only = false;
  int64_t version = 0;  // of the schema; see SelectsOf
  int set_aside_files = 0;
  int in_use_fd = -1;  // held while it is open; see PinnedDirectory::MarkInUse

  // Whether the name still means the file that is open. Always true in memory.
  bool StillInPlace() const;
};

struct CacheFileOptions {
  StoreOptions store;
  std::function<void()> on_wait;
};

// A file that cannot be written is opened read-only. One warning for that, and per file set aside.
// Errors (none of them touches the file): PermissionDenied (owner, mode, symbolic link),
// Unavailable (locked for too long), FailedPrecondition (read-only and not there; newer than this
// library can read), ResourceExhausted (disk full), DataLoss (damaged, and opened read-only).
absl::StatusOr<CacheFile> OpenCacheFile(const CacheFileOptions& options, const Logger& log);

// The same schema in memory. Only fails for want of memory.
absl::StatusOr<CacheFile> OpenMemoryCache(const CacheFileOptions& options);

}  // namespace whet
