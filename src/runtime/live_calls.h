// A plan whose tuning goes on: trials of other variants ride on the caller's own launches, and what
// was settled is watched for drift.
//
//   LiveCalls live(first_plan, std::move(options));
//   live.Tune(candidates, /*incumbent=*/false);      // or live.Watch(signature, ns, candidates)
//   first_plan.set_live(&live);                      // from now on its launches come here
//
// States, each call being one step; only the thread that gets the step does more than launch:
//
//   settled --watch says a check is due--> looking --nothing--> settled
//                                             |--drift--> tuning
//   tuning  --the online tuner has settled--> settled
//
// Invariants: (1) every call launches one variant on the caller's own buffers, and that variant is
// the first one or was compared with the one that ran beside it on the same inputs; (2) a call on a
// stream that is being captured launches and nothing else: it loads, allocates, times and frees
// nothing; (3) modules are loaded by live calls only, and unloaded with this object; (4) beside the
// calls, the background compiles, and reads back and compares what trials on scratch wrote, on a
// stream of its own; (5) no call waits for a compiler. Times are read when the launch is over
// anyway: at once where launching waits for the kernel, else eight calls later.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/device/device.h"
#include "src/runtime/background.h"
#include "src/runtime/plan.h"
#include "src/tune/drift.h"
#include "src/tune/online.h"
#include "src/tune/scratch.h"
#include "src/tune/signature.h"
#include "src/tune/tuner.h"

namespace whet {

// Where the variants of a live tuning come from.
class LiveVariants {
 public:
  virtual ~LiveVariants() = default;
  // (required) Gets the code, compiling it where need be; in the background.
  virtual absl::Status Fetch(const Variant& variant) = 0;
  // (required) Loads what was fetched; in a live call.
  virtual absl::StatusOr<std::unique_ptr<Plan>> Load(const Variant& variant) = 0;
};

// What a round of live tuning came to.
struct LiveOutcome {
  const Plan* plan = nullptr;  // of the winner; lives as long as the LiveCalls
  TuningResult result;
  DataSignature signature;  // of the calls that were tuned on
  int64_t calls = 0;        // since the round began
  double live_ns = 0;       // of one call of the winner
};

struct LiveOptions {
  Device* device = nullptr;
  std::vector<Argument> arguments;
  std::function<double(DType)> tolerance;
  std::unique_ptr<LiveVariants> variants;
  Background* background = nullptr;
  OnlinePolicy online;
  DriftPolicy drift;
  bool watch_drift = true;  // once settled
  int most_candidates = 16;
  size_t few = 4;  // variants that are tried again after drift
  Clock* clock = Clock::Real();
  // In the background, after every round.
  std::function<void(const LiveOutcome&)> on_settled;
};

struct LiveCounters {
  int64_t rounds = 0;      // of tuning, that have ended
  int64_t checks = 0;      // for drift
  int64_t drifts = 0;      // that were found
  int64_t admissions = 0;  // trials on scratch
};

class LiveCalls final : public LiveLaunch {
 public:
  // `first` belongs to somebody who keeps it as long as this object.
  LiveCalls(Plan& first, LiveOptions options);
  ~LiveCalls() override;

  // Before the first Launch, one of the two.
  // `candidates[0]` is the first plan's variant. With `incumbent` it is a settled winner.
  void Tune(std::vector<Variant> candidates, bool incumbent);
  // The winner's signature and time (0: unknown), and what is tried again after drift, the winner
  // first.
  void Watch(DataSignature signature, double winner_ns, std::vector<Variant> few);

  absl::Status Launch(void* const* args, StreamHandle stream) override;
  const Plan& Current() const override { return *current_.load(std::memory_order_acquire); }
  bool busy() const { return busy_.load(std::memory_order_acquire); }
  LiveCounters counters() const;

 private:
  struct Round;
  struct Timed {
    int candidate = 0;
    EventHandle begin = nullptr, end = nullptr;
    double host_ns = 0;
  };
  class Step;

  void BeginRound(std::vector<Variant> candidates, bool incumbent);
  absl::Status Ride(void* const* args, StreamHandle stream);
  absl::Status Look(void* const* args, StreamHandle stream);
  void FetchSome();
  // False when nothing was launched on scratch.
  bool BeginAdmission(int candidate, void* const* args, StreamHandle stream);
  void EndAdmission(void* const* args, StreamHandle stream);
  absl::Status PrepareScratch(void* const* args, StreamHandle stream);
  absl::Status CopyOutputs(void* const* args, StreamHandle stream);
  absl::StatusOr<DataSignature> Sign(void* const* args, StreamHandle stream, double* cost_ns);
  absl::Status LaunchTimed(int candidate, const Plan& plan, void* const* args, StreamHandle stream);
  void ReadTimes();
  void Settle();
  TuningResult Evidence(Round& round, int winner) const;
  void FreeScratch();
  absl::StatusOr<EventHandle> TakeEvent();
  double HostNs() const;

  LiveOptions options_;
  Device& device_;
  std::atomic<const Plan*> current_;
  std::atomic<bool> busy_{false};
  std::atomic<DriftWatch*> watch_{nullptr};
  std::atomic_flag stepping_ = ATOMIC_FLAG_INIT;
  std::atomic<int64_t> rounds_{0}, checks_{0}, drifts_{0}, admissions_{0};

  // Below: only the thread that has the step.
  Plan& first_;
  std::shared_ptr<Round> round_;
  std::vector<std::unique_ptr<Plan>> loaded_;
  std::vector<std::unique_ptr<DriftWatch>> watches_;
  std::vector<Variant> few_;
  DataSignature signature_;
  std::deque<Timed> pending_;
  std::vector<EventHandle> events_, idle_events_;
  bool launches_wait_ = false;  // a launch returns when the kernel has ended
  std::vector<double> looked_ns_;
  std::unique_ptr<Scratch> scratch_;
  std::vector<DevicePointer> copies_;  // of what the live launch wrote, per written argument
  StreamHandle own_stream_ = nullptr;  // the background's
};

}  // namespace whet
