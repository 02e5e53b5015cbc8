// One flight per key inside a process: callers that ask for the same key while it is being made
// wait for that one result.
//
//   SingleFlight<std::string, int> flights;
//   absl::StatusOr<int> v = flights.Do("key", [] { return Expensive(); });
//
// Invariants: (1) `make` runs without any lock held; (2) at most one `make` per key at a time; (3)
// a result, error or not, goes to exactly the callers that were waiting when it was made; the next
// caller starts anew, so errors are never remembered; (4) `make` may call Do with another key; with
// its own key it would wait for itself.
#pragma once

#include <memory>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "src/base/mutex.h"

namespace whet {

template <typename Key, typename Value>
class SingleFlight {
 public:
  // Thread-safe. Value must be copyable (use shared_ptr for large ones).
  template <typename Make>
  absl::StatusOr<Value> Do(const Key& key, Make&& make) {
    std::shared_ptr<Flight> flight;
    {
      MutexLock lock(mutex_);
      std::shared_ptr<Flight>& slot = flights_[key];
      if (slot != nullptr) {
        std::shared_ptr<Flight> other = slot;
        while (!other->result.has_value()) landed_.Wait(mutex_);
        return *other->result;
      }
      slot = std::make_shared<Flight>();
      flight = slot;
    }
    absl::StatusOr<Value> result = make();
    {
      MutexLock lock(mutex_);
      flight->result = result;
      flights_.erase(key);
    }
    landed_.NotifyAll();
    return result;
  }

 private:
  struct Flight {
    std::optional<absl::StatusOr<Value>> result;
  };
  Mutex mutex_;
  CondVar landed_;
  absl::flat_hash_map<Key, std::shared_ptr<Flight>> flights_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace whet
