// A SQLite VFS that fails, or kills the process, at a chosen input or output call.
//
//   FaultVfs vfs("fault");
//   vfs.FailAt(7, /*persistent=*/false, SQLITE_IOERR);
//   Store::Open({.path = ..., .sqlite_vfs = "fault"}, log);
//   if (!vfs.fired()) ...    // there were fewer than 7 calls
//
// Counted: opening, deleting, reading, writing, truncating, syncing, mapping shared memory, locking.
// Syncs are counted but not made, which also makes this the quick VFS of tests that do not pull
// plugs. Thread-safe.
#pragma once

#include <sqlite3.h>

#include <atomic>
#include <string>

namespace whet {

class FaultVfs {
 public:
  explicit FaultVfs(std::string name);
  ~FaultVfs();
  FaultVfs(const FaultVfs&) = delete;
  FaultVfs& operator=(const FaultVfs&) = delete;

  // From now on the n-th call (from 1) returns `code`; when persistent, all later ones do too.
  void FailAt(int n, bool persistent, int code);
  // From now on the process dies by SIGKILL in the n-th call, before it has any effect.
  void DieAt(int n);
  void Disarm();
  bool fired() const { return fired_; }
  const char* name() const { return name_.c_str(); }

 private:
  friend struct FaultMethods;
  // SQLITE_OK, or what the call has to return.
  int Count();

  const std::string name_;
  sqlite3_vfs vfs_;
  sqlite3_vfs* const real_;
  std::atomic<int> calls_{0}, fail_at_{0}, code_{SQLITE_OK};
  std::atomic<bool> persistent_{false}, die_{false}, fired_{false};
};

}  // namespace whet
