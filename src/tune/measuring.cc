#include "src/tune/measuring.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

namespace whet {
namespace {

constexpr absl::Duration kBatch = absl::Milliseconds(10);
constexpr double kSamplesMax = 2000;

}  // namespace

Batch BatchFor(double estimate_ns, absl::Duration length) {
  const double one = std::max(estimate_ns, 1.0);
  Batch batch;
  batch.launches_per_sample = static_cast<int>(std::ceil(kSampleNs / one));
  const double samples = absl::ToDoubleNanoseconds(length) / (one * batch.launches_per_sample);
  batch.samples = static_cast<int>(std::clamp(samples, 1.0, kSamplesMax));
  return batch;
}

Stopwatch::Stopwatch(Device& device, StreamHandle stream, Scratch& scratch)
    : device_(device), stream_(stream), scratch_(scratch) {}

Stopwatch::~Stopwatch() {
  for (EventHandle event : events_) device_.DestroyEvent(event);
}

absl::StatusOr<EventHandle> Stopwatch::TakeEvent() {
  if (idle_events_.empty()) {
    absl::StatusOr<EventHandle> created = device_.CreateEvent();
    if (created.ok()) events_.push_back(*created);
    return created;
  }
  EventHandle event = idle_events_.back();
  idle_events_.pop_back();
  return event;
}

absl::Status Stopwatch::Launch(Candidate& candidate) {
  return device_.Launch(candidate.kernel, candidate.geometry, candidate.pack->params(), stream_);
}

absl::Status Stopwatch::EnqueueSample(Candidate& candidate, Ticket& ticket) {
  const bool restore = scratch_.needs_restore();
  if (restore) {
    if (absl::Status s = scratch_.Restore(); !s.ok()) return s;
  }
  for (bool begin : {true, false}) {
    if (!begin) {
      for (int i = 0; i < ticket.launches_per_sample; ++i) {
        if (absl::Status s = Launch(candidate); !s.ok()) return s;
      }
    } else if (!restore && !ticket.events.empty()) {
      ticket.events.push_back(ticket.events.back());  // samples without a gap share the event
      continue;
    }
    const absl::StatusOr<EventHandle> event = TakeEvent();
    if (!event.ok()) return event.status();
    ticket.events.push_back(*event);
    if (absl::Status s = device_.Record(*event, stream_); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::StatusOr<Stopwatch::Ticket> Stopwatch::Enqueue(Candidate& candidate, const Batch& batch) {
  Ticket ticket;
  // With a restore in between, launches cannot be put together into one sample.
  ticket.launches_per_sample = scratch_.needs_restore() ? 1 : batch.launches_per_sample;
  ticket.events.reserve(static_cast<size_t>(batch.samples) * 2);
  for (int i = 0; i < batch.samples; ++i) {
    if (absl::Status s = EnqueueSample(candidate, ticket); !s.ok()) return s;
  }
  return ticket;
}

absl::StatusOr<std::vector<double>> Stopwatch::Read(Ticket ticket) {
  std::vector<double> samples;
  samples.reserve(ticket.events.size() / 2);
  absl::Status status;
  for (size_t i = 0; i + 1 < ticket.events.size() && status.ok(); i += 2) {
    const absl::StatusOr<int64_t> elapsed =
        device_.ElapsedNanoseconds(ticket.events[i], ticket.events[i + 1]);
    status = elapsed.status();
    if (!elapsed.ok()) break;
    measured_ns_ += static_cast<double>(*elapsed);
    samples.push_back(static_cast<double>(*elapsed) / ticket.launches_per_sample);
  }
  for (size_t i = 0; i < ticket.events.size(); ++i) {
    const bool shared = i > 0 && ticket.events[i] == ticket.events[i - 1];
    if (!shared) idle_events_.push_back(ticket.events[i]);
  }
  if (!status.ok()) return status;
  return samples;
}

absl::StatusOr<Stopwatch::Sample> Stopwatch::Measure(Candidate& candidate, int launches) {
  const bool restore = scratch_.needs_restore();
  const std::optional<ProcessorWork> before = device_.Work();
  absl::StatusOr<Ticket> ticket =
      Enqueue(candidate, {.launches_per_sample = launches, .samples = 1});
  if (!ticket.ok()) return ticket.status();
  absl::StatusOr<std::vector<double>> wall = Read(*std::move(ticket));
  if (!wall.ok()) return wall.status();
  Sample sample{.wall_ns = wall->front()};
  if (!before.has_value()) return sample;
  const std::optional<ProcessorWork> after = device_.Work();
  sample.disturbed = after->interruptions != before->interruptions;
  // What restoring took is in it too, and no property of the kernel.
  if (!restore) sample.cpu_ns = static_cast<double>(after->cpu_ns - before->cpu_ns) / launches;
  return sample;
}

absl::StatusOr<std::vector<double>> Stopwatch::RunUntil(
    Candidate& candidate,
    const std::function<bool(absl::Span<const double> samples, double elapsed_ns)>& done) {
  const Batch batch = BatchFor(candidate.estimate_ns, kBatch);
  std::vector<double> samples;
  double elapsed_ns = 0;
  absl::StatusOr<Ticket> next = Enqueue(candidate, batch);
  for (bool finished = false; !finished;) {
    if (!next.ok()) return next.status();
    Ticket current = *std::move(next);
    next = Enqueue(candidate, batch);
    const int launches = current.launches_per_sample;
    absl::StatusOr<std::vector<double>> read = Read(std::move(current));
    if (!read.ok()) {
      // The error says more than the batch that is still in the queue.
      if (next.ok()) (void)Read(*std::move(next));
      return read.status();
    }
    for (double sample : *read) elapsed_ns += sample * launches;
    samples.insert(samples.end(), read->begin(), read->end());
    finished = done(samples, elapsed_ns);
  }
  if (!next.ok()) return next.status();
  absl::StatusOr<std::vector<double>> rest = Read(*std::move(next));
  if (!rest.ok()) return rest.status();
  return samples;
}

}  // namespace whet
