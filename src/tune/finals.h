// Finals: each finalist alone, at its own steady state.
//
//   absl::StatusOr<FinalsResult> r = RunFinals(finalists, watch, rules, keep_going);
//   r->decision.winner
//
// The first pass (the heats) is one short visit to everyone, and only the fastest go on. Then passes
// back and forth, so that a slow drift cancels, until the decision is proven or the passes are used
// up; whoever is surely out of the tie zone is visited no more, unless it lost much more than it did
// in the screening: then it may have been disturbed for the whole of its visits, and gets another.
//
// A visit soaks, then times. The very first soaks until its timings are flat: the device comes from
// wherever it was. After that it is warm and loaded, and a change of kernel moves the clock alone,
// which takes the device's ClockLag; what is left of a slower movement is common to all, and taken out
// by the decision.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "src/base/clock.h"
#include "src/device/device.h"
#include "src/tune/decision.h"
#include "src/tune/measuring.h"

namespace whet {

struct FinalsRules {
  absl::Duration soak = absl::ZeroDuration();      // fixed; zero: as above
  absl::Duration longest_soak = absl::Seconds(1);  // and at most eight times the ClockLag
  double flatness = 0.004;  // relative drift over the last stretch that counts as none
  absl::Duration heat = absl::Milliseconds(60);   // of timing in the first visit
  absl::Duration time = absl::Milliseconds(100);  // of timing in the others
  int places = 4;                                 // who go on after the first visits
  int passes = 6;                                 // after the first
  DecisionRules decision;
  Clock* clock = Clock::Real();  // what drift is measured against
};

struct FinalistInput {
  Candidate* candidate = nullptr;
  bool incumbent = false;  // goes on whatever its first visit shows
  // Of equals it wins, so it goes on where it may be one, whatever its place.
  bool preferred = false;
};

struct FinalistResult {
  std::vector<Visit> visits;
  std::vector<double> samples_ns;  // of the timed parts
  std::vector<TelemetrySample> telemetry;
  double soak_ns = 0;  // longest
  bool steady = true;  // every visit had become flat, or was the device's lag away from the last
  int place = 0;       // in the heats, from 1; 0: it went on, or there were none to lose
  double behind = 0;   // the first then, as a share
  absl::Status error;  // a launch failed; out
};

struct FinalsResult {
  std::vector<FinalistResult> finalists;  // in the order of the input
  std::vector<size_t> deciding;  // those without an error that went on, in the order of `decision`
  Decision decision;             // empty when `deciding` is
};

// `keep_going` is asked before each visit but the very first; false ends the finals with what is
// known, which is nothing while somebody was not visited yet.
// Unavailable when the device was lost; any other failure takes the finalist out.
absl::StatusOr<FinalsResult> RunFinals(absl::Span<const FinalistInput> finalists, Stopwatch& watch,
                                       const FinalsRules& rules,
                                       const std::function<bool()>& keep_going);

}  // namespace whet
