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
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/device/device.h"
#include "src/runtime/live/live_admission.h"
#include "src/runtime/live/live_options.h"
#include "src/runtime/live/live_round.h"
#include "src/runtime/live/live_times.h"
#include "src/runtime/plan/plan.h"
#include "src/tune/drift.h"
#include "src/tune/signature.h"

namespace whet {

class LiveCalls final : public LiveLaunch {
 public:
  // `first` belongs to somebody who keeps it as long as this object.
  LiveCalls(Plan& first, LiveOptions options);
  ~LiveCalls() override = default;

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
  class Step;

  void BeginRound(std::vector<Variant> candidates, bool incumbent);
  absl::Status Ride(void* const* args, StreamHandle stream);
  absl::Status Look(void* const* args, StreamHandle stream);
  void BeginSignature(void* const* args, StreamHandle stream);
  void FetchSome();
  absl::StatusOr<DataSignature> Sign(void* const* args, StreamHandle stream, double* cost_ns);
  void Settle();

  LiveOptions options_;
  Device& device_;
  std::atomic<const Plan*> current_;
  std::atomic<bool> busy_{false};
  std::atomic<DriftWatch*> watch_{nullptr};
  std::atomic_flag stepping_ = ATOMIC_FLAG_INIT;
  std::atomic<int64_t> rounds_{0}, checks_{0}, drifts_{0};

  // Below: only the thread that has the step.
  Plan& first_;
  std::shared_ptr<LiveRound> round_;
  std::vector<std::unique_ptr<Plan>> loaded_;
  std::vector<std::unique_ptr<DriftWatch>> watches_;
  std::vector<Variant> few_;
  DataSignature signature_;
  std::unique_ptr<SignatureSample> sample_;  // of this round
  std::vector<Variant> rest_;  // whose turn the budget of the last round did not reach
  std::vector<double> looked_ns_;
  LiveTimes times_;
  LiveAdmission admission_;
};

}  // namespace whet
