#include "src/tune/drift.h"

#include <algorithm>
#include <utility>

namespace whet {
namespace {

constexpr int64_t kRarest = 64;

}  // namespace

DriftWatch::DriftWatch(DataSignature signature, double winner_ns, const DriftPolicy& policy)
    : signature_(std::move(signature)),
      winner_ns_(winner_ns),
      policy_(policy),
      next_check_(policy.every_calls) {}

int64_t DriftWatch::checks() const {
  MutexLock lock(mutex_);
  return checks_;
}

void DriftWatch::Schedule(double cost_ns) {
  int64_t interval = policy_.every_calls * rarer_;
  if (winner_ns_ > 0) {
    interval = std::max(interval, static_cast<int64_t>(cost_ns / (policy_.share * winner_ns_)));
  }
  next_check_.store(calls_.load(std::memory_order_relaxed) + interval, std::memory_order_relaxed);
}

void DriftWatch::CheckSignature(const DataSignature& live, double cost_ns) {
  MutexLock lock(mutex_);
  ++checks_;
  if (SignatureDistance(live, signature_) > policy_.distance) {
    rarer_ = 1;
    if (++data_strikes_ >= policy_.confirmations && verdict() == Drift::kNone) {
      verdict_.store(Drift::kData, std::memory_order_release);
    }
  } else {
    data_strikes_ = 0;
    rarer_ = std::min(rarer_ * 2, kRarest);
  }
  Schedule(cost_ns);
}

void DriftWatch::CheckTime(double live_ns) {
  if (winner_ns_ <= 0) return;
  MutexLock lock(mutex_);
  if (live_ns <= winner_ns_ * (1 + policy_.time_band)) {
    time_strikes_ = 0;
    return;
  }
  rarer_ = 1;
  if (++time_strikes_ >= policy_.confirmations && verdict() == Drift::kNone) {
    verdict_.store(Drift::kTime, std::memory_order_release);
  }
}

std::vector<Variant> BestFew(const TuningResult& result, size_t count) {
  std::vector<const VariantEvidence*> timed;
  for (const VariantEvidence& e : result.evidence) {
    const bool usable =
        e.outcome == VariantOutcome::kTimed || e.outcome == VariantOutcome::kDropped;
    if (usable && e.median_ns > 0 && !(e.variant == result.winner)) timed.push_back(&e);
  }
  // Times of the finals first: those of earlier stages were taken at another clock.
  std::stable_sort(timed.begin(), timed.end(),
                   [](const VariantEvidence* a, const VariantEvidence* b) {
                     if (a->final_round != b->final_round) return a->final_round;
                     return a->median_ns < b->median_ns;
                   });
  std::vector<Variant> few = {result.winner};
  for (const VariantEvidence* e : timed) few.push_back(e->variant);
  if (few.size() > count) few.resize(count);
  return few;
}

}  // namespace whet
