#include "src/runtime/live/live_round.h"

#include "src/tune/statistics.h"

namespace whet {

void LiveRound::Reject(int which, VariantOutcome outcome, std::string reason, bool hurt) {
  {
    MutexLock lock(mutex);
    outcomes.emplace_back(which, outcome);
    if (hurt) blocked.push_back(which);
    reasons[static_cast<size_t>(which)] = std::move(reason);
  }
  tuner.Rejected(which);
}

TuningResult EvidenceOf(LiveRound& round, int winner) {
  TuningResult result;
  const std::vector<OnlineStanding> standings = round.tuner.Standings();
  MutexLock lock(round.mutex);
  for (size_t i = 0; i < round.candidates.size(); ++i) {
    const OnlineStanding& standing = standings[i];
    VariantEvidence e;
    e.variant = round.candidates[i];
    e.reason = round.reasons[i];
    e.relative_error = round.errors[i];
    e.stage = "live";
    if (!standing.trials_ns.empty()) {
      e.outcome = VariantOutcome::kTimed;
      e.median_ns = Median(standing.trials_ns);
      const Interval interval = MedianInterval(standing.trials_ns);
      e.low_ns = interval.low;
      e.high_ns = interval.high;
      e.samples_ns = standing.trials_ns;
      e.final_round = !standing.duel_ratios.empty() || static_cast<int>(i) == winner;
    } else if (standing.verified_ns > 0) {
      e.median_ns = e.low_ns = e.high_ns = standing.verified_ns;
      e.outcome = VariantOutcome::kDropped;
      e.reason = "too slow at its trial on scratch, or the budget ended before a live trial";
    }
    if (standing.state == OnlineStanding::State::kOut && e.outcome == VariantOutcome::kTimed) {
      e.outcome = VariantOutcome::kDropped;
      e.reason = "slower than the best in its live trials";
    }
    result.evidence.push_back(std::move(e));
  }
  for (const auto& [candidate, outcome] : round.outcomes) {
    result.evidence[static_cast<size_t>(candidate)].outcome = outcome;
  }
  for (const int candidate : round.blocked) {
    result.evidence[static_cast<size_t>(candidate)].blocked = true;
  }
  for (VariantEvidence& e : result.evidence) {
    if (e.outcome == VariantOutcome::kUntried && e.reason.empty()) {
      e.reason = "the budget was spent before its turn";
    }
  }
  const VariantEvidence& first = result.evidence.front();
  const VariantEvidence& won = result.evidence[static_cast<size_t>(winner)];
  result.winner = won.variant;
  if (won.median_ns > 0) result.gain = first.median_ns / won.median_ns;
  return result;
}

}  // namespace whet
