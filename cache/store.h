// The kernel cache: code objects and winners in one SQLite file, shared by any number of processes.
// Knows no GPU and no kernel: records and blobs are bytes to it.
//
//   std::unique_ptr<Store> store = Store::Open({.path = "/home/me/.cache/whet/cache.db"}, logger);
//   store->PutCode({.key = record, .request = request, .object = bytes, .attributes = json});
//   std::optional<CodeEntry> hit = store->FindCode(record);
//
// On a network file system, where neither locks nor shared memory can be trusted, the same interface
// stands on immutable files in "<path>.entries" instead (cache/entry_files.h).
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
#include "cache/events.h"
#include "cache/file_system.h"
#include "src/base/clock.h"
#include "src/base/log.h"

namespace whet {

// The database's name in a cache directory.
inline constexpr absl::string_view kCacheFileName = "cache.db";
// Behind the database's path: the directory that stands for it on network file systems.
inline constexpr char kEntriesSuffix[] = ".entries";

struct StoreOptions {
  std::string path;  // the database file; empty: in memory only
  bool read_only = false;
  absl::Duration busy_timeout = absl::Seconds(5);
  int64_t object_limit_bytes = 256 << 20;  // larger objects are neither stored nor believed
  // Beyond it the least recently used entries give way. 0: no limit.
  int64_t size_limit_bytes = int64_t{2} << 30;
  // Of the keys that this library makes. Entries of lower generations can never be found again and
  // are the first to give way.
  int64_t generation = 1;
  Clock* clock = Clock::Real();
  CacheEventSink on_event = {};
  // Not detected but given: for tests, and for who knows better.
  std::optional<FileSystemKind> file_system = {};
  const char* sqlite_vfs = nullptr;  // name of the SQLite VFS underneath; null: the system's own
};

// What the store knows about an entry besides its content. Set on the way out; ignored by Put.
struct EntryFacts {
  int64_t used_unix_s = 0;  // exact to the hour
  int64_t generation = 0;
  int64_t object_bytes = 0;
  int64_t stored_bytes = 0;  // after compression
  std::string layer;         // "user" or a pack's path: where a layered cache found it
};

// A compiled code object.
struct CodeEntry {
  std::string key;  // whole key record, compared on a hit
  // Key record without the compiler: finds code without knowing who compiled it.
  std::string request;
  std::string object;          // the bytes
  std::string attributes;      // JSON: entry symbol, format, resources, toolchain, log; opaque here
  int64_t created_unix_s = 0;  // 0 in Put: now
  EntryFacts facts = {};
};

// A settled choice with its evidence.
struct WinnerEntry {
  std::string key;       // whole tuning key record
  std::string variant;   // variant id
  std::string code_key;  // the winner's code key record, so that a hit needs no compiler
  // JSON: samples, errors, clocks, data signature, driver, compiler; opaque here.
  std::string evidence;
  int64_t created_unix_s = 0;  // 0 in Put: now
  // Of two winners for one key the higher protocol is believed, then the one with more evidence,
  // then the newer.
  int64_t protocol = 0;        // version of the measuring protocol
  int64_t evidence_count = 0;  // samples behind the choice
  EntryFacts facts = {};
};

struct StoreCounters {
  int64_t code_hits = 0, code_misses = 0, code_writes = 0;
  int64_t winner_hits = 0, winner_misses = 0, winner_writes = 0;
  int64_t damaged_entries = 0;  // failed their checksum or their size, and were dropped
  int64_t load_failures = 0;    // dropped by RemoveCode
  int64_t set_aside_files = 0;  // whole files that were no cache of ours
  int64_t failed_writes = 0;
  int64_t evicted_entries = 0;
  int64_t lock_waits = 0;                     // times that another connection's lock was waited for
  int64_t bytes_read = 0, bytes_written = 0;  // of objects, before compression
};

// What takes room.
struct StoreUsage {
  int64_t code_entries = 0, winner_entries = 0;
  int64_t used_bytes = 0;  // what the size limit is about
  int64_t file_bytes = 0;  // on disk, with what is free for reuse
};

// An entry that was dropped because it could not be used, and how often that happened to its key.
struct QuarantineRecord {
  std::string key_hash;  // 32 hexadecimal digits
  std::string reason;
  int64_t count = 0;
  int64_t last_unix_s = 0;
};

class Store {
 public:
  // Always gives a store. A file that is corrupt or foreign is renamed to "<path>.corrupt-<n>" and
  // a new one begun; one that can be read but not written is used read-only; one that a newer
  // library wrote is used as far as it says older ones may, and never touched otherwise; where no
  // file can be had at all (no permission, no space, owner or mode wrong) the store lives in memory.
  // Each is one warning.
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
  // Drops an entry that is not wanted any more. OK when there is none.
  virtual absl::Status EraseCode(absl::string_view key) = 0;

  virtual std::optional<WinnerEntry> FindWinner(absl::string_view key) = 0;
  // Which of `keys` seem to have one, in one look, for who has several to ask under: nothing is
  // checked, counted or stamped.
  virtual std::vector<bool> HaveWinners(const std::vector<std::string>& keys) = 0;
  bool HasWinner(absl::string_view key) { return HaveWinners({std::string(key)})[0]; }
  virtual absl::Status PutWinner(const WinnerEntry& entry) = 0;
  virtual absl::Status EraseWinner(absl::string_view key) = 0;

  // Everything in it, without the objects' bytes, oldest first. Of a damaged file that is opened
  // read-only: the keys of what can still be reached.
  virtual absl::StatusOr<std::vector<CodeEntry>> ListCode() = 0;
  virtual absl::StatusOr<std::vector<WinnerEntry>> ListWinners() = 0;

  // Entries give way, oldest generation and longest unused first, until at most `target_bytes` are
  // used; the room is given back to the file system. Returns how many gave way.
  virtual absl::StatusOr<int64_t> Shrink(int64_t target_bytes) = 0;
  virtual absl::StatusOr<StoreUsage> Usage() = 0;
  virtual absl::StatusOr<std::vector<QuarantineRecord>> ListQuarantine() = 0;

  // Whether another process of this host has it open. False where that cannot be known (network
  // file systems, packs).
  virtual bool UsedByOthers() { return false; }

  virtual StoreCounters counters() const = 0;
  virtual bool persistent() const = 0;
  virtual const std::string& path() const = 0;
};

}  // namespace whet
