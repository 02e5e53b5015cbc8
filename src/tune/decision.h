// The decision: who wins, from what the finalists showed at their own steady states.
//
//   Decision d = Decide({{.order = 0, .visits = {{1.00e6, 0.001}, {1.01e6, 0.001}}}, ...}, rules);
//   finalists[d.winner]
//
// Rules, in this order:
//   1. The fastest is the finalist with the smallest estimate: the mean of its visits (in the
//      logarithm), less the drift that all have in common. A visit that is slower than the finalist's
//      best one by more than kDisturbed does not count: another tenant of the device was there, and
//      disturbances only ever slow down.
//   2. Whoever is *proven* within 0.7 of the tie zone of the fastest is its equal, and of equals the
//      earliest in the request's order wins: so equal kernels give the same winner on every machine
//      and every day. Whoever is not proven equal loses to the fastest, so the tie zone never costs
//      more than its own width.
//   3. An incumbent stays unless its ratio to that winner is proven to be at least 1 + replace_gain.
//
// The common drift (a room or a heat sink that warms up) is a line through time, fitted to all visits
// together: finalists that were visited more often were also visited later, and would pay for it.
// Steep lines need proof: its prior is no drift, give or take kDriftPerSecond.
//
// Intervals are 95 %, from the scatter between visits pooled over all finalists, with the scatter
// inside the visits as a prior that counts as kPriorVisits visits.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "src/tune/statistics.h"

namespace whet {

inline constexpr double kPriorVisits = 3;
// Twice what a clock that wanders does between two visits, half of what a tenant does.
inline constexpr double kDisturbed = 0.045;
inline constexpr double kDriftPerSecond = 0.005;

struct Visit {
  double median_ns = 0;
  double relative_error = 0;  // standard error of the median, as the visit itself shows it
  double at_s = 0;            // the middle of its timing, by any clock
};

struct Finalist {
  int order = 0;  // position in the request
  bool incumbent = false;
  std::vector<Visit> visits;  // at least one
};

struct DecisionRules {
  double tie_zone = 0.01;
  double replace_gain = 0.03;
};

struct Decision {
  size_t winner = 0;            // index into the finalists
  size_t fastest = 0;           // by estimate, whatever the rules made of it
  bool kept_incumbent = false;  // rule 3 overruled the others
  // Per finalist: cannot be told from the fastest by more than the tie zone.
  std::vector<bool> tied;
  // Per finalist: time over the fastest's, with its interval. {1, 1} for the fastest itself.
  std::vector<Interval> ratio;
  // Per finalist: median of one launch and its interval.
  std::vector<double> median_ns;
  std::vector<Interval> interval_ns;
  // The winner is proven to be no more than 0.3 of the tie zone slower than any other, and everyone
  // who may win has two visits that count (where there were two): more visits could only choose
  // between equals.
  bool settled = false;
  // Of the time, per second, that all have in common.
  double drift_per_second = 0;
};

// `finalists` must not be empty.
Decision Decide(absl::Span<const Finalist> finalists, const DecisionRules& rules);

}  // namespace whet
