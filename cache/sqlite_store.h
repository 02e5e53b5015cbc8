// The store over one SQLite connection, on disk or in memory.
//
//   std::unique_ptr<Store> store = SqliteStore::Open(options, log);
//
// Invariants: (1) the connection is used under mutex_ only; compressing and checking happen outside
// it. (2) An entry whose checksum fails is never returned. (3) OK from a Put means committed and
// synced, in the file that the path meant both before and after the commit. (4) After fork the
// child never touches the parent's connection: it goes on in memory. (5) Eviction never takes the
// entry that was just put, and what a lookup returned is a copy, so nothing in use can go away.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "cache/cache_file.h"
#include "cache/store.h"
#include "src/base/log.h"
#include "src/base/mutex.h"

namespace whet {

class SqliteStore final : public Store {
 public:
  // Never null; see Store::Open. `why_memory`, when not empty, is why the disk is not even tried.
  static std::unique_ptr<SqliteStore> Open(const StoreOptions& options, const Logger& log,
                                           absl::string_view why_memory = "");
  ~SqliteStore() override;

  std::optional<CodeEntry> FindCode(absl::string_view key) override;
  std::optional<CodeEntry> FindCodeByRequest(absl::string_view request) override;
  absl::Status PutCode(const CodeEntry& entry) override;
  void RemoveCode(absl::string_view key, absl::string_view reason) override;
  absl::Status EraseCode(absl::string_view key) override;
  std::optional<WinnerEntry> FindWinner(absl::string_view key) override;
  std::vector<bool> HaveWinners(const std::vector<std::string>& keys) override;
  absl::Status PutWinner(const WinnerEntry& entry) override;
  absl::Status EraseWinner(absl::string_view key) override;
  absl::StatusOr<std::vector<CodeEntry>> ListCode() override;
  absl::StatusOr<std::vector<WinnerEntry>> ListWinners() override;
  absl::StatusOr<int64_t> Shrink(int64_t target_bytes) override;
  absl::StatusOr<StoreUsage> Usage() override;
  absl::StatusOr<std::vector<QuarantineRecord>> ListQuarantine() override;
  bool UsedByOthers() override;
  StoreCounters counters() const override;
  bool persistent() const override { return persistent_; }
  const std::string& path() const override { return options_.path; }

 private:
  SqliteStore(const StoreOptions& options, const Logger& log);

  // Opens the file, or memory when that fails, with one warning.
  void Attach() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AttachMemory(absl::string_view why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Before any use of the connection: notices a fork. False when there is none to use.
  bool Ready() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // After a failed use: a file found damaged is set aside and a new one begun.
  void Recover(const absl::Status& failure) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::optional<CodeEntry> Find(bool by_request, absl::string_view wanted);
  // Runs `write` in a transaction, in the file that the path means.
  absl::Status Durably(absl::FunctionRef<absl::Status(Database&)> write)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool TouchIsDue(int64_t used_unix_s) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Touch(const char* sql, absl::string_view hash) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropDamaged(absl::string_view hash, absl::string_view checksum, bool code)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Quarantine(absl::string_view hash, absl::string_view reason)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // At most `batches` batches; never the entry `keep`. Returns how many gave way.
  absl::StatusOr<int64_t> Evict(int64_t target_bytes, int batches, absl::string_view keep)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EvictAfterPut(absl::string_view keep) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t NowUnixSeconds() const;
  void Emit(CacheEvent event) const;
  // One line for a write of over a second.
  void ReportIfSlow(int64_t started_ns) const;

  const StoreOptions options_;
  const Logger log_;
  std::atomic<bool> persistent_{false};
  mutable Mutex mutex_;
  StoreCounters counters_ ABSL_GUARDED_BY(mutex_);
  CacheFile file_ ABSL_GUARDED_BY(mutex_);  // after counters_, which closing it may still raise
  pid_t pid_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace whet
