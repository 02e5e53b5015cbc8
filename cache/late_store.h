// A store whose file does not exist yet and is made by the first write, not by opening it.
//
//   std::unique_ptr<Store> store = std::make_unique<LateStore>(options, log);
//   store->FindCode(key);        // a miss, and one look whether somebody has made the file since
//   store->PutCode(entry);       // makes it
//
// For a process that starts from a pack in a fresh home: making a directory and a database, and
// syncing both, takes as long as all the rest of its start. Once there it is the store that
// Store::Open gives; until then it holds nothing, and whether it can be had is not known.
// Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/store.h"
#include "src/base/log.h"
#include "src/base/mutex.h"

namespace whet {

class LateStore final : public Store {
 public:
  // Whether there is nothing at the path of `options` to read.
  static bool IsAbsent(const StoreOptions& options);

  // REQUIRES: options.path is not empty.
  LateStore(StoreOptions options, Logger log)
      : options_(std::move(options)), log_(std::move(log)) {}

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
  bool persistent() const override;
  const std::string& path() const override { return options_.path; }

 private:
  // Null while there is nothing to read.
  Store* Readable();
  Store& Writable();

  const StoreOptions options_;
  const Logger log_;
  Mutex mutex_;
  std::unique_ptr<Store> made_ ABSL_GUARDED_BY(mutex_);
  std::atomic<Store*> store_{nullptr};  // made_, once it is there
};

}  // namespace whet
