// A pack: a read-only cache that is shipped. Opened without a lock, from read-only media, by any
// number of processes.
//
//   absl::StatusOr<std::unique_ptr<Pack>> pack = Pack::Open(
//       "/usr/lib/whet/gfx942.whetpack", {.trusted_keys = {key}}, log);
//   std::optional<CodeEntry> hit = (*pack)->FindCode(record);
//
// A pack that was changed after it was opened says so once and from then on only misses.
// Thread-safe. Writing into it is Unavailable.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cache/pack_seal.h"
#include "cache/pack_vfs.h"
#include "cache/sqlite_db.h"
#include "cache/store.h"
#include "src/base/log.h"
#include "src/base/mutex.h"

namespace whet {

struct PackOptions {
  // Ed25519 public keys, 32 bytes each (ParsePackPublicKey). When there are any, a pack must be
  // signed with one of them, and then may belong to anyone; when there are none, it must belong to
  // root or to this user and be writable by nobody else.
  std::vector<std::string> trusted_keys;
  int64_t object_limit_bytes = 256 << 20;
  CacheEventSink on_event = {};
};

class Pack final : public Store {
 public:
  // NotFound; PermissionDenied (not signed with a trusted key, or not to be trusted by owner or
  // mode); DataLoss (damaged, or no pack); FailedPrecondition (newer than this library can read).
  static absl::StatusOr<std::unique_ptr<Pack>> Open(const std::string& path,
                                                    const PackOptions& options, const Logger& log);
  ~Pack() override;

  // Checks every byte and every entry. DataLoss, saying what differs.
  absl::Status Verify();
  // JSON: contents, targets, toolchains, templates (docs/cache.md).
  const std::string& manifest() const { return manifest_; }
  // 32 bytes; empty when unsigned.
  const std::string& signer() const { return vfs_->seal().public_key; }

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
  const std::string& path() const override { return path_; }

 private:
  Pack(std::string path, const PackOptions& options, const Logger& log)
      : path_(std::move(path)), options_(options), log_(log) {}
  std::optional<CodeEntry> Find(bool by_request, absl::string_view wanted);
  void Report(const absl::Status& failure) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ReadOnly() const;

  const std::string path_;
  const PackOptions options_;
  const Logger log_;
  std::string manifest_;
  mutable Mutex mutex_;
  // Used under mutex_, as db_ is; the seal never changes.
  std::unique_ptr<PackVfs> vfs_;
  std::unique_ptr<Database> db_ ABSL_GUARDED_BY(mutex_);
  int64_t version_ = 0;
  bool failed_ ABSL_GUARDED_BY(mutex_) = false;
  StoreCounters counters_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace whet
