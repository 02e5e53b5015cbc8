#include "src/tune/finals.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>

namespace whet {
namespace {

constexpr int kErrorBlocks = 8;
constexpr double kMemory = 1.2;
// A device whose clock follows within milliseconds and whose timings are not flat after this is
// noisy, and more soaking will not help.
constexpr double kLongestSoakInLags = 8;
constexpr double kTelemetryEveryNs = 20e6;
// Behind the first in the heats. A clock that wanders by two percent either way between two visits
// does not make up for this.
constexpr double kHopeless = 0.06;
// Where visits are noisier than that: as many of their errors (a ratio has two).
constexpr double kHopelessErrors = 3 * 1.414;
// Nor does being alone instead of taking turns: more is a disturbance.
constexpr double kSurprise = 0.06;
// For a second visit less will do: clocks dip by several percent now and then.
constexpr double kMildSurprise = 0.01;

// Where in `samples` the last `stretch_ns` of device time begin.
size_t StretchBegin(absl::Span<const double> samples, double ns_per_sample_unit,
                    double stretch_ns) {
  size_t begin = samples.size();
  for (double covered = 0; begin > 0 && covered < stretch_ns; --begin) {
    covered += samples[begin - 1] * ns_per_sample_unit;
  }
  return begin;
}

// Standard error of the median as the blocks of the series show it. A clock that wanders remembers
// about as long as a visit takes (90 ms on the H200 that was traced), so that all blocks together say
// hardly more than one, and a little less than a longer look would.
double MedianError(absl::Span<const double> samples, double median) {
  const std::vector<double> blocks = BlockMedians(samples, kErrorBlocks);
  if (blocks.size() < 2 || !(median > 0)) return 0;
  double mean = 0, square = 0;
  for (double b : blocks) mean += b / static_cast<double>(blocks.size());
  for (double b : blocks) square += (b - mean) * (b - mean);
  const double deviation = std::sqrt(square / static_cast<double>(blocks.size() - 1));
  return kMemory * deviation / median;
}

class Finals {
 public:
  Finals(absl::Span<const FinalistInput> inputs, Stopwatch& watch, const FinalsRules& rules,
         const std::function<bool()>& keep_going)
      : inputs_(inputs), watch_(watch), rules_(rules), keep_going_(keep_going) {
    result_.finalists.resize(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) visiting_.push_back(i);
    // The one that looks fastest first: it is what the others are held against.
    std::stable_sort(visiting_.begin(), visiting_.end(), [&](size_t a, size_t b) {
      return inputs[a].candidate->estimate_ns < inputs[b].candidate->estimate_ns;
    });
  }

  absl::StatusOr<FinalsResult> Run() {
    absl::StatusOr<bool> whole = Heats();
    if (!whole.ok()) return whole.status();
    // Whoever was not visited cannot be judged, the incumbent least of all.
    if (!*whole) return std::move(result_);
    // A lone one has won.
    for (int pass = 1; *whole && pass <= rules_.passes && visiting_.size() > 1; ++pass) {
      whole = Pass(rules_.time);
      if (!whole.ok()) return whole.status();
      Settle();
      if (result_.decision.settled && !surprised_) break;
    }
    Settle();
    return std::move(result_);
  }

 private:
  FinalistResult& Of(size_t i) { return result_.finalists[i]; }

  // One visit to everyone who is visited; false when stopped before the end.
  absl::StatusOr<bool> Pass(absl::Duration time) {
    for (size_t i : std::vector<size_t>(visiting_)) {
      if (!Of(i).error.ok()) continue;
      absl::StatusOr<bool> went = Call(i, time);
      if (!went.ok() || !*went) return went;
    }
    return true;
  }

  absl::StatusOr<bool> Call(size_t i, absl::Duration time) {
    if (visited_ && !keep_going_()) return false;
    FinalistResult& f = Of(i);
    absl::StatusOr<Visit> visit = OneVisit(*inputs_[i].candidate, time, f);
    if (absl::IsUnavailable(visit.status())) return visit.status();
    if (visit.ok()) {
      f.visits.push_back(*visit);
    } else {
      f.error = visit.status();
    }
    visited_ = true;
    return true;
  }

  // Whether `i` is behind `best` by much more than the screening said.
  bool Surprising(size_t i, size_t best, double behind, double surprise) const {
    const double before = inputs_[i].candidate->screened_ns;
    const double best_before = inputs_[best].candidate->screened_ns;
    return before > 0 && best_before > 0 && behind > before / best_before * (1 + surprise);
  }

  double Fastest(size_t i) const {
    double ns = std::numeric_limits<double>::infinity();
    for (const Visit& v : result_.finalists[i].visits) ns = std::min(ns, v.median_ns);
    return ns;
  }

  std::optional<size_t> First() const {
    std::optional<size_t> best;
    for (size_t i : visiting_) {
      if (result_.finalists[i].visits.empty()) continue;
      if (!best || Fastest(i) < Fastest(*best)) best = i;
    }
    return best;
  }

  absl::StatusOr<bool> Heats() {
    absl::StatusOr<bool> whole = Pass(rules_.heat);
    if (!whole.ok() || !*whole) return whole;
    const std::optional<size_t> best = First();
    if (!best) return true;
    const double hopeless = Hopeless();
    for (size_t i : std::vector<size_t>(visiting_)) {
      const double behind = Fastest(i) / Fastest(*best);
      if (!std::isfinite(behind) || behind <= 1 + hopeless) continue;
      // Another tenant or a dip of the clock may have sat on all of the visit.
      if (!Surprising(i, *best, behind, kMildSurprise)) continue;
      whole = Call(i, rules_.heat);
      if (!whole.ok()) return whole;
      if (!*whole) break;
    }
    KeepFastest();
    return true;
  }

  double Hopeless() const {
    std::vector<double> errors;
    for (const FinalistResult& f : result_.finalists) {
      for (const Visit& v : f.visits) errors.push_back(v.relative_error);
    }
    return std::max(kHopeless, kHopelessErrors * Median(errors));
  }

  void KeepFastest() {
    const double hopeless = Hopeless();
    std::vector<size_t> ranked;
    for (size_t i : visiting_) {
      if (!Of(i).visits.empty()) ranked.push_back(i);
    }
    if (ranked.size() < 2) return;
    std::stable_sort(ranked.begin(), ranked.end(),
                     [&](size_t a, size_t b) { return Fastest(a) < Fastest(b); });
    for (size_t place = 0; place < ranked.size(); ++place) {
      const size_t i = ranked[place];
      const double behind = Fastest(i) / Fastest(ranked.front()) - 1;
      const bool near = behind <= hopeless;
      if (inputs_[i].incumbent || (near && inputs_[i].preferred)) continue;
      if (near && place < static_cast<size_t>(rules_.places)) continue;
      if (Surprising(i, ranked.front(), behind + 1, kSurprise)) continue;
      std::erase(visiting_, i);
      Of(i).place = static_cast<int>(place) + 1;
      Of(i).behind = behind;
    }
  }

  void Settle() {
    std::vector<Finalist> deciding;
    result_.deciding.clear();
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const FinalistResult& f = result_.finalists[i];
      if (!f.error.ok() || f.visits.empty() || (f.place > 0 && !inputs_[i].preferred)) continue;
      result_.deciding.push_back(i);
      deciding.push_back({.order = inputs_[i].candidate->index,
                          .incumbent = inputs_[i].incumbent,
                          .visits = f.visits});
    }
    if (deciding.empty()) {
      visiting_.clear();
      return;
    }
    result_.decision = Decide(deciding, rules_.decision);
    surprised_ = false;
    const size_t fastest = result_.deciding[result_.decision.fastest];
    for (size_t d = 0; d < deciding.size(); ++d) {
      const size_t i = result_.deciding[d];
      const double low = result_.decision.ratio[d].low;
      const bool out = low > 1 + rules_.decision.tie_zone;
      const bool surprise = out && Surprising(i, fastest, low, kSurprise);
      surprised_ |= surprise;
      const bool there = std::find(visiting_.begin(), visiting_.end(), i) != visiting_.end();
      const bool goes_on = !out || surprise || deciding[d].incumbent;
      if (there && !goes_on) std::erase(visiting_, i);
      if (!there && surprise) visiting_.push_back(i);
    }
    std::erase_if(visiting_, [&](size_t i) { return !Of(i).error.ok(); });
  }

  absl::StatusOr<Visit> OneVisit(Candidate& candidate, absl::Duration time, FinalistResult& result);

  absl::Span<const FinalistInput> inputs_;
  Stopwatch& watch_;
  const FinalsRules& rules_;
  const std::function<bool()>& keep_going_;
  std::vector<size_t> visiting_;  // in the order of the last pass
  bool visited_ = false;          // the device is warm and loaded
  bool surprised_ = false;        // somebody lost more than can be believed
  FinalsResult result_;
};

absl::StatusOr<Visit> Finals::OneVisit(Candidate& candidate, absl::Duration time,
                                       FinalistResult& result) {
  const bool fixed = rules_.soak > absl::ZeroDuration() || visited_;
  const absl::Duration least =
      rules_.soak > absl::ZeroDuration() ? rules_.soak : watch_.device().ClockLag();
  // Before the clock's lag is over, flat means nothing.
  const double least_ns = absl::ToDoubleNanoseconds(least);
  const double longest_ns =
      fixed ? least_ns
            : std::max(least_ns, std::min(absl::ToDoubleNanoseconds(rules_.longest_soak),
                                          least_ns * kLongestSoakInLags));
  const double time_ns = absl::ToDoubleNanoseconds(time);

  size_t timed_from = 0;
  double timing_began_ns = -1, next_telemetry_ns = 0;
  bool steady = fixed;
  absl::StatusOr<std::vector<double>> samples =
      watch_.RunUntil(candidate, [&](absl::Span<const double> all, double elapsed_ns) {
        if (timing_began_ns < 0) {
          if (elapsed_ns < least_ns) return false;
          double sum = 0;
          for (double s : all) sum += s;
          const size_t begin = StretchBegin(all, elapsed_ns / sum, least_ns * 0.75);
          steady = steady || IsFlat(all.subspan(begin), rules_.flatness);
          if (!steady && elapsed_ns < longest_ns) return false;
          timing_began_ns = elapsed_ns;
          timed_from = all.size();
          return false;
        }
        // The next batch is in the queue already, so this does not let it run dry.
        if (elapsed_ns >= next_telemetry_ns) {
          result.telemetry.push_back(watch_.device().Telemetry());
          next_telemetry_ns = elapsed_ns + kTelemetryEveryNs;
        }
        return elapsed_ns - timing_began_ns >= time_ns;
      });
  if (!samples.ok()) return samples.status();
  const absl::Span<const double> timed = absl::MakeConstSpan(*samples).subspan(timed_from);
  Visit visit{.median_ns = Median(timed)};
  visit.relative_error = MedianError(timed, visit.median_ns);
  visit.at_s = (static_cast<double>(rules_.clock->MonotonicNanoseconds()) - time_ns / 2) / 1e9;
  candidate.estimate_ns = visit.median_ns;
  result.samples_ns.insert(result.samples_ns.end(), timed.begin(), timed.end());
  result.soak_ns = std::max(result.soak_ns, timing_began_ns);
  result.steady &= steady;
  return visit;
}

}  // namespace

absl::StatusOr<FinalsResult> RunFinals(absl::Span<const FinalistInput> finalists, Stopwatch& watch,
                                       const FinalsRules& rules,
                                       const std::function<bool()>& keep_going) {
  return Finals(finalists, watch, rules, keep_going).Run();
}

}  // namespace whet
