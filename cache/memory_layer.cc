#include "cache/memory_layer.h"

#include <utility>

#include "src/base/quick_hash.h"

namespace whet {

inline MemoryLayer::Node* MemoryLayer::Find(uint64_t hash, absl::string_view key, Shard& shard) {
  const auto found = shard.nodes.find(hash);
  if (found == shard.nodes.end() || found->second.key != key) return nullptr;
  found->second.used = true;
  return &found->second;
}

std::shared_ptr<const CodeEntry> MemoryLayer::FindCode(absl::string_view key) {
  const uint64_t hash = QuickHash(key);
  Shard& shard = ShardOf(hash);
  SpinLockHolder holder(shard.lock);
  const Node* const node = Find(hash, key, shard);
  if (node == nullptr || node->code == nullptr) return nullptr;
  ++shard.code_hits;
  return node->code;
}

std::shared_ptr<const CodeEntry> MemoryLayer::FindCodeByRequest(absl::string_view request) {
  uint64_t key_hash = 0;
  {
    SpinLockHolder holder(requests_.lock);
    const auto found = requests_.keys.find(QuickHash(request));
    if (found == requests_.keys.end()) return nullptr;
    key_hash = found->second;
  }
  Shard& shard = ShardOf(key_hash);
  SpinLockHolder holder(shard.lock);
  const auto found = shard.nodes.find(key_hash);
  if (found == shard.nodes.end()) return nullptr;
  Node& node = found->second;
  if (node.code == nullptr || node.code->request != request) return nullptr;
  node.used = true;
  ++shard.code_hits;
  return node.code;
}

std::shared_ptr<const WinnerEntry> MemoryLayer::FindWinner(absl::string_view key) {
  const uint64_t hash = QuickHash(key);
  Shard& shard = ShardOf(hash);
  SpinLockHolder holder(shard.lock);
  const Node* const node = Find(hash, key, shard);
  return node == nullptr ? nullptr : node->winner;
}

void MemoryLayer::PutCode(std::shared_ptr<const CodeEntry> entry) {
  Node node;
  node.key = entry->key;
  node.bytes = static_cast<int64_t>(entry->key.size() + entry->request.size() +
                                    entry->object.size() + entry->attributes.size());
  const uint64_t request = QuickHash(entry->request);
  const uint64_t key = QuickHash(entry->key);
  node.code = std::move(entry);
  Put(key, std::move(node));
  SpinLockHolder holder(requests_.lock);
  requests_.keys[request] = key;
}

void MemoryLayer::PutWinner(std::shared_ptr<const WinnerEntry> entry) {
  Node node;
  node.key = entry->key;
  node.bytes = static_cast<int64_t>(entry->key.size() + entry->variant.size() +
                                    entry->code_key.size() + entry->evidence.size());
  const uint64_t key = QuickHash(entry->key);
  node.winner = std::move(entry);
  Put(key, std::move(node));
}

void MemoryLayer::Put(uint64_t hash, Node node) {
  Shard& shard = ShardOf(hash);
  // Freed after the lock is given up: the last owner of a large object pays for it here.
  std::vector<Node> dropped;
  {
    SpinLockHolder holder(shard.lock);
    Drop(hash, shard, dropped);
    if (node.bytes <= limit_bytes_) {
      shard.bytes += node.bytes;
      node.turn = shard.turns.insert(shard.turns.end(), hash);
      shard.nodes.emplace(hash, std::move(node));
    }
    while (shard.bytes > limit_bytes_) {
      const uint64_t oldest = shard.turns.front();
      if (std::exchange(shard.nodes.find(oldest)->second.used, false)) {
        shard.turns.splice(shard.turns.end(), shard.turns, shard.turns.begin());
        continue;
      }
      Drop(oldest, shard, dropped);
    }
  }
  ForgetRequests(dropped);
}

void MemoryLayer::Drop(uint64_t hash, Shard& shard, std::vector<Node>& dropped) {
  const auto found = shard.nodes.find(hash);
  if (found == shard.nodes.end()) return;
  shard.bytes -= found->second.bytes;
  shard.turns.erase(found->second.turn);
  dropped.push_back(std::move(found->second));
  shard.nodes.erase(found);
}

void MemoryLayer::Remove(absl::string_view key) {
  const uint64_t hash = QuickHash(key);
  Shard& shard = ShardOf(hash);
  std::vector<Node> dropped;
  {
    SpinLockHolder holder(shard.lock);
    Drop(hash, shard, dropped);
  }
  ForgetRequests(dropped);
}

int64_t MemoryLayer::code_hits() const {
  int64_t hits = 0;
  for (const Shard& shard : shards_) {
    SpinLockHolder holder(shard.lock);
    hits += shard.code_hits;
  }
  return hits;
}

void MemoryLayer::ForgetRequests(const std::vector<Node>& dropped) {
  for (const Node& node : dropped) {
    if (node.code == nullptr) continue;
    SpinLockHolder holder(requests_.lock);
    const auto found = requests_.keys.find(QuickHash(node.code->request));
    if (found != requests_.keys.end() && found->second == QuickHash(node.key)) {
      requests_.keys.erase(found);
    }
  }
}

}  // namespace whet
