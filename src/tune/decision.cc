#include "src/tune/decision.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace whet {
namespace {

// No clock and no timer is better than this from visit to visit.
// Of the tie zone: how near a finalist must be proven to count as the fastest's equal. Of the many
// that are proven with 95 %, some are a little farther than proven, and the zone is a promise.
constexpr double kEqualShare = 0.7;
constexpr double kErrorFloor = 0.0005;

struct Scatter {
  double variance = 0;  // of one visit's logarithm
  double degrees = 0;
};

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

double MeanLog(const Finalist& f) {
  double sum = 0;
  for (const Visit& v : f.visits) sum += std::log(v.median_ns);
  return sum / static_cast<double>(f.visits.size());
}

Scatter Pool(absl::Span<const Finalist> finalists, absl::Span<const double> means) {
  std::vector<double> errors;
  double squares = 0, degrees = 0;
  for (size_t i = 0; i < finalists.size(); ++i) {
    for (const Visit& v : finalists[i].visits) {
      errors.push_back(v.relative_error);
      const double deviation = std::log(v.median_ns) - means[i];
      squares += deviation * deviation;
    }
    degrees += static_cast<double>(finalists[i].visits.size()) - 1;
  }
  const double prior = std::max(Median(errors), kErrorFloor);
  return {.variance = (kPriorVisits * prior * prior + squares) / (kPriorVisits + degrees),
          .degrees = kPriorVisits + degrees};
}

}  // namespace

Decision Decide(absl::Span<const Finalist> all, const DecisionRules& rules) {
  assert(!all.empty());
  const size_t count = all.size();
  std::vector<Finalist> finalists;
  for (const Finalist& f : all) finalists.push_back(Undisturbed(f));
  std::vector<double> means;
  for (const Finalist& f : finalists) means.push_back(MeanLog(f));
  const Scatter scatter = Pool(finalists, means);
  const double t = StudentT975(scatter.degrees);

  Decision d;
  d.fastest = static_cast<size_t>(std::min_element(means.begin(), means.end()) - means.begin());
  const auto compare = [&](size_t i, size_t j) {
    if (i == j) return Interval{1, 1};
    const double width =
        t * std::sqrt(scatter.variance * (1.0 / static_cast<double>(finalists[i].visits.size()) +
                                          1.0 / static_cast<double>(finalists[j].visits.size())));
    const double difference = means[i] - means[j];
    return Interval{std::exp(difference - width), std::exp(difference + width)};
  };

  const double zone = 1 + rules.tie_zone;
  const double equal = 1 + rules.tie_zone * kEqualShare;
  size_t winner = d.fastest;
  d.settled = true;
  for (size_t i = 0; i < count; ++i) {
    d.ratio.push_back(compare(i, d.fastest));
    d.tied.push_back(d.ratio[i].low <= zone);
    if (d.ratio[i].high <= equal && finalists[i].order < finalists[winner].order) winner = i;
    d.settled &= d.ratio[i].low > 1 || d.ratio[i].high <= equal;
    const bool lost_visits = finalists[i].visits.size() < 2 && all[i].visits.size() >= 2;
    d.settled &= !(lost_visits && d.tied[i]);
    const double width =
        t * std::sqrt(scatter.variance / static_cast<double>(finalists[i].visits.size()));
    d.median_ns.push_back(std::exp(means[i]));
    d.interval_ns.push_back(
        {.low = std::exp(means[i] - width), .high = std::exp(means[i] + width)});
  }

  d.winner = winner;
  for (size_t i = 0; i < count; ++i) {
    if (!finalists[i].incumbent || i == winner) continue;
    const Interval gain = compare(i, winner);
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
