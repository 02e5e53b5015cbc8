// What one round of live tuning knows: its candidates, how far each has come, and why some are out.
//
//   auto round = std::make_shared<LiveRound>(candidates, policy);
//   round->Reject(3, VariantOutcome::kWrong, "its y differs ...");
//   TuningResult result = EvidenceOf(*round, round->tuner.best());
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "src/base/mutex.h"
#include "src/device/device.h"
#include "src/runtime/plan/plan.h"
#include "src/tune/online.h"
#include "src/tune/signature.h"
#include "src/tune/tuner.h"

namespace whet {

// One round of tuning. The background sees `tuner`, `fetched` and what the mutex guards.
struct LiveRound {
  enum Fetched : uint8_t { kNo, kFetching, kYes, kLoaded };

  LiveRound(std::vector<Variant> all, const OnlinePolicy& policy)
      : candidates(std::move(all)),
        tuner(static_cast<int>(candidates.size()), 0, policy),
        plans(candidates.size(), nullptr),
        fetched(candidates.size()),
        reasons(candidates.size()),
        errors(candidates.size(), -1) {}

  // Out, with its reason. `hurt`: it faulted or did not end, and is not to be run again.
  void Reject(int which, VariantOutcome outcome, std::string reason, bool hurt = false);

  std::vector<Variant> candidates;
  OnlineTuner tuner;
  std::vector<Plan*> plans;  // null until admitted to scratch
  std::vector<std::atomic<uint8_t>> fetched;
  std::atomic<bool> comparing{false};
  int64_t calls = 0;
  bool signed_off = false;           // the signature was begun
  std::atomic<bool> signing{false};  // the background counts it
  DataSignature signature;           // when it has
  // Of the admission that is under way.
  int candidate = -1;
  EventHandle begin = nullptr, end = nullptr, copied = nullptr;
  double host_ns = 0;

  Mutex mutex;
  std::vector<std::pair<int, VariantOutcome>> outcomes ABSL_GUARDED_BY(mutex);
  std::vector<int> blocked ABSL_GUARDED_BY(mutex);
  std::vector<std::string> reasons ABSL_GUARDED_BY(mutex);
  std::vector<double> errors ABSL_GUARDED_BY(mutex);
};

// What became of each, as the winner's evidence keeps it.
TuningResult EvidenceOf(LiveRound& round, int winner);

}  // namespace whet
