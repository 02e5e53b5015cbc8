// Who is fastest on processors that other programs use too: launches by turns, and ratios between
// neighbours in time.
//
//   PairedRace race({{.order = 0}, {.order = 1}}, {.rounds = 300});
//   while (!race.over()) race.EndRound(OneLaunchOfEach(race.running()));
//   race.Decide().winner
//
// A processor's clock does not follow the kernel over tens of milliseconds, so nobody needs a steady
// state of its own. What disturbs is the others: neighbours on the same core and cache change the
// speed by tens of percent for tens to hundreds of launches, so two launches one after the other
// share it and times taken apart do not. So each round holds one sample of everybody, forth and
// back, and a ratio is the median of the rounds' ratios.
//
// What a sample says is its wall time while most samples were undisturbed, and then only those
// count. Where other programs interrupt most of them, wall time says when the scheduler let it run;
// then the processor time of all threads counts, which the interruptions are no part of. (It does
// not see how evenly the threads share the work.)
//
// Whoever is surely out of the tie zone runs no more, and at a quarter and at half of the rounds'
// cost the slower half of those that are left does not either: what is left to spend is for the
// close ones.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "src/tune/decision.h"
#include "src/tune/measuring.h"

namespace whet {

struct PairedEntry {
  int order = 0;           // position in the request
  bool incumbent = false;  // runs until it is proven slower by what replacing it asks for
};

struct PairedRules {
  double budget_ns = 6e9;  // of wall time over all samples
  int least_rounds = 12;   // before anyone may be out
  DecisionRules decision;
};

class PairedRace {
 public:
  // `entries` must not be empty.
  PairedRace(std::vector<PairedEntry> entries, const PairedRules& rules);

  // Whose turn it is in the next round, in this order.
  const std::vector<size_t>& running() const { return running_; }
  // Samples of `running`, in its order; one without a wall time did not run.
  void EndRound(absl::Span<const Stopwatch::Sample> samples);
  // Gone: it failed.
  void Drop(size_t entry);
  // Decided, or the budget is spent.
  bool over() const { return over_; }
  // Of all entries; those that never ran have no ratio and cannot win.
  Decision Decide() const;

 private:
  struct Round {
    size_t number = 0;
    Stopwatch::Sample sample;
  };
  std::vector<double> Ratios(size_t entry, size_t other) const;
  size_t Fastest() const;
  void DropTheFarBehind();
  void Judge();

  const std::vector<PairedEntry> entries_;
  const PairedRules rules_;
  std::vector<std::vector<Round>> rounds_;  // per entry
  std::vector<size_t> running_;
  std::vector<bool> failed_;
  size_t round_ = 0;
  size_t samples_ = 0, undisturbed_ = 0;
  double spent_ns_ = 0;
  int halvings_ = 0;
  bool over_ = false;
};

}  // namespace whet
