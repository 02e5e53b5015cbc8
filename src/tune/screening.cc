#include "src/tune/screening.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace whet {
namespace {

struct Turn {
  size_t candidate = 0;
  Stopwatch::Ticket ticket;
};

class Screening {
 public:
  Screening(absl::Span<Candidate* const> candidates, Stopwatch& watch, const ScreeningRules& rules)
      : candidates_(candidates), watch_(watch), rules_(rules), results_(candidates.size()) {}

  bool Alive(size_t i) const { return !results_[i].dropped && results_[i].error.ok(); }

  size_t living() const {
    size_t n = 0;
    for (size_t i = 0; i < results_.size(); ++i) n += Alive(i);
    return n;
  }

  absl::StatusOr<std::vector<Turn>> EnqueueRound() {
    std::vector<Turn> turns;
    for (size_t i = 0; i < candidates_.size(); ++i) {
      if (!Alive(i)) continue;
      Batch batch = BatchFor(candidates_[i]->estimate_ns, rules_.turn);
      // One more, which is not counted: it runs on what the previous candidate left in the caches.
      ++batch.samples;
      absl::StatusOr<Stopwatch::Ticket> ticket = watch_.Enqueue(*candidates_[i], batch);
      if (!ticket.ok()) {
        if (absl::Status s = Fail(i, ticket.status()); !s.ok()) return s;
        continue;
      }
      turns.push_back({.candidate = i, .ticket = *std::move(ticket)});
    }
    return turns;
  }

  absl::Status ReadRound(std::vector<Turn> turns) {
    for (Turn& turn : turns) {
      absl::StatusOr<std::vector<double>> samples = watch_.Read(std::move(turn.ticket));
      if (!samples.ok()) {
        if (absl::Status s = Fail(turn.candidate, samples.status()); !s.ok()) return s;
        continue;
      }
      results_[turn.candidate].rounds_ns.push_back(
          Median(absl::MakeConstSpan(*samples).subspan(1)));
    }
    return absl::OkStatus();
  }

  // Whoever is surely slower than the leader by more than the margin.
  void Drop(int round) {
    std::optional<size_t> leader;
    for (size_t i = 0; i < results_.size(); ++i) {
      if (!Alive(i) || results_[i].rounds_ns.empty()) continue;
      candidates_[i]->estimate_ns = Median(results_[i].rounds_ns);
      candidates_[i]->screened_ns = candidates_[i]->estimate_ns;
      if (!leader || candidates_[i]->estimate_ns < candidates_[*leader]->estimate_ns) leader = i;
    }
    if (!leader || round < rules_.rounds) return;
    for (size_t i = 0; i < results_.size(); ++i) {
      if (!Alive(i) || i == *leader || Kept(i)) continue;
      const Interval ratio = RoundRatio(results_[i].rounds_ns, results_[*leader].rounds_ns);
      if (ratio.low <= 1 + rules_.margin) continue;
      results_[i].dropped = true;
      results_[i].dropped_in_round = round;
      results_[i].surely_slower = ratio.low - 1;
    }
  }

  std::vector<ScreenedCandidate> TakeResults() { return std::move(results_); }

 private:
  bool Kept(size_t i) const {
    return std::find(rules_.keep.begin(), rules_.keep.end(), candidates_[i]->index) !=
           rules_.keep.end();
  }

  // OK when the tuning can go on without the candidate.
  absl::Status Fail(size_t i, absl::Status error) {
    if (absl::IsUnavailable(error)) return error;
    results_[i].error = std::move(error);
    return absl::OkStatus();
  }

  absl::Span<Candidate* const> candidates_;
  Stopwatch& watch_;
  const ScreeningRules& rules_;
  std::vector<ScreenedCandidate> results_;
};

}  // namespace

Interval RoundRatio(absl::Span<const double> rounds, absl::Span<const double> leader) {
  std::vector<double> ratios;
  const size_t paired = std::min(rounds.size(), leader.size());
  for (size_t i = 0; i < paired; ++i) {
    if (leader[i] > 0) ratios.push_back(rounds[i] / leader[i]);
  }
  return MedianInterval(ratios);
}

absl::StatusOr<std::vector<ScreenedCandidate>> Screen(
    absl::Span<Candidate* const> candidates, Stopwatch& watch, const ScreeningRules& rules,
    const std::function<bool(int rounds_done)>& keep_going) {
  Screening screening(candidates, watch, rules);
  absl::StatusOr<std::vector<Turn>> pending = std::vector<Turn>();
  int enqueued = 0, done = 0;
  // One round ahead, so that the queue does not run dry while the last round is read. A candidate
  // that is dropped meanwhile has one round too many; nobody reads it as more than that.
  while (true) {
    if (enqueued < rules.most_rounds && (enqueued == 0 || screening.living() > rules.enough) &&
        keep_going(done)) {
      absl::StatusOr<std::vector<Turn>> next = screening.EnqueueRound();
      if (!next.ok()) return next.status();
      std::swap(*pending, *next);
      ++enqueued;
      if (enqueued == 1) continue;
      if (absl::Status s = screening.ReadRound(*std::move(next)); !s.ok()) return s;
      screening.Drop(++done);
      continue;
    }
    if (done < enqueued) {
      if (absl::Status s = screening.ReadRound(*std::move(pending)); !s.ok()) return s;
      screening.Drop(++done);
    }
    return screening.TakeResults();
  }
}

}  // namespace whet
