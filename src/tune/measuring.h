// Times launches without letting the queue run dry.
//
//   Stopwatch watch(device, stream, scratch);
//   absl::StatusOr<Ticket> t = watch.Enqueue(candidate, BatchFor(candidate.estimate_ns, kRound));
//   ...                                              // more work may be enqueued meanwhile
//   absl::StatusOr<std::vector<double>> ns = watch.Read(*std::move(t));
//
// A sample is the mean over as many launches as fill kSampleNs, because events cost about a
// microsecond and round to half of one; kernels of 20 us and more are timed one by one. An
// operation that reads what it writes gets its input restored before every launch, outside the
// timed span: otherwise it would be timed on data that changes from launch to launch, and the clock
// follows the data. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "src/device/argument_pack.h"
#include "src/device/device.h"
#include "src/tune/scratch.h"

namespace whet {

inline constexpr double kSampleNs = 20'000;

// A variant bound to the scratch buffers.
struct Candidate {
  int index = 0;  // in the request
  Kernel kernel;
  LaunchGeometry geometry;
  std::unique_ptr<ArgumentPack> pack;
  double estimate_ns = 0;  // best guess of one launch so far
  double screened_ns = 0;  // what it took when candidates took turns; 0: not screened
};

struct Batch {
  int launches_per_sample = 1;
  int samples = 1;
};

// About `length` of work, at least one launch and at most 2,000 samples.
Batch BatchFor(double estimate_ns, absl::Duration length);

class Stopwatch {
 public:
  Stopwatch(Device& device, StreamHandle stream, Scratch& scratch);
  ~Stopwatch();
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  // A batch that is in the queue.
  struct Ticket {
    std::vector<EventHandle> events;  // begin and end of every sample, by turns
    int launches_per_sample = 1;
  };

  // One launch, without timing.
  absl::Status Launch(Candidate& candidate);

  absl::StatusOr<Ticket> Enqueue(Candidate& candidate, const Batch& batch);
  // Waits for the batch; nanoseconds of one launch, per sample.
  absl::StatusOr<std::vector<double>> Read(Ticket ticket);

  // Runs `candidate` without a pause, two batches ahead, until `done` says so: it sees all samples
  // so far and the device time they took, after every batch of about 10 ms.
  absl::StatusOr<std::vector<double>> RunUntil(
      Candidate& candidate,
      const std::function<bool(absl::Span<const double> samples, double elapsed_ns)>& done);

  // So many launches now, and waits for them: nanoseconds of one.
  struct Sample {
    double wall_ns = 0;
    double cpu_ns = 0;  // of all processors together; 0: the device does not tell (Device::Work)
    bool disturbed = false;  // another program took a processor meanwhile
  };
  absl::StatusOr<Sample> Measure(Candidate& candidate, int launches);

  // Device time of all samples read so far.
  double measured_ns() const { return measured_ns_; }
  Device& device() const { return device_; }
  StreamHandle stream() const { return stream_; }

 private:
  absl::StatusOr<EventHandle> TakeEvent();
  absl::Status EnqueueSample(Candidate& candidate, Ticket& ticket);

  Device& device_;
  StreamHandle stream_;
  Scratch& scratch_;
  std::vector<EventHandle> events_;  // all of them, whoever holds them
  std::vector<EventHandle> idle_events_;
  double measured_ns_ = 0;
};

}  // namespace whet
