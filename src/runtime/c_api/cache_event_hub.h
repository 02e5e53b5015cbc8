// Where a runtime's cache events go: to one function, that may come later than the first events.
//
//   auto hub = std::make_shared<CacheEventHub>();
//   options.on_cache_event = [hub](const CacheEvent& event) { hub->Send(event); };
//   hub->Connect([](const CacheEvent& event) { ... });
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "cache/events.h"
#include "src/base/mutex.h"

namespace whet {

// Thread-safe.
class CacheEventHub {
 public:
  // What was sent before anybody listened, as when the cache was opened, is kept up to this number.
  static constexpr size_t kMaxKept = 64;

  void Send(const CacheEvent& event) {
    CacheEventSink sink;
    {
      MutexLock lock(mutex_);
      if (!sink_ && !connected_before_ && kept_.size() < kMaxKept) kept_.push_back(event);
      sink = sink_;
    }
    if (sink) sink(event);
  }

  // An empty sink ends it. What was kept is sent to the first one, on this thread.
  void Connect(CacheEventSink sink) {
    std::vector<CacheEvent> kept;
    {
      MutexLock lock(mutex_);
      connected_before_ = true;
      kept.swap(kept_);
      sink_ = sink;
    }
    if (!sink) return;
    for (const CacheEvent& event : kept) sink(event);
  }

 private:
  Mutex mutex_;
  CacheEventSink sink_ ABSL_GUARDED_BY(mutex_);
  bool connected_before_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<CacheEvent> kept_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace whet
