// What the stages of one tuning share: who is still in it, what is known of each, and the budget.
//
//   TuningRun run(request, device, progress, std::move(scratch));
//   if (absl::Status s = PrepareVariants(run, source); !s.ok()) return s;   // preparing.h
//   run.alive                                                               // who may be timed
//
// Invariants: (1) result.evidence[i] belongs to request.variants[i] from the beginning; (2) `alive`
// holds exactly the candidates that were verified and not dropped; (3) whoever is out is reported
// at once, with its reason. Not thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "src/tune/measuring.h"
#include "src/tune/scratch.h"
#include "src/tune/tuner.h"

namespace whet {

struct TuningRun {
  // All but the scratch must outlive the run.
  TuningRun(const TuningRequest& tuning_request, Device& device, const TuningProgress& sink,
            Scratch scratch_buffers);
  TuningRun(const TuningRun&) = delete;
  TuningRun& operator=(const TuningRun&) = delete;

  int64_t Elapsed() const { return request.clock->MonotonicNanoseconds() - begin_ns; }
  // Whether `share` of the budget is spent; all of it is remembered in the result.
  bool Spent(double share = 1);
  void Report(absl::string_view what, size_t done, size_t of);

  VariantEvidence& EvidenceOf(const Candidate& c) {
    return result.evidence[static_cast<size_t>(c.index)];
  }
  bool IsIncumbent(const Candidate& c) const {
    return incumbent.has_value() && static_cast<size_t>(c.index) == *incumbent;
  }
  void Drop(const Candidate& c, std::string reason);
  void Fail(const Candidate& c, const absl::Status& status);
  // For one whose outcome and reason are in its evidence already.
  void ReportOut(VariantEvidence& evidence);
  // FailedPrecondition with the reason of each variant.
  absl::Status NoneLeft() const;

  const TuningRequest& request;
  const TuningProgress& progress;
  Scratch scratch;
  Stopwatch watch;
  std::vector<Candidate> candidates;  // one per variant
  std::vector<Candidate*> alive;
  std::optional<size_t> incumbent;
  absl::string_view stage = "compile";
  bool searched_whole = true;
  const int64_t begin_ns;
  TuningResult result;

 private:
  void Out(const Candidate& c, VariantOutcome outcome, std::string reason);
};

}  // namespace whet
