// The cache as the runtime sees it: memory, then the user's store, then packs; first hit wins.
//
//   LayerOptions options;
//   options.user.path = "/home/me/.cache/whet/cache.db";
//   options.packs = {"/usr/lib/whet/packs"};                 // files, or directories of *.whetpack
//   std::unique_ptr<LayeredCache> cache = LayeredCache::Open(options, log);
//   std::shared_ptr<const CodeEntry> hit = cache->FindCodeShared(record);
//
// Every layer may be missing, unreadable, newer or damaged; then it is left out, with one line.
// Writes go to the user's store alone. What was found below is kept in memory. Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "cache/memory_layer.h"
#include "cache/pack.h"
#include "cache/store.h"
#include "src/base/hash.h"
#include "src/base/log.h"
#include "src/base/mutex.h"

namespace whet {

enum class CachePolicy {
  kOff,        // "off": nothing on disk is read or written; memory serves this process
  kReadOnly,   // "read-only": store and packs are read, nothing is written, not even a stamp
  kReadWrite,  // "read-write": the default
  kOffline,    // "offline": as read-only, and RequireCode makes a miss an error that names the key
  kVerify,     // "verify": what is stored is not believed but made again; Put compares the two
};
// The word in quotes above. InvalidArgument lists them.
absl::StatusOr<CachePolicy> ParseCachePolicy(absl::string_view text);
absl::string_view CachePolicyName(CachePolicy policy);

struct LayerOptions {
  CachePolicy policy = CachePolicy::kReadWrite;
  StoreOptions user;
  std::vector<std::string> packs;         // files, or directories of *.whetpack in order of name
  std::vector<std::string> trusted_keys;  // text or files (LoadPackPublicKey); see PackOptions
  int64_t memory_limit_bytes = 64 << 20;
};

struct LayerCounters {
  int64_t memory_hits = 0;
  int64_t user_hits = 0;
  int64_t pack_hits = 0;
  int64_t misses = 0;
  int64_t packs_open = 0;
  int64_t packs_refused = 0;
  int64_t verify_matches = 0;
  int64_t verify_mismatches = 0;
};

class LayeredCache final : public Store {
 public:
  static std::unique_ptr<LayeredCache> Open(const LayerOptions& options, const Logger& log);

  // Null on a miss. A hit in memory copies nothing.
  std::shared_ptr<const CodeEntry> FindCodeShared(absl::string_view key) {
    std::shared_ptr<const CodeEntry> hit = memory_.FindCode(key);
    if (hit == nullptr || options_.user.on_event) [[unlikely]]
      return FindCodeBelow(key, std::move(hit));
    return hit;
  }
  // The same with the miss as an error: NotFound; under the offline policy its message names the
  // key's fields and the layers that were asked.
  absl::StatusOr<std::shared_ptr<const CodeEntry>> RequireCode(absl::string_view key);

  CachePolicy policy() const { return options_.policy; }
  LayerCounters layer_counters() const;
  // For tools: the user's store (null when the policy is off) and the packs that are open.
  Store* user() { return user_.get(); }
  const std::vector<std::unique_ptr<Pack>>& packs() const { return packs_; }

  std::optional<CodeEntry> FindCode(absl::string_view key) override;
  std::optional<CodeEntry> FindCodeByRequest(absl::string_view request) override;
  // Also keeps it in memory, whatever becomes of it on disk. OK without a write under the policies
  // off and read-only; Unavailable under offline.
  absl::Status PutCode(const CodeEntry& entry) override;
  // Also keeps packs from being asked for this key again by this process.
  void RemoveCode(absl::string_view key, absl::string_view reason) override;
  absl::Status EraseCode(absl::string_view key) override;
  std::optional<WinnerEntry> FindWinner(absl::string_view key) override;
  std::vector<bool> HaveWinners(const std::vector<std::string>& keys) override;
  absl::Status PutWinner(const WinnerEntry& entry) override;
  absl::Status EraseWinner(absl::string_view key) override;
  // Of all layers; what several of them hold is listed once, from the first.
  absl::StatusOr<std::vector<CodeEntry>> ListCode() override;
  absl::StatusOr<std::vector<WinnerEntry>> ListWinners() override;
  // Of the user's store.
  absl::StatusOr<int64_t> Shrink(int64_t target_bytes) override;
  absl::StatusOr<StoreUsage> Usage() override;
  absl::StatusOr<std::vector<QuarantineRecord>> ListQuarantine() override;
  bool UsedByOthers() override { return user_ != nullptr && user_->UsedByOthers(); }
  // Of all layers together; a hit or miss counts once.
  StoreCounters counters() const override;
  bool persistent() const override { return user_ != nullptr && user_->persistent(); }
  const std::string& path() const override { return options_.user.path; }

 private:
  LayeredCache(const LayerOptions& options, const Logger& log);
  void OpenPack(const std::string& path, const PackOptions& options);
  bool MayWrite() const {
    return options_.policy == CachePolicy::kReadWrite || options_.policy == CachePolicy::kVerify;
  }
  bool IsBlocked(absl::string_view key) const;
  // FindCodeShared after the look into memory, which found `in_memory`.
  std::shared_ptr<const CodeEntry> FindCodeBelow(absl::string_view key,
                                                 std::shared_ptr<const CodeEntry> in_memory);
  void Compare(const CodeEntry& made);
  void Emit(CacheEventKind kind, absl::string_view layer, absl::string_view key, int64_t bytes,
            absl::string_view detail = "") const;

  const LayerOptions options_;
  const Logger log_;
  MemoryLayer memory_;
  std::unique_ptr<Store> user_;
  std::vector<std::unique_ptr<Pack>> packs_;
  std::atomic<int64_t> user_hits_{0}, pack_hits_{0}, misses_{0};
  std::atomic<int64_t> winner_hits_{0}, winner_misses_{0};
  std::atomic<int64_t> packs_refused_{0}, verify_matches_{0}, verify_mismatches_{0};
  mutable Mutex mutex_;
  // Keys whose code object in a pack could not be loaded.
  absl::flat_hash_set<Hash128> blocked_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace whet
