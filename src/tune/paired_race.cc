#include "src/tune/paired_race.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace whet {
namespace {

// Looking after every round would give chance as many chances.
constexpr size_t kRoundsBetweenLooks = 6;
// Parts of the budget after which the slower half is out.
constexpr double kHalvings[] = {0.25, 0.5};
// Of the tie zone: so near the best the winner is proven when the race ends early, and so near one
// must be to count as its equal.
constexpr double kSettledShare = 0.5;
constexpr double kEqualShare = 0.7;
// Of the samples that must be undisturbed for the others not to count.
constexpr double kMostlyUndisturbed = 0.5;
constexpr size_t kFewestRatios = 6;  // for an interval
// Behind by so much in each of the first rounds: out at once, for a slow one costs the time of many.
constexpr size_t kFirstRounds = 3;
constexpr double kFarBehind = 1.5;

}  // namespace

PairedRace::PairedRace(std::vector<PairedEntry> entries, const PairedRules& rules)
    : entries_(std::move(entries)),
      rules_(rules),
      rounds_(entries_.size()),
      failed_(entries_.size(), false) {
  for (size_t i = 0; i < entries_.size(); ++i) running_.push_back(i);
}

void PairedRace::EndRound(absl::Span<const Stopwatch::Sample> samples) {
  for (size_t i = 0; i < samples.size(); ++i) {
    if (!(samples[i].wall_ns > 0)) continue;
    rounds_[running_[i]].push_back({.number = round_, .sample = samples[i]});
    spent_ns_ += samples[i].wall_ns;
    ++samples_;
    undisturbed_ += !samples[i].disturbed;
  }
  ++round_;
  // Forth and back: whoever comes first in one round comes last in the next.
  std::reverse(running_.begin(), running_.end());
  if (round_ % kRoundsBetweenLooks == 0 && round_ >= static_cast<size_t>(rules_.least_rounds)) {
    Judge();
  }
  if (round_ == kFirstRounds) DropTheFarBehind();
  over_ |= spent_ns_ >= rules_.budget_ns || running_.empty();
}

void PairedRace::DropTheFarBehind() {
  const size_t fastest = Fastest();
  std::erase_if(running_, [&](size_t i) {
    const std::vector<double> ratios = Ratios(i, fastest);
    return i != fastest && !entries_[i].incumbent && ratios.size() >= kFirstRounds &&
           *std::min_element(ratios.begin(), ratios.end()) > kFarBehind;
  });
}

void PairedRace::Drop(size_t entry) {
  failed_[entry] = true;
  std::erase(running_, entry);
  over_ |= running_.empty();
}

std::vector<double> PairedRace::Ratios(size_t entry, size_t other) const {
  const bool wall =
      static_cast<double>(undisturbed_) >= kMostlyUndisturbed * static_cast<double>(samples_);
  std::vector<double> ratios;
  auto b = rounds_[other].begin();
  for (const Round& a : rounds_[entry]) {
    while (b != rounds_[other].end() && b->number < a.number) ++b;
    if (b == rounds_[other].end()) break;
    if (b->number != a.number) continue;
    const bool by_cpu = !wall && a.sample.cpu_ns > 0 && b->sample.cpu_ns > 0;
    if (wall && (a.sample.disturbed || b->sample.disturbed)) continue;
    ratios.push_back(by_cpu ? a.sample.cpu_ns / b->sample.cpu_ns
                            : a.sample.wall_ns / b->sample.wall_ns);
  }
  return ratios;
}

size_t PairedRace::Fastest() const {
  size_t fastest = entries_.size();
  // Those that run to the end: the others are out because they were slower.
  std::vector<size_t> by_order = running_;
  for (size_t i = 0; running_.empty() && i < entries_.size(); ++i) {
    if (!failed_[i]) by_order.push_back(i);
  }
  std::sort(by_order.begin(), by_order.end());
  for (size_t i : by_order) {
    if (rounds_[i].empty()) continue;
    if (fastest == entries_.size() || Median(Ratios(i, fastest)) < 1) fastest = i;
  }
  return fastest;
}

void PairedRace::Judge() {
  const size_t fastest = Fastest();
  if (fastest == entries_.size()) return;
  std::vector<std::pair<double, size_t>> ranked;
  for (size_t i : std::vector<size_t>(running_)) {
    const std::vector<double> ratios = Ratios(i, fastest);
    if (i == fastest || ratios.size() < kFewestRatios) {
      ranked.emplace_back(1, i);
      continue;
    }
    const double most = entries_[i].incumbent
                            ? std::max(rules_.decision.tie_zone, rules_.decision.replace_gain)
                            : rules_.decision.tie_zone;
    if (MedianInterval(ratios).low > 1 + most) {
      std::erase(running_, i);
    } else {
      ranked.emplace_back(Median(ratios), i);
    }
  }
  if (halvings_ < std::ssize(kHalvings) && spent_ns_ >= kHalvings[halvings_] * rules_.budget_ns) {
    ++halvings_;
    std::stable_sort(ranked.begin(), ranked.end());
    for (size_t place = std::max<size_t>(2, (ranked.size() + 1) / 2); place < ranked.size();
         ++place) {
      if (!entries_[ranked[place].second].incumbent) std::erase(running_, ranked[place].second);
    }
  }
  over_ = Decide().settled;
}

Decision PairedRace::Decide() const {
  const size_t count = entries_.size();
  Decision d;
  d.fastest = Fastest();
  if (d.fastest == count) d.fastest = 0;
  const DecisionRules& rules = rules_.decision;
  const auto interval = [&](size_t i, size_t j) {
    if (i == j) return Interval{1, 1};
    const std::vector<double> ratios = Ratios(i, j);
    // Too few say nothing.
    return ratios.size() < kFewestRatios ? Interval{0, 1e9} : MedianInterval(ratios);
  };
  std::vector<double> walls;
  for (const Round& r : rounds_[d.fastest]) walls.push_back(r.sample.wall_ns);
  const double fastest_ns = Median(walls);
  d.winner = d.fastest;
  d.settled = true;
  for (size_t i = 0; i < count; ++i) {
    const Interval ratio = interval(i, d.fastest);
    d.ratio.push_back(ratio);
    const bool ran = !failed_[i] && !rounds_[i].empty();
    d.tied.push_back(ran && ratio.low <= 1 + rules.tie_zone);
    const double middle = i == d.fastest || !ran ? 1 : Median(Ratios(i, d.fastest));
    d.median_ns.push_back(ran ? fastest_ns * middle : 0);
    d.interval_ns.push_back(ran && ratio.high < 1e9
                                ? Interval{fastest_ns * ratio.low, fastest_ns * ratio.high}
                                : Interval{d.median_ns[i], d.median_ns[i]});
    const bool equal = ran && ratio.high <= 1 + rules.tie_zone * kEqualShare;
    if (equal && entries_[i].order < entries_[d.winner].order) d.winner = i;
  }
  for (size_t i : running_) {
    d.settled &= interval(d.winner, i).high <= 1 + rules.tie_zone * kSettledShare;
  }
  const size_t winner = d.winner;
  for (size_t i = 0; i < count; ++i) {
    if (!entries_[i].incumbent || failed_[i] || rounds_[i].empty() || i == winner) continue;
    const Interval gain = interval(i, winner);
    const double needed = 1 + rules.replace_gain;
    if (gain.low >= needed) continue;
    d.winner = i;
    d.kept_incumbent = true;
    // Another round may still prove the gain.
    d.settled &= gain.high < needed || gain.low <= 1;
  }
  return d;
}

}  // namespace whet
