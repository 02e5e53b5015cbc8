// Notices when a winner is no longer tuned for what it is fed: the live data left its class, or the
// live time left its band.
//
//   DriftWatch watch(winner_signature, winner_ns, {});
//   if (watch.CountCall()) {                                  // now and then
//     watch.CheckSignature(TakeSignature(...), cost_ns);  watch.CheckTime(live_ns);
//   }
//   if (watch.verdict() != Drift::kNone) Tune({.variants = BestFew(evidence, 4),
//                                              .incumbent = winner});
//
// One check proves nothing (a batch of padding, a busy neighbour): only `confirmations` in a row
// do. Checks that find nothing become rarer, up to 64 times the interval, and never so frequent
// that they cost more than `share` of the calls' time. CountCall is one atomic addition and may be
// called from any thread; the rest is thread-safe too.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "src/base/mutex.h"
#include "src/tune/signature.h"
#include "src/tune/tuner.h"

namespace whet {

enum class Drift : uint8_t { kNone, kData, kTime };

struct DriftPolicy {
  int64_t every_calls = 1000;
  double share = 0.001;  // of the calls' time that checks may cost
  double distance = kSameClass;
  double time_band = 0.10;  // slower than the winner's time by more than this; faster is no worry
  int confirmations = 3;
};

class DriftWatch {
 public:
  // `winner_ns` 0: the time is not watched.
  DriftWatch(DataSignature signature, double winner_ns, const DriftPolicy& policy);

  // Counts a call; true when a check is due.
  bool CountCall() {
    return calls_.fetch_add(1, std::memory_order_relaxed) + 1 ==
           next_check_.load(std::memory_order_relaxed);
  }
  // `cost_ns` is what taking the signature cost.
  void CheckSignature(const DataSignature& live, double cost_ns);
  // Median time of some live calls.
  void CheckTime(double live_ns);

  // Stays once it is not kNone.
  Drift verdict() const { return verdict_.load(std::memory_order_acquire); }
  int64_t checks() const;
  int64_t next_check() const { return next_check_.load(std::memory_order_relaxed); }

 private:
  void Schedule(double cost_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const DataSignature signature_;
  const double winner_ns_;
  const DriftPolicy policy_;
  std::atomic<int64_t> calls_{0};
  std::atomic<int64_t> next_check_;
  std::atomic<Drift> verdict_{Drift::kNone};
  mutable Mutex mutex_;
  int data_strikes_ ABSL_GUARDED_BY(mutex_) = 0;
  int time_strikes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t checks_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t rarer_ ABSL_GUARDED_BY(mutex_) = 1;
};

// The variants worth another look when the data, the driver or the compiler changed: the winner,
// then the others by their time, at most `count`. Wrong and failed ones are left out.
std::vector<Variant> BestFew(const TuningResult& result, size_t count);

}  // namespace whet
