// Tuning on live calls: nothing waits, the first call runs at once, and later calls try other
// variants within a budget.
//
//   OnlineTuner tuner(/*candidates=*/n, /*initial=*/0, policy);
//   // in each call:
//   if (tuner.settled()) return Launch(tuner.best());
//   if (int i = tuner.WantsAdmission(); i >= 0) VerifyOnScratch(i) ? tuner.Admitted(i, ns)
//                                                                  : tuner.Rejected(i);
//   int i = tuner.Choose();
//   Launch(i), and when its time is known: tuner.Record(i, ns);
//
// Every variant is verified before a caller sees its result, so each call's result is right. That
// verification is the only launch beside the caller's own, and it is counted like a slow call.
//
// States of a candidate:      unknown --Admitted--> racing --> duels --> turns --> (best or out)
//                                 |                    |
//                                 +--Rejected--> out <-+ surely slower
//
// Invariants: (1) `best` is always admitted; (2) at any time at most policy.share of the calls were
// trials of others while racing; (3) what trials cost over the best known variant stays within
// policy.slowdown x policy.horizon calls of the best (one call may overshoot), and that together with
// what the calls lost until the best was known within policy.limit times that; then the best so far is settled;
// (4) a single trial runs on what its neighbours left in caches and clock, so racing only
// drops; duels of some calls in a row, each held against the best's calls before and after it,
// decide (a clock that changes over the first calls of a process cancels so), and where the clock has a lag of many
// calls, those that were close are looked at again, each for as long as that (online_turns.h), while what that costs
// at worst fits under the limit; (5) settled is final.
//
// Thread-safe. Knows no device: times may come late, or never (an unrecorded trial is tried again).
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "src/base/mutex.h"
#include "src/tune/online_turns.h"

namespace whet {

struct OnlinePolicy {
  double share = 0.5;       // of calls that may be trials while racing
  double slowdown = 0.025;  // of the horizon's total time
  // Times `slowdown`: the same, counting also what the calls before would have saved with the best that
  // is known now. A slow beginning leaves less to explore with.
  double limit = 1.8;
  int64_t horizon = 1000;  // calls
  // Of the budget: for getting to know others, and for that and their single trials; the rest is for
  // the duels.
  double admissions = 0.5;
  double racing = 0.7;
  int trials = 3;         // per candidate before it may go on
  double margin = 0.09;   // slower than this in trials is out; twice as much in the first
  double better = 0.04;   // faster than this in trials runs from now on, until the duels
  double hopeless = 1.2;  // times the best at its verification is out at once
  // So many in a row that are out already at their verification end the verifying: the list is in the
  // order of preference.
  int hopeless_in_a_row = 6;
  int duellists = 2;   // how many go on to duels with the best
  int duel_calls = 8;  // in a row, by turns of the best and of the other
  int duels = 3;       // of each
  // How long the clock takes to follow another kernel (Device::ClockLag). Where a turn of so long holds more calls than
  // a duel, those that were close in the duels or in their trials get one each afterwards
  // (online_turns.h), as far as the limit allows; 0: never.
  double lag_ns = 0;
  double turn = 0.3;       // of a lag
  double wait = 0.6;       // of a lag since the first call, before the best's own turn
  double close = 0.03;     // farther behind than this at a common clock is not looked at again
  int looks = 2;           // how many are
  double tie_zone = 0.01;  // closer than this, the one that is running stays
  // The initial one is a settled winner: it gives way only to one that was faster by
  // `replace_gain` in every duel.
  bool incumbent = false;
  double replace_gain = 0.03;
};

// What became of a candidate, and its times so far.
struct OnlineStanding {
  enum class State : uint8_t { kUnknown, kRacing, kOut };
  State state = State::kUnknown;
  double verified_ns = 0;           // 0: not verified
  std::vector<double> trials_ns;    // the latest
  std::vector<double> duel_ratios;  // time over the best's beside it, of each duel that it ended
};

class OnlineTuner {
 public:
  // `initial` is verified already (the default, or an inherited winner).
  OnlineTuner(int candidates, int initial, const OnlinePolicy& policy);

  // The winner so far.
  int best() const { return best_.load(std::memory_order_acquire); }
  // One load; true for good once it is.
  bool settled() const { return settled_.load(std::memory_order_acquire); }

  // The candidate to verify now, or -1. The same one until it is admitted or rejected.
  int WantsAdmission();
  // `ns` of one launch; `cost_ns` what admitting took in all (loading, copies), at least `ns`.
  void Admitted(int candidate, double ns, double cost_ns);
  void Admitted(int candidate, double ns) { Admitted(candidate, ns, ns); }
  // Did not compile, faulted, was wrong, or failed in a live call: not chosen from now on.
  void Rejected(int candidate);
  // Something else that exploring cost the calls.
  void AddCost(double ns);

  // The candidate for the next call.
  int Choose();
  // The time of a call.
  void Record(int candidate, double ns);
  // Ends tuning with the best so far (the application has no time for it, say).
  void Settle();

  const OnlinePolicy& policy() const { return policy_; }
  // What exploring has cost so far, in calls of the best; and with what was lost by not knowing it.
  double CostInCalls();
  double ExcessInCalls();
  // Nanoseconds of a call of the best so far; 0: not known.
  double LiveNs();
  std::vector<OnlineStanding> Standings();

 private:
  using State = OnlineStanding::State;
  using Entry = OnlineStanding;
  // Calls of one candidate in a row.
  struct Block {
    int candidate = 0;
    std::vector<double> ns;
  };
  double BestNsLately() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  double BestNs() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  double Estimate(const Entry& entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool BudgetLeft(double share) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MayAdmit() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool LimitReached() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunFromNowOn(int candidate) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SettleAtTheLimit() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int NextUnknown() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool NeedsTrials(int candidate) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Outstanding(int candidate) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int NextRacing() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BeginDuels() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int TurnCalls() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BeginTurns() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RecordTurn(int candidate, double ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Affordable(int candidate) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  double Behind(const Entry& entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RecordDuel(int candidate, double ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DecideDuels() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RecordTrial(int candidate, double ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const OnlinePolicy policy_;
  const int initial_;
  std::atomic<int> best_;
  std::atomic<bool> settled_{false};
  Mutex mutex_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  // Per candidate: trials that were handed out, and the call of the last.
  std::vector<int> issued_ ABSL_GUARDED_BY(mutex_);
  std::vector<int64_t> issued_at_ ABSL_GUARDED_BY(mutex_);
  int hopeless_in_a_row_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t recorded_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t calls_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t trial_calls_ ABSL_GUARDED_BY(mutex_) = 0;
  double cost_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  double passed_ns_ ABSL_GUARDED_BY(mutex_) = 0;      // of recorded calls
  double ratio_of_best_ ABSL_GUARDED_BY(mutex_) = 1;  // its duels' over who ran before
  double lost_ns_ ABSL_GUARDED_BY(mutex_) =
      0;  // by calls that ran what was not yet known to be slow
  std::vector<Block> blocks_ ABSL_GUARDED_BY(mutex_);  // of the duels; empty before them
  size_t block_ ABSL_GUARDED_BY(mutex_) = 0;           // whose times come
  size_t issuing_ ABSL_GUARDED_BY(mutex_) = 0;         // whose calls are handed out
  int64_t issued_calls_ ABSL_GUARDED_BY(mutex_) = 0;   // of it
  std::optional<OnlineTurns> turns_ ABSL_GUARDED_BY(mutex_);
  int64_t from_before_ ABSL_GUARDED_BY(mutex_) = 0;  // times that are still to come of older calls
};

}  // namespace whet
