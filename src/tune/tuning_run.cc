#include "src/tune/tuning_run.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace whet {

TuningRun::TuningRun(const TuningRequest& tuning_request, Device& device,
                     const TuningProgress& sink, Scratch scratch_buffers)
    : request(tuning_request),
      progress(sink),
      scratch(std::move(scratch_buffers)),
      watch(device, tuning_request.stream, scratch),
      candidates(tuning_request.variants.size()),
      begin_ns(tuning_request.clock->MonotonicNanoseconds()) {
  result.evidence.resize(request.variants.size());
  for (size_t i = 0; i < request.variants.size(); ++i) {
    result.evidence[i].variant = request.variants[i];
    candidates[i].index = static_cast<int>(i);
    if (!request.incumbent.empty() && request.variants[i].id() == request.incumbent) incumbent = i;
  }
}

bool TuningRun::Spent(double share) {
  const bool spent =
      static_cast<double>(Elapsed()) >= absl::ToDoubleNanoseconds(request.policy.budget) * share;
  result.budget_spent |= spent && share == 1;
  return spent;
}

void TuningRun::Report(absl::string_view what, size_t done, size_t of) {
  stage = what;
  if (progress) progress(what, static_cast<int>(done), static_cast<int>(of));
}

void TuningRun::Drop(const Candidate& c, std::string reason) {
  Out(c, VariantOutcome::kDropped, std::move(reason));
}

void TuningRun::Fail(const Candidate& c, const absl::Status& status) {
  Out(c, VariantOutcome::kFailed, std::string(status.message()));
}

void TuningRun::Out(const Candidate& c, VariantOutcome outcome, std::string reason) {
  EvidenceOf(c).outcome = outcome;
  EvidenceOf(c).reason = std::move(reason);
  std::erase_if(alive, [&](const Candidate* a) { return a == &c; });
  ReportOut(EvidenceOf(c));
}

void TuningRun::ReportOut(VariantEvidence& evidence) {
  evidence.stage = std::string(stage);
  evidence.out_s = static_cast<double>(Elapsed()) / 1e9;
  if (request.on_out) request.on_out(evidence);
}

absl::Status TuningRun::NoneLeft() const {
  std::vector<std::string> reasons;
  for (const VariantEvidence& e : result.evidence) {
    reasons.push_back(absl::StrCat(e.variant.id(), " (", VariantOutcomeName(e.outcome),
                                   "): ", e.reason.empty() ? "the budget was spent" : e.reason));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("cannot tune: no variant is left; ", absl::StrJoin(reasons, "; ")));
}

}  // namespace whet
