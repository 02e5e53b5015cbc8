#include "src/base/clock.h"

#include <chrono>

#include "absl/time/clock.h"

namespace whet {
namespace {

class RealClock final : public Clock {
 public:
  absl::Time Now() override { return absl::Now(); }
  int64_t MonotonicNanoseconds() override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

}  // namespace

Clock* Clock::Real() {
  // Never destroyed, so that threads that outlive main() may still ask the time.
  static Clock* const clock = new RealClock;
  return clock;
}

}  // namespace whet
