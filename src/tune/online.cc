#include "src/tune/online.h"

#include <algorithm>
#include <map>
#include <utility>

#include "src/tune/statistics.h"

namespace whet {
namespace {

// Racing keeps as many of the best's latest times; older ones are of another clock.
constexpr size_t kRecent = 15;
// What a trial is held against: the clock may fall by a tenth within tens of calls, and times of before
// would make everybody look slow.
constexpr size_t kLately = 3;
// A time that has not come after so many calls does not come any more.
constexpr int64_t kLost = 32;

}  // namespace

OnlineTuner::OnlineTuner(int candidates, int initial, const OnlinePolicy& policy)
    : policy_(policy),
      initial_(initial),
      best_(initial),
      entries_(static_cast<size_t>(candidates)),
      issued_(static_cast<size_t>(candidates), 0),
      issued_at_(static_cast<size_t>(candidates), 0) {
  MutexLock lock(mutex_);
  entries_[static_cast<size_t>(initial)].state = State::kRacing;
  if (candidates == 1) settled_.store(true, std::memory_order_release);
}

double OnlineTuner::Estimate(const Entry& entry) const {
  return entry.trials_ns.empty() ? entry.verified_ns : Median(entry.trials_ns);
}

double OnlineTuner::BestNsLately() const {
  const absl::Span<const double> ns(entries_[static_cast<size_t>(best())].trials_ns);
  return ns.empty() ? BestNs() : Median(ns.last(std::min(ns.size(), kLately)));
}

double OnlineTuner::BestNs() const { return Estimate(entries_[static_cast<size_t>(best())]); }

bool OnlineTuner::BudgetLeft(double share) const {
  const double horizon_ns = static_cast<double>(policy_.horizon) * BestNs();
  return cost_ns_ < policy_.slowdown * horizon_ns * share && !LimitReached();
}

bool OnlineTuner::LimitReached() const {
  const double horizon_ns = static_cast<double>(policy_.horizon) * BestNs();
  // Against a settled winner nothing was lost: it is what would run.
  return !policy_.incumbent && cost_ns_ + lost_ns_ >= policy_.limit * policy_.slowdown * horizon_ns;
}

void OnlineTuner::RunFromNowOn(int candidate) {
  const double before_ns = BestNs();
  best_.store(candidate, std::memory_order_release);
  lost_ns_ += static_cast<double>(recorded_) * std::max(0.0, before_ns - BestNs());
}

void OnlineTuner::SettleAtTheLimit() {
  if (settled() || BestNs() == 0 || !LimitReached()) return;
  if (turns_) {
    settled_.store(true, std::memory_order_release);
    return;
  }
  if (!blocks_.empty()) {
    DecideDuels();
    return;
  }
  // Without the time for duels: whoever was clearly faster whenever it ran.
  double least_ns = BestNs() * (1 - policy_.better);
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& e = entries_[i];
    if (e.state != State::kRacing || static_cast<int>(i) == best() || e.verified_ns <= 0) continue;
    const double ns = std::max(e.verified_ns, Median(e.trials_ns));
    if (ns >= least_ns) continue;
    least_ns = ns;
    best_.store(static_cast<int>(i), std::memory_order_release);
  }
  settled_.store(true, std::memory_order_release);
}

double OnlineTuner::ExcessInCalls() {
  MutexLock lock(mutex_);
  return BestNs() > 0 ? (cost_ns_ + lost_ns_) / BestNs() : 0;
}

double OnlineTuner::CostInCalls() {
  MutexLock lock(mutex_);
  return BestNs() > 0 ? cost_ns_ / BestNs() : 0;
}

double OnlineTuner::LiveNs() {
  MutexLock lock(mutex_);
  return BestNs();
}

std::vector<OnlineStanding> OnlineTuner::Standings() {
  MutexLock lock(mutex_);
  return entries_;
}

void OnlineTuner::AddCost(double ns) {
  MutexLock lock(mutex_);
  cost_ns_ += ns;
  SettleAtTheLimit();
}

int OnlineTuner::NextUnknown() const {
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].state == State::kUnknown) return static_cast<int>(i);
  }
  return -1;
}

bool OnlineTuner::MayAdmit() const {
  return hopeless_in_a_row_ < policy_.hopeless_in_a_row && BudgetLeft(policy_.admissions);
}

int OnlineTuner::WantsAdmission() {
  if (settled()) return -1;
  MutexLock lock(mutex_);
  // A time of the best is needed first, to know what anything costs.
  if (turns_ || !blocks_.empty() || BestNs() == 0 || !MayAdmit()) return -1;
  // Whoever looked clearly better is tried first: until it runs, every call loses.
  for (int i = 0; i < static_cast<int>(entries_.size()); ++i) {
    const double ns = Estimate(entries_[static_cast<size_t>(i)]);
    if (ns > 0 && NeedsTrials(i) && ns < BestNs() * (1 - policy_.better)) return -1;
  }
  return NextUnknown();
}

void OnlineTuner::Admitted(int candidate, double ns, double cost_ns) {
  MutexLock lock(mutex_);
  Entry& entry = entries_[static_cast<size_t>(candidate)];
  entry.verified_ns = ns;
  cost_ns_ += cost_ns;
  const bool hopeless = BestNs() > 0 && ns > BestNs() * policy_.hopeless;
  hopeless_in_a_row_ = hopeless ? hopeless_in_a_row_ + 1 : 0;
  entry.state = hopeless ? State::kOut : State::kRacing;
  SettleAtTheLimit();
}

void OnlineTuner::Rejected(int candidate) {
  MutexLock lock(mutex_);
  entries_[static_cast<size_t>(candidate)].state = State::kOut;
  if (candidate == best()) {
    best_.store(initial_, std::memory_order_release);
    if (turns_) settled_.store(true, std::memory_order_release);
  } else if (turns_) {
    turns_->Drop(candidate);
    if (turns_->over()) settled_.store(true, std::memory_order_release);
  }
}

bool OnlineTuner::NeedsTrials(int candidate) const {
  const Entry& e = entries_[static_cast<size_t>(candidate)];
  return candidate != best() && e.state == State::kRacing &&
         e.trials_ns.size() < static_cast<size_t>(policy_.trials);
}

bool OnlineTuner::Outstanding(int candidate) const {
  const auto i = static_cast<size_t>(candidate);
  return issued_[i] >= policy_.trials && calls_ - issued_at_[i] < kLost;
}

// The admitted one with the fewest trials; among equals the one that looked fastest.
int OnlineTuner::NextRacing() const {
  int next = -1;
  const int current = best();
  for (int i = 0; i < static_cast<int>(entries_.size()); ++i) {
    const Entry& e = entries_[static_cast<size_t>(i)];
    if (i == current || e.state != State::kRacing) continue;
    if (!NeedsTrials(i) || Outstanding(i)) continue;
    if (next >= 0) {
      const Entry& n = entries_[static_cast<size_t>(next)];
      if (e.trials_ns.size() > n.trials_ns.size()) continue;
      if (e.trials_ns.size() == n.trials_ns.size() && Estimate(e) >= Estimate(n)) continue;
    }
    next = i;
  }
  return next;
}

int OnlineTuner::Choose() {
  if (settled()) return best();
  MutexLock lock(mutex_);
  ++calls_;
  if (turns_) {
    // Times that do not come any more end it.
    if (++issued_calls_ > policy_.horizon + kLost) settled_.store(true, std::memory_order_release);
    return settled() ? best() : turns_->turn();
  }
  if (!blocks_.empty()) {
    if (issuing_ == blocks_.size()) {
      // All turns were had; what is missing of their times is on its way, or lost.
      if (++issued_calls_ > kLost) DecideDuels();
      return best();
    }
    int turn = blocks_[issuing_].candidate;
    if (entries_[static_cast<size_t>(turn)].state == State::kOut) turn = best();
    if (++issued_calls_ == policy_.duel_calls) {
      issued_calls_ = 0;
      ++issuing_;
    }
    return turn;
  }
  const int challenger = NextRacing();
  if (challenger < 0 || BestNs() == 0) return best();
  if (static_cast<double>(trial_calls_) >= policy_.share * static_cast<double>(calls_)) {
    return best();
  }
  ++trial_calls_;
  const auto c = static_cast<size_t>(challenger);
  if (calls_ - issued_at_[c] >= kLost) issued_[c] = static_cast<int>(entries_[c].trials_ns.size());
  ++issued_[c];
  issued_at_[c] = calls_;
  return challenger;
}

void OnlineTuner::RecordTrial(int candidate, double ns) {
  Entry& entry = entries_[static_cast<size_t>(candidate)];
  entry.trials_ns.push_back(ns);
  if (entry.trials_ns.size() > kRecent) entry.trials_ns.erase(entry.trials_ns.begin());
  const int current = best();
  if (candidate == current || entry.state != State::kRacing) return;
  const double best_ns = BestNsLately();
  if (best_ns <= 0) return;
  cost_ns_ += ns - best_ns;
  // The shortest of the trials: what disturbs a call only makes it longer.
  const size_t lately = std::min(entry.trials_ns.size(), kLately);
  const double shortest = *std::min_element(
      entry.trials_ns.end() - static_cast<std::ptrdiff_t>(lately), entry.trials_ns.end());
  const double margin = entry.trials_ns.size() >= 2 ? policy_.margin : 2 * policy_.margin;
  if (shortest > best_ns * (1 + margin)) {
    entry.state = State::kOut;
  } else if (entry.trials_ns.size() >= 2 && !policy_.incumbent &&
             Median(entry.trials_ns) < best_ns * (1 - policy_.better)) {
    // Most likely better: later calls gain from it at once, and the duels will tell. A small gain
    // waits for them, and so does everything against a settled winner.
    RunFromNowOn(candidate);
  }
}

void OnlineTuner::Record(int candidate, double ns) {
  if (settled()) return;
  MutexLock lock(mutex_);
  ++recorded_;
  passed_ns_ += ns;
  if (turns_) {
    RecordTurn(candidate, ns);
    return;
  }
  if (!blocks_.empty()) {
    RecordDuel(candidate, ns);
    return;
  }
  RecordTrial(candidate, ns);
  SettleAtTheLimit();
  if (BestNs() == 0 || settled()) return;
  const bool admissions_over = NextUnknown() < 0 || !MayAdmit();
  bool racing = false;
  for (int i = 0; i < static_cast<int>(entries_.size()); ++i) racing |= NeedsTrials(i);
  const bool racing_over = !racing || !BudgetLeft(policy_.racing);
  if (admissions_over && racing_over) BeginDuels();
}

void OnlineTuner::BeginDuels() {
  std::vector<std::pair<double, int>> others;
  const int current = best();
  for (int i = 0; i < static_cast<int>(entries_.size()); ++i) {
    const Entry& e = entries_[static_cast<size_t>(i)];
    if (i != current && e.state == State::kRacing && !e.trials_ns.empty()) {
      others.emplace_back(Estimate(e), i);
    }
  }
  std::sort(others.begin(), others.end());
  if (others.size() > static_cast<size_t>(policy_.duellists)) {
    others.resize(static_cast<size_t>(policy_.duellists));
  }
  if (others.empty()) {
    settled_.store(true, std::memory_order_release);
    return;
  }
  for (int duel = 0; duel < policy_.duels; ++duel) {
    for (const auto& [estimate, candidate] : others) {
      blocks_.push_back({.candidate = current, .ns = {}});
      blocks_.push_back({.candidate = candidate, .ns = {}});
    }
  }
  blocks_.push_back({.candidate = current, .ns = {}});
  from_before_ = std::min(calls_ - recorded_, kLost);
}

void OnlineTuner::RecordDuel(int candidate, double ns) {
  if (candidate != best()) cost_ns_ += ns - BestNs();
  // Times come in the order of the calls; those of calls from before the duels are no part of them.
  if (from_before_ > 0) {
    --from_before_;
    return;
  }
  // Neighbouring turns differ, so a time of the next one means that this one's are complete.
  const bool next = block_ + 1 < blocks_.size() && blocks_[block_ + 1].candidate == candidate;
  if (candidate != blocks_[block_].candidate) {
    if (!next) return;
    ++block_;
  }
  blocks_[block_].ns.push_back(ns);
  const bool last = block_ + 1 == blocks_.size();
  if (!BudgetLeft(1) ||
      (last && blocks_[block_].ns.size() >= static_cast<size_t>(policy_.duel_calls))) {
    DecideDuels();
  }
}

void OnlineTuner::DecideDuels() {
  const auto median = [](const Block& block) {
    // The first calls of a turn run on what the turn before left.
    const absl::Span<const double> ns(block.ns);
    return Median(ns.subspan(ns.size() / 4));
  };
  std::map<int, std::vector<double>> ratios;
  for (size_t b = 1; b + 1 < blocks_.size() && !blocks_[b + 1].ns.empty(); b += 2) {
    // Times of one of the three may have been lost, or it failed.
    if (blocks_[b - 1].ns.empty() || blocks_[b].ns.empty()) continue;
    const double beside = (median(blocks_[b - 1]) + median(blocks_[b + 1])) / 2;
    ratios[blocks_[b].candidate].push_back(median(blocks_[b]) / beside);
  }
  double least = policy_.incumbent ? 1 / (1 + policy_.replace_gain) : 1 - policy_.tie_zone;
  for (const auto& [candidate, of_candidate] : ratios) {
    Entry& entry = entries_[static_cast<size_t>(candidate)];
    entry.duel_ratios = of_candidate;
    if (entry.state == State::kOut) continue;
    if (Median(of_candidate) >= least) continue;
    const double slowest = *std::max_element(of_candidate.begin(), of_candidate.end());
    // One duel may have been anything; against a winner every one of them has to say so.
    if (policy_.incumbent &&
        (of_candidate.size() < 2 || slowest * (1 + policy_.replace_gain) > 1)) {
      continue;
    }
    least = Median(of_candidate);
    best_.store(candidate, std::memory_order_release);
  }
  BeginTurns();
}

int OnlineTuner::TurnCalls() const {
  const double calls = policy_.turn * policy_.lag_ns / BestNs();
  return static_cast<int>(std::min(calls, static_cast<double>(policy_.horizon) / 8));
}

// Over the best's time at a common clock.
double OnlineTuner::Behind(const Entry& entry) const {
  if (!entry.duel_ratios.empty()) return Median(entry.duel_ratios) / ratio_of_best_;
  return Estimate(entry) / BestNs();
}

void OnlineTuner::BeginTurns() {
  blocks_.clear();
  const Entry& current = entries_[static_cast<size_t>(best())];
  ratio_of_best_ = current.duel_ratios.empty() ? 1 : Median(current.duel_ratios);
  std::vector<std::pair<double, int>> close;
  for (int i = 0; i < static_cast<int>(entries_.size()); ++i) {
    const Entry& e = entries_[static_cast<size_t>(i)];
    if (i == best() || e.trials_ns.empty() || e.state != State::kRacing) continue;
    if (Behind(e) <= 1 + policy_.close) close.emplace_back(Behind(e), i);
  }
  if (policy_.incumbent || TurnCalls() <= policy_.duel_calls || LimitReached() || close.empty()) {
    settled_.store(true, std::memory_order_release);
    return;
  }
  std::sort(close.begin(), close.end());
  if (close.size() > static_cast<size_t>(policy_.looks))
    close.resize(static_cast<size_t>(policy_.looks));
  std::vector<int> challengers;
  for (const auto& [behind, i] : close) challengers.push_back(i);
  const double wait_ns = policy_.wait * policy_.lag_ns - passed_ns_;
  const int wait = static_cast<int>(
      std::clamp(wait_ns / BestNs(), 0.0, static_cast<double>(policy_.horizon) / 4));
  turns_.emplace(best(), std::move(challengers),
                 OnlineTurnRules{.calls = TurnCalls(), .wait_calls = wait});
  issued_calls_ = 0;
}

bool OnlineTuner::Affordable(int candidate) const {
  const Entry& e = entries_[static_cast<size_t>(candidate)];
  if (e.state != State::kRacing) return false;
  // At worst it stays as far behind as it was, and a little more, for all of its turn.
  const double worst_ns = TurnCalls() * turns_->best_ns() * (std::max(0.0, Behind(e) - 1) + 0.01);
  const double horizon_ns = static_cast<double>(policy_.horizon) * turns_->best_ns();
  return cost_ns_ + lost_ns_ + worst_ns <= policy_.limit * policy_.slowdown * horizon_ns;
}

void OnlineTuner::RecordTurn(int candidate, double ns) {
  if (turns_->best_ns() > 0 && candidate != best()) cost_ns_ += ns - turns_->best_ns();
  double gain = 1;
  if (turns_->Record(candidate, ns, &gain)) {
    best_.store(turns_->best(), std::memory_order_release);
    lost_ns_ += static_cast<double>(recorded_) * turns_->best_ns() * (gain - 1);
  }
  while (turns_->next() >= 0) Affordable(turns_->next()) ? turns_->Begin() : turns_->Skip();
  if (turns_->over()) settled_.store(true, std::memory_order_release);
}

void OnlineTuner::Settle() { settled_.store(true, std::memory_order_release); }

}  // namespace whet
