#include "src/tune/finals.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>

namespace whet {
namespace {

constexpr int kErrorBlocks = 8;
// A device whose clock follows within milliseconds and whose timings are not flat after this is
// noisy, and more soaking will not help.
constexpr double kLongestSoakInLags = 8;
constexpr double kTelemetryEveryNs = 20e6;
// A clock that wanders by two percent either way between two visits does not make up for this.
constexpr double kHopeless = 0.05;
// Nor does being alone instead of taking turns: more is a disturbance.
constexpr double kSurprise = 0.06;
// For a second visit less will do: clocks dip by several percent now and then.
constexpr double kMildSurprise = 0.02;

// Where in `samples` the last `stretch_ns` of device time begin.
size_t StretchBegin(absl::Span<const double> samples, double ns_per_sample_unit,
                    double stretch_ns) {
  size_t begin = samples.size();
  for (double covered = 0; begin > 0 && covered < stretch_ns; --begin) {
    covered += samples[begin - 1] * ns_per_sample_unit;
  }
  return begin;
}

// Standard error of the median as the blocks of the series show it, doubled because neighbouring
// blocks still know of each other.
double MedianError(absl::Span<const double> samples, double median) {
  const std::vector<double> blocks = BlockMedians(samples, kErrorBlocks);
  if (blocks.size() < 2 || !(median > 0)) return 0;
  double mean = 0, square = 0;
  for (double b : blocks) mean += b / static_cast<double>(blocks.size());
  for (double b : blocks) square += (b - mean) * (b - mean);
  const double deviation = std::sqrt(square / static_cast<double>(blocks.size() - 1));
  return 2 * deviation / std::sqrt(static_cast<double>(blocks.size())) / median;
}

class Finals {
 public:
  Finals(absl::Span<const FinalistInput> inputs, Stopwatch& watch, const FinalsRules& rules,
         const std::function<bool()>& keep_going)
      : inputs_(inputs), watch_(watch), rules_(rules), keep_going_(keep_going) {
    result_.finalists.resize(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) visiting_.push_back(i);
  }

  absl::StatusOr<FinalsResult> Run() {
    for (int cycle = 0; cycle < rules_.cycles && !visiting_.empty(); ++cycle) {
      for (bool back : {false, true}) {
        absl::StatusOr<bool> whole = Pass(back, /*may_stop=*/cycle > 0 || back);
        if (!whole.ok()) return whole.status();
        if (!*whole) {
          Settle();
          return std::move(result_);
        }
        if (cycle == 0 && !back) DropHopeless();
      }
      Settle();
      if (result_.deciding.size() < 2 || (result_.decision.settled && !surprised_)) break;
    }
    return std::move(result_);
  }

 private:
  // One visit to everyone; false when stopped before the end.
  absl::StatusOr<bool> Pass(bool back, bool may_stop) {
    std::vector<size_t> order = visiting_;
    if (back) std::reverse(order.begin(), order.end());
    for (size_t i : order) {
      FinalistResult& f = result_.finalists[i];
      if (!f.error.ok()) continue;
      if (may_stop && !keep_going_()) return false;
      absl::StatusOr<Visit> visit = SoloVisit(*inputs_[i].candidate, watch_, rules_, f);
      if (absl::IsUnavailable(visit.status())) return visit.status();
      if (visit.ok()) {
        f.visits.push_back(*visit);
      } else {
        f.error = visit.status();
      }
    }
    return true;
  }

  // Whether `i` is behind `best` by much more than the screening said.
  bool Surprising(size_t i, size_t best, double behind, double surprise) const {
    const double before = inputs_[i].candidate->screened_ns;
    const double best_before = inputs_[best].candidate->screened_ns;
    return before > 0 && best_before > 0 && behind > before / best_before * (1 + surprise);
  }

  // After a single visit each: whoever is far behind, as expected, gets no second one.
  void DropHopeless() {
    std::optional<size_t> best;
    for (size_t i : visiting_) {
      const std::vector<Visit>& visits = result_.finalists[i].visits;
      if (visits.empty()) continue;
      if (!best || visits.front().median_ns < First(*best)) best = i;
    }
    if (!best) return;
    std::erase_if(visiting_, [&](size_t i) {
      if (inputs_[i].incumbent || result_.finalists[i].visits.empty()) return false;
      const double behind = First(i) / First(*best);
      return behind > 1 + kHopeless && !Surprising(i, *best, behind, kMildSurprise);
    });
  }
  double First(size_t i) const { return result_.finalists[i].visits.front().median_ns; }

  void Settle() {
    std::vector<Finalist> deciding;
    result_.deciding.clear();
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const FinalistResult& f = result_.finalists[i];
      if (!f.error.ok() || f.visits.empty()) continue;
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
    visiting_.clear();
    surprised_ = false;
    const size_t fastest = result_.deciding[result_.decision.fastest];
    for (size_t d = 0; d < deciding.size(); ++d) {
      const bool out = result_.decision.ratio[d].low > 1 + rules_.decision.tie_zone;
      const bool surprise =
          out && Surprising(result_.deciding[d], fastest, result_.decision.ratio[d].low, kSurprise);
      surprised_ |= surprise;
      if (!out || surprise || deciding[d].incumbent) visiting_.push_back(result_.deciding[d]);
    }
  }

  absl::Span<const FinalistInput> inputs_;
  Stopwatch& watch_;
  const FinalsRules& rules_;
  const std::function<bool()>& keep_going_;
  std::vector<size_t> visiting_;
  bool surprised_ = false;  // somebody lost more than can be believed
  FinalsResult result_;
};

}  // namespace

absl::StatusOr<Visit> SoloVisit(Candidate& candidate, Stopwatch& watch, const FinalsRules& rules,
                                FinalistResult& result) {
  const bool fixed = rules.soak > absl::ZeroDuration();
  // Before the clock's lag is over, flat means nothing.
  const double least_ns = absl::ToDoubleNanoseconds(fixed ? rules.soak : watch.device().ClockLag());
  const double longest_ns =
      fixed ? least_ns
            : std::max(least_ns, std::min(absl::ToDoubleNanoseconds(rules.longest_soak),
                                          least_ns * kLongestSoakInLags));
  const double time_ns = absl::ToDoubleNanoseconds(rules.time);

  size_t timed_from = 0;
  double timing_began_ns = -1, next_telemetry_ns = 0;
  bool steady = fixed;
  absl::StatusOr<std::vector<double>> samples =
      watch.RunUntil(candidate, [&](absl::Span<const double> all, double elapsed_ns) {
        if (timing_began_ns < 0) {
          if (elapsed_ns < least_ns) return false;
          double sum = 0;
          for (double s : all) sum += s;
          const size_t begin = StretchBegin(all, elapsed_ns / sum, least_ns * 0.75);
          steady = steady || IsFlat(all.subspan(begin), rules.flatness);
          if (!steady && elapsed_ns < longest_ns) return false;
          timing_began_ns = elapsed_ns;
          timed_from = all.size();
          return false;
        }
        // The next batch is in the queue already, so this does not let it run dry.
        if (elapsed_ns >= next_telemetry_ns) {
          result.telemetry.push_back(watch.device().Telemetry());
          next_telemetry_ns = elapsed_ns + kTelemetryEveryNs;
        }
        return elapsed_ns - timing_began_ns >= time_ns;
      });
  if (!samples.ok()) return samples.status();
  const absl::Span<const double> timed = absl::MakeConstSpan(*samples).subspan(timed_from);
  Visit visit{.median_ns = Median(timed)};
  visit.relative_error = MedianError(timed, visit.median_ns);
  candidate.estimate_ns = visit.median_ns;
  result.samples_ns.insert(result.samples_ns.end(), timed.begin(), timed.end());
  result.soak_ns = std::max(result.soak_ns, timing_began_ns);
  result.steady &= steady;
  return visit;
}

absl::StatusOr<FinalsResult> RunFinals(absl::Span<const FinalistInput> finalists, Stopwatch& watch,
                                       const FinalsRules& rules,
                                       const std::function<bool()>& keep_going) {
  return Finals(finalists, watch, rules, keep_going).Run();
}

}  // namespace whet
