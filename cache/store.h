// The kernel cache: code objects and winners in one SQLite file, shared by any number of processes.
// Knows no GPU and no kernel: records and blobs are bytes to it.
//
//   std::unique_ptr<Store> store = Store::Open({.path = "/home/me/.cache/whet/cache.db"}, logger);
//   store->PutCode({.key = record, .request = request, .object = bytes, .attributes = json});
//   std::optional<CodeEntry> hit = store->FindCode(record);
//
// Contract: a cache that is missing, full, read-only, corrupt, locked or from another version makes
// a slow start, never a failure or a wrong result. So lookups return hit or miss, and nothing here
// blocks for longer than `busy_timeout`.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "src/base/clock.h"
#include "src/base/log.h"

namespace whet {

struct StoreOptions {
  std::string path;  // the database file; empty: in memory only
  bool read_only = false;
  absl::Duration busy_timeout = absl::Seconds(5);
  int64_t object_limit_bytes = 256 << 20;  // larger objects are neither stored nor believed
  Clock* clock = Clock::Real();
  const char* sqlite_vfs = nullptr;  // name of the SQLite VFS underneath; null: the system's own
};

// A compiled code object.
struct CodeEntry {
  std::string key;  // whole key record, compared on a hit
  std::string
      request;  // key record without the compiler: finds code without knowing who compiled it
  std::string object;      // the bytes
  std::string attributes;  // JSON: entry symbol, format, resources, toolchain, log; opaque here
  int64_t created_unix_s = 0;
};

// A settled choice with its evidence.
struct WinnerEntry {
  std::string key;       // whole tuning key record
  std::string variant;   // variant id
  std::string code_key;  // the winner's code key record, so that a hit needs no compiler
  std::string
      evidence;  // JSON: samples, errors, clocks, data signature, driver, compiler; opaque here
  int64_t created_unix_s = 0;
};

struct StoreCounters {
  int64_t code_hits = 0, code_misses = 0, code_writes = 0;
  int64_t winner_hits = 0, winner_misses = 0, winner_writes = 0;
  int64_t damaged_entries = 0;  // failed their checksum or their size, and were dropped
  int64_t set_aside_files = 0;  // whole files that were no cache of ours
  int64_t failed_writes = 0;
  int64_t lock_waits = 0;  // times that another connection's lock was waited for
};

class Store {
 public:
  // Always gives a store. A file that is corrupt or foreign is renamed to "<path>.corrupt-<n>" and
  // a new one begun; where no file can be had at all (no permission, no space, owner or mode wrong)
  // the store lives in memory; each is one warning.
  static std::unique_ptr<Store> Open(const StoreOptions& options, const Logger& log);
  virtual ~Store() = default;

  virtual std::optional<CodeEntry> FindCode(absl::string_view key) = 0;
  // The newest entry for `request`, whoever compiled it.
  virtual std::optional<CodeEntry> FindCodeByRequest(absl::string_view request) = 0;
  // OK only once the entry is durable (or held, in memory). ResourceExhausted: too large or disk
  // full; Unavailable: read-only or busy for too long.
  virtual absl::Status PutCode(const CodeEntry& entry) = 0;
  // Drops an entry that passed its checksum but that the driver refused to load.
  virtual void RemoveCode(absl::string_view key, absl::string_view reason) = 0;

  virtual std::optional<WinnerEntry> FindWinner(absl::string_view key) = 0;
  virtual absl::Status PutWinner(const WinnerEntry& entry) = 0;

  // Everything in it, without the objects' bytes, oldest first.
  virtual absl::StatusOr<std::vector<CodeEntry>> ListCode() = 0;
  virtual absl::StatusOr<std::vector<WinnerEntry>> ListWinners() = 0;

  virtual StoreCounters counters() const = 0;
  virtual bool persistent() const = 0;
  virtual const std::string& path() const = 0;
};

}  // namespace whet
