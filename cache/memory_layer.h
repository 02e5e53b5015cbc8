// The fastest layer: what this process has seen already, shared and not copied.
//
//   MemoryLayer memory(/*limit_bytes=*/64 << 20);
//   memory.PutCode(std::make_shared<const CodeEntry>(entry));
//   std::shared_ptr<const CodeEntry> hit = memory.FindCode(record);
//
// Bounded by bytes; entries give way in order of arrival, but one that was used since it was last
// looked at gets another turn. Thread-safe; keys are spread over shards, so threads seldom meet.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "cache/store.h"
#include "src/base/spin_lock.h"

namespace whet {

class MemoryLayer {
 public:
  explicit MemoryLayer(int64_t limit_bytes) : limit_bytes_(limit_bytes / kShards) {}

  // Null on a miss.
  std::shared_ptr<const CodeEntry> FindCode(absl::string_view key);
  std::shared_ptr<const WinnerEntry> FindWinner(absl::string_view key);
  // The code last put for `request`, whoever compiled it.
  std::shared_ptr<const CodeEntry> FindCodeByRequest(absl::string_view request);
  void PutCode(std::shared_ptr<const CodeEntry> entry);
  void PutWinner(std::shared_ptr<const WinnerEntry> entry);
  void Remove(absl::string_view key);
  // How often code was found, by key or by request.
  int64_t code_hits() const;

 private:
  static constexpr int64_t kShards = 16;  // by four bits of the hash
  // What a hit reads lies in the table's slot itself: each step to other memory costs 5 ns.
  struct Node {
    absl::string_view key;                  // the entry's own
    std::shared_ptr<const CodeEntry> code;  // one of the two
    std::shared_ptr<const WinnerEntry> winner;
    int64_t bytes = 0;
    bool used = false;
    std::list<uint64_t>::iterator turn = {};
  };
  struct Shard {
    mutable SpinLock lock;
    absl::flat_hash_map<uint64_t, Node> nodes ABSL_GUARDED_BY(lock);  // by QuickHash of the key
    std::list<uint64_t> turns ABSL_GUARDED_BY(lock);  // the keys' hashes, oldest first
    int64_t bytes ABSL_GUARDED_BY(lock) = 0;
    int64_t code_hits ABSL_GUARDED_BY(lock) = 0;
  };

  // Request to key, of code that is here; so few are looked up by request that one lock does.
  struct Requests {
    SpinLock lock;
    absl::flat_hash_map<uint64_t, uint64_t> keys ABSL_GUARDED_BY(lock);
  };

  // Forgets the requests of entries that are no longer here.
  void ForgetRequests(const std::vector<Node>& dropped);
  // The table takes the low bits, the shard the high ones.
  Shard& ShardOf(uint64_t hash) { return shards_[hash >> 60]; }
  // The node of `key`, marked as used; null where there is none.
  static Node* Find(uint64_t hash, absl::string_view key, Shard& shard)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(shard.lock);
  void Put(uint64_t hash, Node node);
  // Moves what is there under `hash`, if anything, to `dropped`.
  static void Drop(uint64_t hash, Shard& shard, std::vector<Node>& dropped)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(shard.lock);

  const int64_t limit_bytes_;  // per shard
  std::array<Shard, kShards> shards_;
  Requests requests_;  // its lock and a shard's are never held together
};

}  // namespace whet
