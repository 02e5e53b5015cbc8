// Finals: each finalist alone, at its own steady state, in A B B A order.
//
//   absl::StatusOr<FinalsResult> r = RunFinals(finalists, watch, rules, keep_going);
//   r->decision.winner
//
// A visit soaks until its timings are flat (a GPU's clock follows the kernel and its data, and takes
// tenths of a second to do so), then times. Cycles of visits, forth and back so that a slow drift
// cancels, go on until the decision is settled or the cycles are used up. Whoever is surely out of
// the tie zone is visited no more, unless it lost much more than it did in the screening: then it
// may have been disturbed for the whole of its visits, and gets another cycle.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "src/device/device.h"
#include "src/tune/decision.h"
#include "src/tune/measuring.h"

namespace whet {

struct FinalsRules {
  absl::Duration soak = absl::ZeroDuration();      // fixed; zero: until flat
  absl::Duration longest_soak = absl::Seconds(1);  // and at most eight times the ClockLag
  double flatness = 0.004;  // relative drift over the last stretch that counts as none
  absl::Duration time = absl::Milliseconds(100);  // of timing, per visit
  int cycles = 3;                                 // of two visits each
  DecisionRules decision;
};

struct FinalistInput {
  Candidate* candidate = nullptr;
  bool incumbent = false;
};

struct FinalistResult {
  std::vector<Visit> visits;
  std::vector<double> samples_ns;  // of the timed parts
  std::vector<TelemetrySample> telemetry;
  double soak_ns = 0;  // longest
  bool steady = true;  // every visit became flat before its timing began
  absl::Status error;  // a launch failed; out
};

struct FinalsResult {
  std::vector<FinalistResult> finalists;  // in the order of the input
  std::vector<size_t> deciding;           // those without an error, in the order of `decision`
  Decision decision;                      // empty when `deciding` is
};

// One solo visit: soak, then time.
absl::StatusOr<Visit> SoloVisit(Candidate& candidate, Stopwatch& watch, const FinalsRules& rules,
                                FinalistResult& result);

// `keep_going` is asked before each visit but the first of each finalist. Unavailable when the
// device was lost; any other failure takes the finalist out.
absl::StatusOr<FinalsResult> RunFinals(absl::Span<const FinalistInput> finalists, Stopwatch& watch,
                                       const FinalsRules& rules,
                                       const std::function<bool()>& keep_going);

}  // namespace whet
