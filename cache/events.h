// What the cache tells whoever asked to be told.
//
//   options.on_event = [](const CacheEvent& event) { metrics.Add(CacheEventName(event.kind)); };
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/strings/string_view.h"

namespace whet {

enum class CacheEventKind {
  kHit,             // layer, key, bytes
  kMiss,            // key
  kStored,          // key, bytes
  kStoreFailed,     // key, detail: the reason
  kDamaged,         // key: an entry failed its checksum and was dropped
  kLoadFailure,     // key, detail: passed its checksum, but the driver refused it
  kSetAside,        // detail: the file's new name
  kEvicted,         // bytes: how many entries (count in detail) gave way
  kFallback,        // detail: why nothing is kept on disk
  kPackRefused,     // layer: the pack, detail: the reason
  kLockWait,        // key, nanoseconds: waited for another process that builds it
  kVerifyMismatch,  // key: what was built anew differs from what was stored
};

absl::string_view CacheEventName(CacheEventKind kind);

struct CacheEvent {
  CacheEventKind kind;
  std::string layer = {};     // "memory", "user", or the path of a pack
  std::string key_hash = {};  // 32 hexadecimal digits, where there is one key
  std::string detail = {};
  int64_t bytes = 0;
  int64_t nanoseconds = 0;
};

// Called from any thread, possibly with the cache's locks held: it must not call the cache.
using CacheEventSink = std::function<void(const CacheEvent&)>;

}  // namespace whet
