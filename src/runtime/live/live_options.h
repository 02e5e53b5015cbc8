// What live tuning is told and what it tells: its variants, its policies, what a round came to.
//
//   LiveOptions options{.device = &device, .arguments = arguments, .background = &background};
//   options.variants = std::make_unique<MyVariants>();
//   LiveCalls live(first_plan, std::move(options));
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "src/base/background.h"
#include "src/base/clock.h"
#include "src/device/device.h"
#include "src/runtime/plan/plan.h"
#include "src/tune/drift.h"
#include "src/tune/online.h"
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
  // (optional: `background`) Where variants are fetched: a compiler must not hold up what compares,
  // and takes only processors that nobody else wants.
  Background* compiling = nullptr;
  int fetched_ahead = 2;  // compiled or being compiled, and waiting for their trial
  OnlinePolicy online;
  DriftPolicy drift;
  bool watch_drift = true;  // once settled
  int most_candidates = 16;
  size_t few = 4;  // variants that are tried again after drift
  // A first launch may take 20 times what runs takes, but this long at least and a minute at most.
  absl::Duration least_trial = absl::Seconds(2);
  Clock* clock = Clock::Real();
  // In the background, as soon as a first launch did not end: the process may have to be killed. The
  // device is lost by then.
  std::function<void(const VariantEvidence&)> on_blocked;
  // In the background, after every round.
  std::function<void(const LiveOutcome&)> on_settled;
};

struct LiveCounters {
  int64_t rounds = 0;      // of tuning, that have ended
  int64_t checks = 0;      // for drift
  int64_t drifts = 0;      // that were found
  int64_t admissions = 0;  // trials on scratch
};

}  // namespace whet
