// Screening: short interleaved rounds that find out who is certainly too slow.
//
//   absl::StatusOr<ScreeningResult> r = Screen(candidates, watch, rules, keep_going);
//
// Every round runs each living candidate once, for about a millisecond. What is compared is the
// ratio to the leader of the same round, so a clock that drifts from round to round cancels. A
// candidate is dropped when it is surely slower than the leader by more than the margin. The margin
// is wide on purpose: candidates that take turns all run at the average clock, while alone a
// candidate that draws less power runs faster, and several percent between candidates change sides
// that way. So screening may only drop; it never decides.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "src/tune/measuring.h"
#include "src/tune/statistics.h"

namespace whet {

struct ScreeningRules {
  int rounds = 5;       // before anyone may be dropped
  int most_rounds = 9;  // before everyone left goes on
  double margin = 0.06;
  size_t enough = 4;                            // stop when no more are left
  absl::Duration turn = absl::Milliseconds(1);  // of one candidate in one round
  std::vector<int> keep;                        // indices in the request that are never dropped
};

struct ScreenedCandidate {
  std::vector<double> rounds_ns;  // median of each round
  bool dropped = false;
  int dropped_in_round = 0;
  double surely_slower = 0;  // lower bound of its ratio to the leader, minus 1, when dropped
  absl::Status error;        // a launch failed; out
};

// Ratio of the paired rounds of two candidates (over the rounds that both have): 95 % interval of
// its median.
Interval RoundRatio(absl::Span<const double> rounds, absl::Span<const double> leader);

// One entry per candidate. Sets estimate_ns and screened_ns of each to the median
// of its rounds. `keep_going` is
// asked before each round with the rounds done; false ends screening with what is known.
// Unavailable when the device was lost.
absl::StatusOr<std::vector<ScreenedCandidate>> Screen(
    absl::Span<Candidate* const> candidates, Stopwatch& watch, const ScreeningRules& rules,
    const std::function<bool(int rounds_done)>& keep_going);

}  // namespace whet
