#include "src/tune/paired_finals.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "src/tune/statistics.h"

namespace whet {
namespace {

// Shorter samples would be the timer's and the wake-up's as much as the kernel's.
constexpr double kLeastSampleNs = 200'000;
constexpr size_t kTelemetryEveryRounds = 16;

int LaunchesPerSample(const Candidate& c) {
  return static_cast<int>(
      std::clamp(std::ceil(kLeastSampleNs / std::max(1.0, c.estimate_ns)), 1.0, 1e4));
}

}  // namespace

absl::StatusOr<FinalsResult> RunPairedFinals(absl::Span<const FinalistInput> finalists,
                                             Stopwatch& watch, const PairedRules& rules,
                                             const std::function<bool()>& keep_going) {
  FinalsResult result;
  result.finalists.resize(finalists.size());
  std::vector<PairedEntry> entries;
  for (const FinalistInput& f : finalists) {
    entries.push_back({.order = f.candidate->index, .incumbent = f.incumbent});
  }
  PairedRace race(std::move(entries), rules);
  // A lone one has won; a few rounds are for the record.
  const size_t most = finalists.size() > 1 ? SIZE_MAX : static_cast<size_t>(rules.least_rounds);
  for (size_t round = 0; !race.over() && round < most; ++round) {
    if (round > 0 && !keep_going()) break;
    std::vector<Stopwatch::Sample> samples;
    const std::vector<size_t> turns = race.running();
    std::vector<size_t> failed;
    for (size_t i : turns) {
      FinalistResult& f = result.finalists[i];
      Candidate& c = *finalists[i].candidate;
      absl::StatusOr<Stopwatch::Sample> sample = watch.Measure(c, LaunchesPerSample(c));
      if (absl::IsUnavailable(sample.status())) return sample.status();
      if (!sample.ok()) {
        f.error = sample.status();
        failed.push_back(i);
        samples.emplace_back();
        continue;
      }
      samples.push_back(*sample);
      f.samples_ns.push_back(sample->wall_ns);
      if (round % kTelemetryEveryRounds == 0) f.telemetry.push_back(watch.device().Telemetry());
    }
    race.EndRound(samples);
    for (size_t i : failed) race.Drop(i);
  }
  const Decision all = race.Decide();
  // Without those that failed.
  Decision& d = result.decision;
  d.kept_incumbent = all.kept_incumbent;
  d.settled = all.settled;
  for (size_t i = 0; i < finalists.size(); ++i) {
    FinalistResult& f = result.finalists[i];
    if (!f.error.ok() || f.samples_ns.empty()) continue;
    if (i == all.winner) d.winner = result.deciding.size();
    if (i == all.fastest) d.fastest = result.deciding.size();
    result.deciding.push_back(i);
    d.tied.push_back(all.tied[i]);
    d.ratio.push_back(all.ratio[i]);
    d.median_ns.push_back(all.median_ns[i]);
    d.interval_ns.push_back(all.interval_ns[i]);
    f.visits.push_back({.median_ns = Median(f.samples_ns)});
    finalists[i].candidate->estimate_ns = all.median_ns[i];
  }
  return result;
}

}  // namespace whet
