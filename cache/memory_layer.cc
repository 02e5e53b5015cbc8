#include "cache/memory_layer.h"

#include <utility>

#include "src/base/quick_hash.h"

namespace whet {

std::shared_ptr<const CodeEntry> MemoryLayer::FindCode(absl::string_view key) {
  const uint64_t hash = QuickHash(key);
  Shard& shard = ShardOf(hash);
  MutexLock lock(shard.mutex);
  const auto found = shard.index.find(hash);
  if (found == shard.index.end()) return nullptr;
  Node& node = *found->second;
  if (node.code == nullptr || node.code->key != key) return nullptr;
  node.used = true;
  ++shard.code_hits;
  return node.code;
}

std::shared_ptr<const CodeEntry> MemoryLayer::FindCodeByRequest(absl::string_view request) {
  uint64_t key_hash = 0;
  {
    MutexLock lock(requests_.mutex);
    const auto found = requests_.keys.find(QuickHash(request));
    if (found == requests_.keys.end()) return nullptr;
    key_hash = found->second;
  }
  Shard& shard = ShardOf(key_hash);
  MutexLock lock(shard.mutex);
  const auto found = shard.index.find(key_hash);
  if (found == shard.index.end()) return nullptr;
  Node& node = *found->second;
  if (node.code == nullptr || node.code->request != request) return nullptr;
  node.used = true;
  ++shard.code_hits;
  return node.code;
}

std::shared_ptr<const WinnerEntry> MemoryLayer::FindWinner(absl::string_view key) {
  const uint64_t hash = QuickHash(key);
  Shard& shard = ShardOf(hash);
  MutexLock lock(shard.mutex);
  const auto found = shard.index.find(hash);
  if (found == shard.index.end()) return nullptr;
  Node& node = *found->second;
  if (node.winner == nullptr || node.winner->key != key) return nullptr;
  node.used = true;
  return node.winner;
}

void MemoryLayer::PutCode(std::shared_ptr<const CodeEntry> entry) {
  Node node;
  node.hash = QuickHash(entry->key);
  node.bytes = static_cast<int64_t>(entry->key.size() + entry->request.size() +
                                    entry->object.size() + entry->attributes.size());
  const uint64_t request = QuickHash(entry->request);
  const uint64_t key = node.hash;
  node.code = std::move(entry);
  Put(std::move(node));
  MutexLock lock(requests_.mutex);
  requests_.keys[request] = key;
}

void MemoryLayer::PutWinner(std::shared_ptr<const WinnerEntry> entry) {
  Node node;
  node.hash = QuickHash(entry->key);
  node.bytes = static_cast<int64_t>(entry->key.size() + entry->variant.size() +
                                    entry->code_key.size() + entry->evidence.size());
  node.winner = std::move(entry);
  Put(std::move(node));
}

void MemoryLayer::Put(Node node) {
  Shard& shard = ShardOf(node.hash);
  // Freed after the lock is given up: the last owner of a large object pays for it here.
  std::list<Node> dropped;
  Insert(std::move(node), shard, dropped);
  ForgetRequests(dropped);
}

void MemoryLayer::Insert(Node node, Shard& shard, std::list<Node>& dropped) {
  MutexLock lock(shard.mutex);
  const auto found = shard.index.find(node.hash);
  if (found != shard.index.end()) {
    shard.bytes -= found->second->bytes;
    dropped.splice(dropped.end(), shard.nodes, found->second);
    shard.index.erase(found);
  }
  if (node.bytes > limit_bytes_) return;
  shard.bytes += node.bytes;
  const uint64_t hash = node.hash;
  shard.nodes.push_back(std::move(node));
  shard.index[hash] = std::prev(shard.nodes.end());
  while (shard.bytes > limit_bytes_) {
    const auto oldest = shard.nodes.begin();
    if (std::exchange(oldest->used, false)) {
      shard.nodes.splice(shard.nodes.end(), shard.nodes, oldest);
      continue;
    }
    shard.bytes -= oldest->bytes;
    shard.index.erase(oldest->hash);
    dropped.splice(dropped.end(), shard.nodes, oldest);
  }
}

void MemoryLayer::Remove(absl::string_view key) {
  const uint64_t hash = QuickHash(key);
  Shard& shard = ShardOf(hash);
  std::list<Node> dropped;
  {
    MutexLock lock(shard.mutex);
    const auto found = shard.index.find(hash);
    if (found == shard.index.end()) return;
    shard.bytes -= found->second->bytes;
    dropped.splice(dropped.end(), shard.nodes, found->second);
    shard.index.erase(found);
  }
  ForgetRequests(dropped);
}

int64_t MemoryLayer::code_hits() const {
  int64_t hits = 0;
  for (const Shard& shard : shards_) {
    MutexLock lock(shard.mutex);
    hits += shard.code_hits;
  }
  return hits;
}

void MemoryLayer::ForgetRequests(const std::list<Node>& dropped) {
  for (const Node& node : dropped) {
    if (node.code == nullptr) continue;
    MutexLock lock(requests_.mutex);
    const auto found = requests_.keys.find(QuickHash(node.code->request));
    if (found != requests_.keys.end() && found->second == node.hash) requests_.keys.erase(found);
  }
}

}  // namespace whet
