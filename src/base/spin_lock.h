// SpinLock: for sections of a few dozen nanoseconds that every call enters.
//
// Taking it is one exchange, giving it back a plain store; a mutex's release is a second locked
// instruction, as dear as the first, and here a third of a hit in the memory layer. Whoever finds
// it taken looks again for about a microsecond and then sleeps between looks: a holder that lost
// its processor is not waited for at full speed, and a waiter of higher priority does not starve
// it. Not fair, not recursive; nothing that blocks belongs under it.
//
//   SpinLock lock;
//   int hits ABSL_GUARDED_BY(lock) = 0;
//   { SpinLockHolder holder(lock); ++hits; }
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

#include "absl/base/thread_annotations.h"

namespace whet {

class ABSL_LOCKABLE SpinLock {
 public:
  SpinLock() = default;
  SpinLock(const SpinLock&) = delete;
  SpinLock& operator=(const SpinLock&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    if (taken_.exchange(true, std::memory_order_acquire)) Wait();
  }
  void Unlock() ABSL_UNLOCK_FUNCTION() { taken_.store(false, std::memory_order_release); }

 private:
  void Wait() {
    // Only reads while it is taken: the holder's line is not pulled back and forth.
    for (int looks = 0;; ++looks) {
      if (!taken_.load(std::memory_order_relaxed) &&
          !taken_.exchange(true, std::memory_order_acquire)) {
        return;
      }
      if (looks >= kLooks) std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  static constexpr int kLooks = 1000;  // about a microsecond, many times a section
  std::atomic<bool> taken_{false};
};

class ABSL_SCOPED_LOCKABLE SpinLockHolder {
 public:
  explicit SpinLockHolder(SpinLock& lock) ABSL_EXCLUSIVE_LOCK_FUNCTION(lock) : lock_(lock) {
    lock_.Lock();
  }
  ~SpinLockHolder() ABSL_UNLOCK_FUNCTION() { lock_.Unlock(); }
  SpinLockHolder(const SpinLockHolder&) = delete;
  SpinLockHolder& operator=(const SpinLockHolder&) = delete;

 private:
  SpinLock& lock_;
};

}  // namespace whet
