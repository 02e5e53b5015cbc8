// The store for network file systems: one immutable file per entry, no locks, no shared memory.
//
//   /nfs/home/me/.cache/whet/cache.db.entries/
//     code/3f/3f9c...e1       named by the key's hash
//     request/07/07aa...42    a second name (hard link) for the newest code of a request
//     winner/c4/c4d0...9b
//     quarantine/3f/3f9c...e1 why an entry was dropped, and how often
//
// Why this is right without locks: a file is written whole under a name nobody else uses, synced,
// and renamed into place; so at every moment each name is absent or one whole entry, whoever
// writes, on whatever node, and a reader checks magic, lengths, checksum and key before it believes
// it. Two nodes that store the same key both store a right answer; the later rename stays. What a
// node does not see yet (attribute caches) is a miss. A file that vanishes or goes stale (ESTALE)
// while it is read is looked up once more and then is a miss.
//
// Recency is the file's modification time, which this code sets itself (at most once an hour) and
// nothing else touches. Thread-safe; at most one descriptor is open per operation.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/directory.h"
#include "cache/store.h"
#include "src/base/log.h"
#include "src/base/mutex.h"

namespace whet {

class EntryFileStore final : public Store {
 public:
  // PermissionDenied (owner, mode, symbolic link), FailedPrecondition (cannot be made).
  static absl::StatusOr<std::unique_ptr<EntryFileStore>> Open(const StoreOptions& options,
                                                              const Logger& log);

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
  StoreCounters counters() const override;
  bool persistent() const override { return true; }
  const std::string& path() const override { return options_.path; }

 private:
  struct FoundFile;
  struct ListedFile;
  EntryFileStore(const StoreOptions& options, const Logger& log,
                 std::unique_ptr<PinnedDirectory> directory);

  absl::StatusOr<FoundFile> ReadEntry(const std::string& name) const;
  absl::Status WriteEntry(const std::string& name, const std::string& bytes,
                          const std::string& second_name);
  void Touch(const std::string& name, int64_t used_unix_s) const;
  void SetTime(const std::string& name) const;
  void DropDamaged(const std::string& name, const FoundFile& file);
  void Quarantine(const std::string& hash, absl::string_view reason);
  std::optional<CodeEntry> Find(bool by_request, absl::string_view wanted);
  absl::Status Erase(const std::string& name);
  std::vector<ListedFile> ListFiles(const char* kind) const;
  void RemoveAbandoned(const std::vector<ListedFile>& temporaries, int64_t newest_change_s) const;
  void EvictNowAndThen(int64_t written_bytes);
  int64_t Count(int64_t StoreCounters::*counter, int64_t by = 1);
  int64_t NowUnixSeconds() const;
  void Emit(CacheEvent event) const;

  const StoreOptions options_;
  const Logger log_;
  const std::unique_ptr<PinnedDirectory> directory_;
  std::atomic<uint64_t> next_temporary_{0};
  mutable Mutex mutex_;
  StoreCounters counters_ ABSL_GUARDED_BY(mutex_);
  // Since the directory was last walked; the first put walks.
  int64_t unchecked_bytes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace whet
