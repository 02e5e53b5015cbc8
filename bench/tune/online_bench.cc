// What do 1,000 live calls cost while they are being tuned on, against the best variant all along?
//
// On the simulated GPU (tests/support/simulated_gpu.h): spaces of 8 variants in random order and of
// 16 and 64 whose order of preference is right to 10 %, as a template's cost expression is; seeded.
// online_cpu asks the same of this processor.
//
// The policy's numbers were chosen on spaces 1 to 100, 40001 to 40400, 42001 to 42800, 80001 to 80400 and 300001 to
// 301000.
//
// --ledger prints of the worst runs what the excess was spent on, in percent of the best's time: launches on scratch,
// calls that ran the best so far while others were tried, trials, calls after settling, the rest (copies, idle).
//
//   online_bench [runs per kind of space, 200] [--first-space N, 500001] [--ledger N] [--json FILE]

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "bench/tune/bench_support.h"
#include "src/tune/statistics.h"
#include "tests/support/live_harness.h"
#include "tests/support/simulated_space.h"

namespace whet {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kCalls = 1000;

// The variants in the order of their time, as somebody sees it who is right to `error`.
std::vector<Variant> Preferred(const SimulatedSpace& space, std::vector<Variant> variants,
                               double error, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, error);
  std::vector<std::pair<double, size_t>> seen;
  for (size_t i = 0; i < variants.size(); ++i) {
    seen.emplace_back(space.steady_ns(static_cast<int>(i)) * std::exp(normal(random)), i);
  }
  std::sort(seen.begin(), seen.end());
  std::vector<Variant> ordered;
  for (const auto& [ns, i] : seen) ordered.push_back(variants[i]);
  return ordered;
}

// What each launch took.
class Recorder final : public TimingModel {
 public:
  explicit Recorder(TimingModel& model) : model_(model) {}
  int64_t DurationNanoseconds(int kernel, int64_t nominal_ns, int64_t start_ns,
                              int64_t idle_since_ns) override {
    const int64_t ns = model_.DurationNanoseconds(kernel, nominal_ns, start_ns, idle_since_ns);
    launches_.emplace_back(kernel, static_cast<double>(ns));
    return ns;
  }
  TelemetrySample Telemetry(int64_t now_ns) override { return model_.Telemetry(now_ns); }
  // Since the last time.
  std::vector<std::pair<int, double>> Take() { return std::exchange(launches_, {}); }

 private:
  TimingModel& model_;
  std::vector<std::pair<int, double>> launches_;
};

// What a run spent more than the best all along, in percent of the best's time.
struct Ledger {
  uint64_t space = 0;
  double total = 0, scratch = 0, running = 0, trials = 0, settled = 0, rest = 0;
  int settled_at = 0, launches_on_scratch = 0, trial_calls = 0;
  int first_rank = 0, rank = 0;         // by steady time, of the first one and of the settled
  double first_regret = 0, regret = 0;  // at steady state
};

void Print(const Ledger& l) {
  std::printf(
      "   space %llu: %+.2f %%: scratch %.2f (%d), best so far %.2f, trials %.2f (%d), settled "
      "%.2f "
      "(from call %d), rest %.2f; first +%.1f %% (place %d), settled on +%.1f %% (place %d)\n",
      static_cast<unsigned long long>(l.space), l.total, l.scratch, l.launches_on_scratch,
      l.running, l.trials, l.trial_calls, l.settled, l.settled_at, l.rest, 100 * l.first_regret,
      l.first_rank, 100 * l.regret, l.rank);
}

void Simulated(int variants, bool preferred, int runs, uint64_t first_space, size_t print,
               Json& report) {
  std::vector<double> ratios, regrets;
  std::vector<Ledger> ledgers;
  int settled = 0;
  for (int run = 0; run < runs; ++run) {
    const SpaceOptions options{.variants = variants,
                               .space_seed = first_space + static_cast<uint64_t>(run),
                               .noise_seed = first_space + 10000 + static_cast<uint64_t>(run),
                               .gpu = {}};
    SimulatedSpace ideal(options);
    int best = 0;
    for (int i = 1; i < ideal.variants(); ++i) {
      if (ideal.steady_ns(i) < ideal.steady_ns(best)) best = i;
    }
    Recorder ideal_recorder(ideal.gpu());
    ideal.device().SetTimingModel(&ideal_recorder);
    TuningRequest request = ideal.request();
    void* args[] = {&request.pointers[0], &request.pointers[1]};
    for (int call = 0; call < kCalls; ++call) {
      Must(ideal.device().Launch(ideal.kernel(best), {}, args, nullptr));
    }
    Must(ideal.device().Synchronize(nullptr));

    const std::vector<std::pair<int, double>> of_best = ideal_recorder.Take();

    SimulatedSpace space(options);
    Recorder recorder(space.gpu());
    space.device().SetTimingModel(&recorder);
    Ledger ledger{.space = options.space_seed};
    request = space.request();
    std::vector<Variant> order = request.variants;
    if (preferred) order = Preferred(space, order, 0.10, options.space_seed);
    LaterBackground background;
    std::unique_ptr<Plan> first = Must(FakePlan(space.device(), space.source(), order.front()));
    LiveCalls live(*first, FakeLiveOptions(space.device(), space.source(), background));
    live.Tune(order, /*incumbent=*/false);
    first->set_live(&live);
    void* live_args[] = {&request.pointers[0], &request.pointers[1]};
    for (int call = 0; call < kCalls; ++call) {
      const bool busy = live.busy();
      Must(first->Launch(live_args, nullptr));
      const Variant current = *Variant::Parse(live.Current().resolution().variant);
      std::vector<std::pair<int, double>> launches = recorder.Take();
      const double more_ns = launches.back().second - of_best[static_cast<size_t>(call)].second;
      const bool trial = launches.back().first != space.IndexOf(current);
      (!busy ? ledger.settled : trial ? ledger.trials : ledger.running) += more_ns;
      ledger.trial_calls += busy && trial;
      launches.pop_back();
      for (const auto& [kernel, ns] : launches) ledger.scratch += ns;
      ledger.launches_on_scratch += static_cast<int>(launches.size());
      background.Run();
      if (live.busy()) ledger.settled_at = call + 1;
    }
    Must(space.device().Synchronize(nullptr));
    ratios.push_back(static_cast<double>(space.device().clock().MonotonicNanoseconds()) /
                     static_cast<double>(ideal.device().clock().MonotonicNanoseconds()));
    const double best_ns = static_cast<double>(ideal.device().clock().MonotonicNanoseconds());
    ledger.total = 100 * (ratios.back() - 1);
    for (double* part : {&ledger.scratch, &ledger.running, &ledger.trials, &ledger.settled}) {
      *part *= 100 / best_ns;
    }
    ledger.rest = ledger.total - ledger.scratch - ledger.running - ledger.trials - ledger.settled;
    const int at_first = space.IndexOf(order.front());
    const int at_last = space.IndexOf(*Variant::Parse(live.Current().resolution().variant));
    ledger.first_regret = space.Regret(at_first);
    ledger.regret = space.Regret(at_last);
    for (int i = 0; i < space.variants(); ++i) {
      ledger.first_rank += space.steady_ns(i) <= space.steady_ns(at_first);
      ledger.rank += space.steady_ns(i) <= space.steady_ns(at_last);
    }
    ledgers.push_back(ledger);
    regrets.push_back(space.Regret(*Variant::Parse(live.Current().resolution().variant)));
    settled += !live.busy();
  }
  const auto within = [&](double limit) {
    return 100.0 *
           static_cast<double>(
               std::count_if(ratios.begin(), ratios.end(), [&](double r) { return r <= limit; })) /
           runs;
  };
  std::printf("%2d variants, %-22s %6.2f %% %8.2f %% %8.2f %% %9.1f %% %9.2f %% %8.1f %%\n",
              variants, preferred ? "order right to 10 %" : "random order",
              100 * (Median(ratios) - 1), 100 * (Quantile(ratios, 0.99) - 1),
              100 * (*std::max_element(ratios.begin(), ratios.end()) - 1), within(1.05),
              100 * Quantile(regrets, 0.9), 100.0 * settled / runs);
  std::sort(ledgers.begin(), ledgers.end(),
            [](const Ledger& a, const Ledger& b) { return a.total > b.total; });
  for (size_t i = 0; i < std::min(print, ledgers.size()); ++i) Print(ledgers[i]);
  std::fflush(stdout);
  report.push_back({{"device", "simulated"},
                    {"variants", variants},
                    {"preferred_order", preferred},
                    {"runs", runs},
                    {"median_excess_percent", 100 * (Median(ratios) - 1)},
                    {"p99_excess_percent", 100 * (Quantile(ratios, 0.99) - 1)},
                    {"within_5_percent", within(1.05)},
                    {"regret_p90_percent", 100 * Quantile(regrets, 0.9)},
                    {"settled_percent", 100.0 * settled / runs}});
}

int Main(int argc, char** argv) {
  int runs = 200;
  uint64_t first_space = 500001;
  size_t print = 0;
  std::string json_path;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--json" && i + 1 < argc) {
      json_path = argv[++i];
    } else if (word == "--ledger" && i + 1 < argc) {
      print = std::strtoull(argv[++i], nullptr, 10);
    } else if (word == "--first-space" && i + 1 < argc) {
      first_space = std::strtoull(argv[++i], nullptr, 10);
    } else {
      runs = std::atoi(argv[i]);
    }
  }
  Json report = Json::array();
  std::printf("%d calls against the best variant all along, simulated GPU, %d runs each\n", kCalls,
              runs);
  std::printf("%-36s %8s %10s %10s %11s %11s %10s\n", "", "median", "p99", "worst", "within 5 %",
              "regret p90", "settled");
  Simulated(8, false, runs, first_space, print, report);
  Simulated(8, true, runs, first_space, print, report);
  Simulated(16, true, runs, first_space, print, report);
  Simulated(64, true, runs, first_space, print, report);
  if (!json_path.empty()) std::ofstream(json_path) << report.dump(1) << "\n";
  return 0;
}

}  // namespace
}  // namespace whet

int main(int argc, char** argv) { return whet::Main(argc, argv); }
