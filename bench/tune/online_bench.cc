// What do 1,000 live calls cost while they are being tuned on, against the best variant all along?
//
// On the simulated GPU (tests/support/simulated_gpu.h): spaces of 8 variants in random order and of
// 16 and 64 whose order of preference is right to 10 %, as a template's cost expression is; seeded.
// online_cpu asks the same of this processor.
//
// The policy's numbers were chosen on spaces 1 to 100 and 40001 to 40400.
//
//   online_bench [runs per kind of space, 200] [--first-space N, 60001] [--json FILE]

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench/tune/bench_support.h"
#include "nlohmann/json.hpp"
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

void Simulated(int variants, bool preferred, int runs, uint64_t first_space, Json& report) {
  std::vector<double> ratios, regrets;
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
    TuningRequest request = ideal.request();
    void* args[] = {&request.pointers[0], &request.pointers[1]};
    for (int call = 0; call < kCalls; ++call) {
      Must(ideal.device().Launch(ideal.kernel(best), {}, args, nullptr));
    }
    Must(ideal.device().Synchronize(nullptr));

    SimulatedSpace space(options);
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
      Must(first->Launch(live_args, nullptr));
      background.Run();
    }
    Must(space.device().Synchronize(nullptr));
    ratios.push_back(static_cast<double>(space.device().clock().MonotonicNanoseconds()) /
                     static_cast<double>(ideal.device().clock().MonotonicNanoseconds()));
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
  uint64_t first_space = 60001;
  std::string json_path;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--json" && i + 1 < argc) {
      json_path = argv[++i];
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
  Simulated(8, false, runs, first_space, report);
  Simulated(8, true, runs, first_space, report);
  Simulated(16, true, runs, first_space, report);
  Simulated(64, true, runs, first_space, report);
  if (!json_path.empty()) std::ofstream(json_path) << report.dump(1) << "\n";
  return 0;
}

}  // namespace
}  // namespace whet

int main(int argc, char** argv) { return whet::Main(argc, argv); }
