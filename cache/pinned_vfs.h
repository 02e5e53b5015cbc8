// A SQLite VFS that opens exactly the name it is given. SQLite's own resolves symbolic links on the
// way, and so would turn "/proc/self/fd/7/cache.db" back into a path that someone may have swapped.
//
//   PinnedVfs vfs("unix");
//   sqlite3_open_v2(name, &db, flags, vfs.name());
#pragma once

#include <memory>
#include <string>

struct sqlite3_vfs;

namespace whet {

class PinnedVfs {
 public:
  // `base`: name of the VFS underneath; null: the system's default.
  explicit PinnedVfs(const char* base);
  // Every connection opened through it must be closed by then.
  ~PinnedVfs();
  PinnedVfs(const PinnedVfs&) = delete;
  PinnedVfs& operator=(const PinnedVfs&) = delete;

  const char* name() const { return name_.c_str(); }

 private:
  std::string name_;
  std::unique_ptr<sqlite3_vfs> vfs_;
};

}  // namespace whet
