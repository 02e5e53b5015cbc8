#include "src/tune/admission.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/tune/verification.h"

namespace whet {
namespace {

// Whether tuning can go on without the one that failed.
bool IsFatal(const absl::Status& status) { return absl::IsUnavailable(status); }

}  // namespace

absl::StatusOr<Admission> Admission::Create(const PreparedVariant& reference,
                                            const TuningRequest& request, Stopwatch& watch,
                                            Scratch& scratch) {
  Admission admission(request, watch, scratch);
  Candidate candidate;
  std::string problem;
  absl::Status status = admission.Bind(reference, candidate);
  if (status.ok()) {
    const int64_t before = request.clock->MonotonicNanoseconds();
    absl::StatusOr<std::vector<std::string>> outputs =
        admission.RunOnce(candidate, absl::InfiniteDuration(), problem);
    admission.reference_ns_ = request.clock->MonotonicNanoseconds() - before;
    status = outputs.status();
    if (outputs.ok()) admission.expected_ = *std::move(outputs);
  }
  if (IsFatal(status)) return status;
  if (status.ok() && problem.empty()) return admission;
  return absl::FailedPreconditionError(
      absl::StrCat("cannot tune: the reference variant ", request.reference.id(),
                   " cannot be run: ", status.ok() ? problem : std::string(status.message()),
                   "; without it no variant can be verified"));
}

absl::Status Admission::Bind(const PreparedVariant& prepared, Candidate& candidate) const {
  candidate.kernel = prepared.kernel;
  candidate.kernel.SetParameters(request_->arguments);
  candidate.geometry = prepared.geometry;
  candidate.pack = std::make_unique<ArgumentPack>(request_->arguments, prepared.tensor_maps);
  for (size_t i = 0; i < request_->arguments.size(); ++i) {
    const Argument& argument = request_->arguments[i];
    if (argument.direction != Direction::kScalar) continue;
    candidate.pack->SetScalar(static_cast<int>(i), &request_->scalars[i],
                              DTypeBytes(argument.dtype));
  }
  scratch_->Bind(*candidate.pack);
  return candidate.pack->EncodeTensorMaps(watch_->device());
}

absl::StatusOr<std::vector<std::string>> Admission::RunOnce(Candidate& candidate,
                                                            absl::Duration limit,
                                                            std::string& problem) {
  if (absl::Status s = scratch_->Reset(); !s.ok()) return s;
  if (absl::Status s = watch_->Launch(candidate); !s.ok()) return s;
  // Faults of the kernel itself come up here and not at the launch.
  absl::Status ended = limit == absl::InfiniteDuration()
                           ? watch_->device().Synchronize(watch_->stream())
                           : watch_->device().SynchronizeWithin(watch_->stream(), limit);
  if (!ended.ok()) return ended;
  absl::StatusOr<std::string> guards = scratch_->CheckGuards();
  if (!guards.ok()) return guards.status();
  problem = *std::move(guards);
  std::vector<std::string> outputs;
  for (int i : scratch_->written()) {
    absl::StatusOr<std::string> bytes = scratch_->Read(i);
    if (!bytes.ok()) return bytes.status();
    outputs.push_back(*std::move(bytes));
  }
  return outputs;
}

void Admission::Compare(const std::vector<std::string>& outputs, VariantEvidence& evidence) const {
  evidence.relative_error = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Argument& argument = scratch_->arguments()[static_cast<size_t>(scratch_->written()[i])];
    const Difference difference = CompareTensors(argument, outputs[i], expected_[i]);
    evidence.relative_error = std::max(evidence.relative_error, difference.relative_l2);
    const double tolerance = request_->tolerance ? request_->tolerance(argument.dtype) : 0;
    std::string reason = difference.problem;
    if (reason.empty() && !(difference.relative_l2 <= tolerance)) {
      reason = absl::StrCat("its ", argument.name, " differs from the reference's by ",
                            difference.relative_l2, " (relative L2), allowed are ", tolerance);
    }
    if (!reason.empty() && evidence.outcome != VariantOutcome::kWrong) {
      evidence.outcome = VariantOutcome::kWrong;
      evidence.reason = std::move(reason);
    }
  }
}

absl::Status Admission::Probe(Candidate& candidate) {
  // The first launch after loading is no measure, and events round: so the shortest of a few, and
  // once more in a batch when it is short.
  for (const Batch batch : {Batch{.launches_per_sample = 1, .samples = 3}, Batch{}}) {
    Batch now = batch;
    if (candidate.estimate_ns > 0) {
      if (candidate.estimate_ns >= kSampleNs) break;
      now = BatchFor(candidate.estimate_ns, absl::Microseconds(100));
    }
    absl::StatusOr<Stopwatch::Ticket> ticket = watch_->Enqueue(candidate, now);
    if (!ticket.ok()) return ticket.status();
    absl::StatusOr<std::vector<double>> samples = watch_->Read(*std::move(ticket));
    if (!samples.ok()) return samples.status();
    candidate.estimate_ns = std::max(1.0, *std::min_element(samples->begin(), samples->end()));
  }
  return absl::OkStatus();
}

// The reference is no fast kernel; what takes many times as long, and seconds, will not win.
absl::Duration Admission::TrialLimit() const {
  return std::clamp(absl::Nanoseconds(20 * reference_ns_), request_->policy.least_trial,
                    absl::Seconds(60));
}

absl::Status Admission::Admit(const PreparedVariant& prepared, Candidate& candidate,
                              VariantEvidence& evidence) {
  std::string problem;
  absl::Status status = Bind(prepared, candidate);
  if (status.ok()) {
    status = watch_->device().TrialLaunch(candidate.kernel, candidate.geometry,
                                          candidate.pack->params(), TrialLimit());
    evidence.blocked = absl::IsFailedPrecondition(status);
  }
  if (status.ok()) {
    if (request_->before_first_launch) request_->before_first_launch(evidence.variant);
    absl::StatusOr<std::vector<std::string>> outputs = RunOnce(candidate, TrialLimit(), problem);
    if (request_->after_first_launch) request_->after_first_launch(evidence.variant);
    status = outputs.status();
    if (outputs.ok() && problem.empty()) Compare(*outputs, evidence);
  }
  if (status.ok() && !problem.empty()) {
    evidence.outcome = VariantOutcome::kWrong;
    evidence.reason = problem;
  }
  if (status.ok() && evidence.outcome == VariantOutcome::kUntried) status = Probe(candidate);
  const bool endless = absl::IsDeadlineExceeded(status);
  if (IsFatal(status)) return status;
  if (!status.ok()) {
    evidence.blocked |= endless;
    evidence.outcome = VariantOutcome::kFailed;
    evidence.reason = std::string(status.message());
  }
  // What does not end cannot be ended, and the device is no use before the process has.
  return endless ? absl::UnavailableError(status.message()) : absl::OkStatus();
}

}  // namespace whet
