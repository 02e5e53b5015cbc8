#include "src/runtime/live/live_times.h"

namespace whet {
namespace {

// On a device that runs ahead of its host, times are read when as many later calls are in the queue.
constexpr size_t kCallsLater = 8;

}  // namespace

LiveTimes::~LiveTimes() {
  for (EventHandle event : events_) device_.DestroyEvent(event);
}

absl::StatusOr<EventHandle> LiveTimes::TakeEvent() {
  if (!idle_events_.empty()) {
    const EventHandle event = idle_events_.back();
    idle_events_.pop_back();
    return event;
  }
  absl::StatusOr<EventHandle> created = device_.CreateEvent();
  if (created.ok()) events_.push_back(*created);
  return created;
}

absl::Status LiveTimes::Launch(int candidate, const Plan& plan, void* const* args,
                               StreamHandle stream) {
  const absl::StatusOr<EventHandle> begin = TakeEvent();
  const absl::StatusOr<EventHandle> end = TakeEvent();
  if (!begin.ok() || !end.ok()) return plan.LaunchNow(args, stream);
  Timed timed{.candidate = candidate, .begin = *begin, .end = *end};
  const double before = HostNs();
  bool recorded = device_.Record(*begin, stream).ok();
  absl::Status status = plan.LaunchNow(args, stream);
  recorded = recorded && device_.Record(*end, stream).ok();
  timed.host_ns = HostNs() - before;
  if (status.ok() && recorded) {
    pending_.push_back(timed);
  } else {
    idle_events_.insert(idle_events_.end(), {*begin, *end});
  }
  return status;
}

void LiveTimes::Read(const std::function<void(int candidate, double ns)>& record) {
  while (pending_.size() > (launches_wait_ ? 0 : kCallsLater)) {
    const Timed timed = pending_.front();
    pending_.pop_front();
    const absl::StatusOr<int64_t> elapsed = device_.ElapsedNanoseconds(timed.begin, timed.end);
    idle_events_.insert(idle_events_.end(), {timed.begin, timed.end});
    if (!elapsed.ok()) continue;
    const auto ns = static_cast<double>(*elapsed);
    last_ns_ = ns;
    launches_wait_ = timed.host_ns > ns / 2;
    record(timed.candidate, ns);
  }
}

double LiveTimes::AheadNs() {
  double ahead_ns = 0;
  for (auto timed = pending_.rbegin(); timed != pending_.rend(); ++timed) {
    const absl::StatusOr<bool> over = device_.IsOver(timed->end);
    if (!over.ok() || *over) break;
    ahead_ns += last_ns_;
  }
  return ahead_ns;
}

void LiveTimes::Forget() {
  for (const Timed& timed : pending_) {
    idle_events_.insert(idle_events_.end(), {timed.begin, timed.end});
  }
  pending_.clear();
}

}  // namespace whet
