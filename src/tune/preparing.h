// The first stage of a tuning: which variants are compiled, verified and probed, and in which order.
//
//   if (absl::Status s = PrepareVariants(run, source); !s.ok()) return s;
//   run.alive      // in the order of the request; each was right once and has an estimate_ns
//
// In chunks, as the search asks for them. Inside a chunk the verification of those that are ready
// runs beside the compiling of the others; the reference is compiled with the first chunk, and what
// is ready before it waits for it. Half of the budget at most, and with little patience no more
// chunks than help.
#pragma once

#include "absl/status/status.h"
#include "src/tune/tuner.h"
#include "src/tune/tuning_run.h"

namespace whet {

// FailedPrecondition when the reference cannot be made or run, or no variant is left; Unavailable
// when the device was lost.
absl::Status PrepareVariants(TuningRun& run, VariantSource& source);

}  // namespace whet
