// Admission: who may be timed. A variant is compiled, loaded, run once on scratch and compared with
// what the reference variant gives; then a short probe gives a first idea of its time.
//
//   absl::StatusOr<Admission> admission = Admission::Create(reference, request, watch, scratch);
//   absl::Status out = admission->Admit(prepared, candidate, evidence);
//
// Not thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/tune/measuring.h"
#include "src/tune/scratch.h"
#include "src/tune/tuner.h"

namespace whet {

class Admission {
 public:
  // Runs the reference and keeps what it wrote. FailedPrecondition when it cannot be run or writes
  // out of bounds; Unavailable when the device was lost.
  static absl::StatusOr<Admission> Create(const PreparedVariant& reference,
                                          const TuningRequest& request, Stopwatch& watch,
                                          Scratch& scratch);

  // Fills `candidate` and `evidence`. OK also when the variant is out: then evidence.outcome says
  // kWrong or kFailed, with the reason. The first launch is a trial where the device has such
  // (Device::TrialLaunch): a variant that faults or does not end there is `blocked`. Unavailable
  // when the device was lost; when that was for a launch that did not end, the variant is out and
  // `blocked` too.
  absl::Status Admit(const PreparedVariant& prepared, Candidate& candidate,
                     VariantEvidence& evidence);

 private:
  Admission(const TuningRequest& request, Stopwatch& watch, Scratch& scratch)
      : request_(&request), watch_(&watch), scratch_(&scratch) {}

  absl::Status Bind(const PreparedVariant& prepared, Candidate& candidate) const;
  // One launch on fresh scratch; what was written, per written argument. `problem` receives what
  // was written beside the buffers. DeadlineExceeded when it did not end within `limit`.
  absl::StatusOr<std::vector<std::string>> RunOnce(Candidate& candidate, absl::Duration limit,
                                                   std::string& problem);
  void Compare(const std::vector<std::string>& outputs, VariantEvidence& evidence) const;
  absl::Status Probe(Candidate& candidate);
  absl::Duration TrialLimit() const;

  const TuningRequest* request_;
  Stopwatch* watch_;
  Scratch* scratch_;
  std::vector<std::string> expected_;
  int64_t reference_ns_ = 0;  // of its one run, with what is round it
};

}  // namespace whet
