#include "cache/late_store.h"

#include "src/base/files.h"

namespace whet {

bool LateStore::IsAbsent(const StoreOptions& options) {
  return !options.path.empty() && !IsRegularFile(options.path) &&
         !IsDirectory(options.path + kEntriesSuffix);
}

Store* LateStore::Readable() {
  Store* const store = store_.load(std::memory_order_acquire);
  if (store != nullptr || IsAbsent(options_)) return store;
  return &Writable();
}

Store& LateStore::Writable() {
  MutexLock lock(mutex_);
  if (made_ == nullptr) {
    made_ = Store::Open(options_, log_);
    store_.store(made_.get(), std::memory_order_release);
  }
  return *made_;
}

std::optional<CodeEntry> LateStore::FindCode(absl::string_view key) {
  Store* const store = Readable();
  return store == nullptr ? std::nullopt : store->FindCode(key);
}

std::optional<CodeEntry> LateStore::FindCodeByRequest(absl::string_view request) {
  Store* const store = Readable();
  return store == nullptr ? std::nullopt : store->FindCodeByRequest(request);
}

absl::Status LateStore::PutCode(const CodeEntry& entry) { return Writable().PutCode(entry); }

// Also of what a pack holds: the record of it outlives this process.
void LateStore::RemoveCode(absl::string_view key, absl::string_view reason) {
  Writable().RemoveCode(key, reason);
}

absl::Status LateStore::EraseCode(absl::string_view key) {
  Store* const store = Readable();
  return store == nullptr ? absl::OkStatus() : store->EraseCode(key);
}

std::optional<WinnerEntry> LateStore::FindWinner(absl::string_view key) {
  Store* const store = Readable();
  return store == nullptr ? std::nullopt : store->FindWinner(key);
}

std::vector<bool> LateStore::HaveWinners(const std::vector<std::string>& keys) {
  Store* const store = Readable();
  return store == nullptr ? std::vector<bool>(keys.size()) : store->HaveWinners(keys);
}

absl::Status LateStore::PutWinner(const WinnerEntry& entry) { return Writable().PutWinner(entry); }

absl::Status LateStore::EraseWinner(absl::string_view key) {
  Store* const store = Readable();
  return store == nullptr ? absl::OkStatus() : store->EraseWinner(key);
}

absl::StatusOr<std::vector<CodeEntry>> LateStore::ListCode() {
  Store* const store = Readable();
  return store == nullptr ? std::vector<CodeEntry>() : store->ListCode();
}

absl::StatusOr<std::vector<WinnerEntry>> LateStore::ListWinners() {
  Store* const store = Readable();
  return store == nullptr ? std::vector<WinnerEntry>() : store->ListWinners();
}

absl::StatusOr<int64_t> LateStore::Shrink(int64_t target_bytes) {
  Store* const store = Readable();
  return store == nullptr ? int64_t{0} : store->Shrink(target_bytes);
}

absl::StatusOr<StoreUsage> LateStore::Usage() {
  Store* const store = Readable();
  return store == nullptr ? StoreUsage() : store->Usage();
}

absl::StatusOr<std::vector<QuarantineRecord>> LateStore::ListQuarantine() {
  Store* const store = Readable();
  return store == nullptr ? std::vector<QuarantineRecord>() : store->ListQuarantine();
}

bool LateStore::UsedByOthers() {
  Store* const store = Readable();
  return store != nullptr && store->UsedByOthers();
}

StoreCounters LateStore::counters() const {
  const Store* const store = store_.load(std::memory_order_acquire);
  return store == nullptr ? StoreCounters() : store->counters();
}

bool LateStore::persistent() const {
  const Store* const store = store_.load(std::memory_order_acquire);
  return store == nullptr || store->persistent();
}

}  // namespace whet
