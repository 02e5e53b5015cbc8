// Time as a dependency, so that tests need no sleeping.
//
//   ManualClock clock(absl::UnixEpoch());
//   clock.Advance(absl::Hours(2));
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"

namespace whet {

class Clock {
 public:
  virtual ~Clock() = default;
  // Wall time; may jump.
  virtual absl::Time Now() = 0;
  // Nanoseconds of a clock that never goes back; only differences mean something.
  virtual int64_t MonotonicNanoseconds() = 0;

  // The system's clocks; lives for ever.
  static Clock* Real();
};

// Moves only when told. Thread-safe.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(absl::Time now) : now_ns_(absl::ToUnixNanos(now)) {}
  absl::Time Now() override { return absl::FromUnixNanos(now_ns_.load()); }
  int64_t MonotonicNanoseconds() override { return monotonic_ns_.load(); }
  void Advance(absl::Duration by) {
    now_ns_ += absl::ToInt64Nanoseconds(by);
    monotonic_ns_ += absl::ToInt64Nanoseconds(by);
  }
  // Lets the wall clock jump, as an administrator or NTP would; the monotonic clock stays.
  void JumpTo(absl::Time now) { now_ns_ = absl::ToUnixNanos(now); }

 private:
  std::atomic<int64_t> now_ns_;
  std::atomic<int64_t> monotonic_ns_{0};
};

}  // namespace whet
