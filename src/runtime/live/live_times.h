// Times of live launches, which nobody waits for.
//
//   LiveTimes times(device, clock);
//   times.Launch(candidate, plan, args, stream);            // the caller's own launch, between events
//   times.Read([&](int candidate, double ns) { ... });      // of launches that are over anyway
//
// A time is read at once where launching waits for the kernel (the CPU's default stream), else eight
// calls later. Not thread-safe.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/clock.h"
#include "src/device/device.h"
#include "src/runtime/plan/plan.h"

namespace whet {

class LiveTimes {
 public:
  // Both must outlive it.
  LiveTimes(Device& device, Clock& clock) : device_(device), clock_(clock) {}
  ~LiveTimes();
  LiveTimes(const LiveTimes&) = delete;
  LiveTimes& operator=(const LiveTimes&) = delete;

  // The plan's own status. A launch whose events cannot be had is not timed.
  absl::Status Launch(int candidate, const Plan& plan, void* const* args, StreamHandle stream);
  void Read(const std::function<void(int candidate, double ns)>& record);
  // Host work on behalf of tuning, from here on. Never waits.
  //   const LiveTimes::HostWork work(times);
  //   ...
  //   tuner.AddCost(work.CostNs());
  class HostWork {
   public:
    explicit HostWork(LiveTimes& times)
        : times_(times), ahead_ns_(times.AheadNs()), begin_ns_(times.HostNs()) {}
    // What it has cost the calls so far: nothing while the device had theirs to do.
    double CostNs() const { return std::max(0.0, times_.HostNs() - begin_ns_ - ahead_ns_); }

   private:
    LiveTimes& times_;
    const double ahead_ns_;
    const double begin_ns_;
  };
  double HostNs() const { return static_cast<double>(clock_.MonotonicNanoseconds()); }
  // What was not read yet is of no interest any more.
  void Forget();

  absl::StatusOr<EventHandle> TakeEvent();
  void GiveBack(EventHandle event) { idle_events_.push_back(event); }

 private:
  struct Timed {
    int candidate = 0;
    EventHandle begin = nullptr, end = nullptr;
    double host_ns = 0;
  };
  // For so long the device still has work, whatever its host does: nanoseconds of the launches that
  // have not ended.
  double AheadNs();

  Device& device_;
  Clock& clock_;
  std::deque<Timed> pending_;
  std::vector<EventHandle> events_, idle_events_;
  bool launches_wait_ = false;  // a launch returns when the kernel has ended
  double last_ns_ = 0;          // of the last time that was read
};

}  // namespace whet
