// A read-only SQLite VFS over one open pack: every chunk is checked against its digest each time it
// is read, before SQLite sees a byte of it. No locks, no journal, no other files, no path.
//
//   PackVfs vfs(fd, std::move(sealed_file));
//   sqlite3_open_v2("pack", &db, SQLITE_OPEN_READONLY, vfs.name());
//
// Not thread-safe: for one connection under its owner's lock.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cache/pack_seal.h"

struct sqlite3_vfs;

namespace whet {

class PackVfs {
 public:
  // Takes the descriptor over.
  PackVfs(int fd, SealedFile file);
  // The connection must be closed by then.
  ~PackVfs();
  PackVfs(const PackVfs&) = delete;
  PackVfs& operator=(const PackVfs&) = delete;

  const char* name() const { return name_.c_str(); }
  const Seal& seal() const { return file_.seal; }
  // Whether a chunk was read that is not as its digest says; then the read failed.
  bool tampered() const { return tampered_; }
  // Checks every chunk. DataLoss, naming the first that differs.
  absl::Status VerifyAll();

 private:
  friend struct PackVfsMethods;
  struct CachedChunk {
    int64_t index = -1;
    uint64_t last_use = 0;
    std::string bytes;
  };

  // Null when the chunk cannot be read or is not as its digest says.
  const std::string* Chunk(int64_t index);

  const int fd_;
  const SealedFile file_;
  std::string name_;
  std::unique_ptr<sqlite3_vfs> vfs_;
  // SQLite keeps pages itself; this only spares checking a chunk once per page of it.
  std::vector<CachedChunk> chunks_;
  uint64_t uses_ = 0;
  bool tampered_ = false;
};

}  // namespace whet
