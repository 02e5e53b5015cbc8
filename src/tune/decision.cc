#include "src/tune/decision.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <vector>

namespace whet {
namespace {

// Of the tie zone: how near a finalist must be proven to count as the fastest's equal. Of the many
// that are proven with 95 %, some are a little farther than proven, and the zone is a promise.
constexpr double kEqualShare = 0.7;
// How near the best the winner must be proven before the looking ends. Looking again and again gives
// chance as many chances, so this asks for more than the zone does.
constexpr double kSettledShare = 0.3;
// No clock and no timer is better than this from visit to visit.
constexpr double kErrorFloor = 0.0005;

// A copy without the visits that do not count.
Finalist Undisturbed(const Finalist& f) {
  double best = f.visits.front().median_ns;
  for (const Visit& v : f.visits) best = std::min(best, v.median_ns);
  Finalist kept{.order = f.order, .incumbent = f.incumbent, .visits = {}};
  for (const Visit& v : f.visits) {
    if (v.median_ns <= best * (1 + kDisturbed)) kept.visits.push_back(v);
  }
  return kept;
}

struct Means {
  double log_ns = 0, at_s = 0;
};

Means MeansOf(const Finalist& f) {
  Means means;
  for (const Visit& v : f.visits) {
    means.log_ns += std::log(v.median_ns) / static_cast<double>(f.visits.size());
    means.at_s += v.at_s / static_cast<double>(f.visits.size());
  }
  return means;
}

// log(time) = what the finalist takes + drift x when, by least squares over all visits; the drift
// with a prior around none.
class Fit {
 public:
  explicit Fit(absl::Span<const Finalist> finalists) {
    std::vector<double> errors;
    double products = 0, squares = 0, degrees = 0;
    for (const Finalist& f : finalists) {
      const Means means = MeansOf(f);
      for (const Visit& v : f.visits) {
        errors.push_back(v.relative_error);
        const double late = v.at_s - means.at_s, slow = std::log(v.median_ns) - means.log_ns;
        lateness_ += late * late;
        products += late * slow;
        squares += slow * slow;
      }
      degrees += static_cast<double>(f.visits.size()) - 1;
      means_.push_back(means);
      counts_.push_back(static_cast<double>(f.visits.size()));
    }
    const double prior = std::max(Median(errors), kErrorFloor);
    const auto variance = [&](double sum) {
      return (kPriorVisits * prior * prior + sum) / (kPriorVisits + degrees);
    };
    lateness_ += variance(squares) / (kDriftPerSecond * kDriftPerSecond);
    drift_ = products / lateness_;
    variance_ = variance(std::max(0.0, squares - drift_ * products));
    t_ = StudentT975(kPriorVisits + degrees);
  }

  double LogNs(size_t i) const { return means_[i].log_ns - drift_ * (means_[i].at_s - Middle()); }
  double Width(size_t i) const { return t_ * std::sqrt(variance_ / counts_[i]); }
  Interval Ratio(size_t i, size_t j) const {
    if (i == j) return {1, 1};
    const double apart_s = means_[i].at_s - means_[j].at_s;
    const double width =
        t_ *
        std::sqrt(variance_ * (1 / counts_[i] + 1 / counts_[j] + apart_s * apart_s / lateness_));
    const double difference = LogNs(i) - LogNs(j);
    return {std::exp(difference - width), std::exp(difference + width)};
  }
  double drift() const { return drift_; }

 private:
  double Middle() const {
    double sum = 0;
    for (const Means& m : means_) sum += m.at_s;
    return sum / static_cast<double>(means_.size());
  }

  std::vector<Means> means_;
  std::vector<double> counts_;
  double lateness_ = 0;  // squared seconds, with the prior's
  double drift_ = 0;
  double variance_ = 0;  // of one visit's logarithm
  double t_ = 0;
};

}  // namespace

Decision Decide(absl::Span<const Finalist> all, const DecisionRules& rules) {
  assert(!all.empty());
  const size_t count = all.size();
  std::vector<Finalist> finalists;
  for (const Finalist& f : all) finalists.push_back(Undisturbed(f));
  const Fit fit(finalists);

  Decision d;
  d.drift_per_second = fit.drift();
  for (size_t i = 1; i < count; ++i) {
    if (fit.LogNs(i) < fit.LogNs(d.fastest)) d.fastest = i;
  }
  const double zone = 1 + rules.tie_zone;
  const double equal = 1 + rules.tie_zone * kEqualShare;
  const double settled = 1 + rules.tie_zone * kSettledShare;
  size_t winner = d.fastest;
  for (size_t i = 0; i < count; ++i) {
    d.ratio.push_back(fit.Ratio(i, d.fastest));
    d.tied.push_back(d.ratio[i].low <= zone);
    if (d.ratio[i].high <= equal && finalists[i].order < finalists[winner].order) winner = i;
    const double ns = std::exp(fit.LogNs(i)), width = fit.Width(i);
    d.median_ns.push_back(ns);
    d.interval_ns.push_back({.low = ns * std::exp(-width), .high = ns * std::exp(width)});
  }
  d.settled = true;
  for (size_t i = 0; i < count; ++i) {
    d.settled &= fit.Ratio(winner, i).high <= settled;
    const bool lost_visits = finalists[i].visits.size() < 2 && all[i].visits.size() >= 2;
    d.settled &= !(lost_visits && d.tied[i]);
  }

  d.winner = winner;
  for (size_t i = 0; i < count; ++i) {
    if (!finalists[i].incumbent || i == winner) continue;
    const Interval gain = fit.Ratio(i, winner);
    const double needed = 1 + rules.replace_gain;
    if (gain.low < needed) {
      d.winner = i;
      d.kept_incumbent = true;
      // Another visit may still prove the gain.
      d.settled &= gain.high < needed || gain.low <= 1;
    }
  }
  return d;
}

}  // namespace whet
