#include "src/device/cpu/cpu_event.h"

#include <chrono>

namespace whet {

int64_t CpuNowNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void CpuEvent::Expect() {
  MutexLock lock(mutex_);
  ++pending_;
}

void CpuEvent::Record(int64_t monotonic_ns) {
  MutexLock lock(mutex_);
  --pending_;
  valid_ = true;
  time_ns_ = monotonic_ns;
  if (pending_ == 0) recorded_.NotifyAll();
}

absl::StatusOr<int64_t> CpuEvent::Wait() {
  MutexLock lock(mutex_);
  while (pending_ > 0) recorded_.Wait(mutex_);
  if (!valid_) {
    return absl::FailedPreconditionError(
        "cannot read the time of a cpu event: it was never recorded; call Record first");
  }
  return time_ns_;
}

}  // namespace whet
