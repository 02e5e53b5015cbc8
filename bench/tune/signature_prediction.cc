// What does the data signature predict? The same kernel on every kind of test data, each at its own
// steady state, and the correlation of each figure of the signature with the time.
//
// On the device that is named; on the CPU nothing but denormal numbers changes a kernel's time, so
// there the figures should be near 0. The simulated GPU takes its power from toggle rates and can
// prove nothing; it is left out on purpose.
//
//   signature_prediction [cpu|cuda|hip] [seq, 1024] [--json FILE]

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/tune/bench_support.h"
#include "src/ops/data.h"
#include "src/ops/operation.h"
#include "src/runtime/runtime.h"
#include "src/tune/signature.h"
#include "src/tune/statistics.h"

namespace whet {
namespace {

using Json = nlohmann::ordered_json;

double Correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const auto n = static_cast<double>(a.size());
  double mean_a = 0, mean_b = 0, ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) mean_a += a[i] / n, mean_b += b[i] / n;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - mean_a) * (b[i] - mean_b);
    aa += (a[i] - mean_a) * (a[i] - mean_a);
    bb += (b[i] - mean_b) * (b[i] - mean_b);
  }
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 0;
}

// Median time of a launch: one second of soak, 0.3 s of timing, without a gap.
double SteadyNs(Device& device, const Plan& plan, const CallTensors& tensors, double* clock_mhz) {
  const bool gpu = device.identity().target.platform != Platform::kCpu;
  const double soak_ns = gpu ? 1e9 : 1e8, time_ns = 3e8;
  std::vector<EventHandle> events;
  for (int i = 0; i < 64; ++i) events.push_back(Must(device.CreateEvent()));
  std::vector<double> samples;
  double elapsed = 0;
  size_t enqueued = 0, read = 0;
  const auto enqueue = [&] {
    Must(device.Record(events[enqueued % 32 * 2], nullptr));
    Must(plan.LaunchNow(tensors.args(), nullptr));
    Must(device.Record(events[enqueued % 32 * 2 + 1], nullptr));
    ++enqueued;
  };
  while (elapsed < soak_ns + time_ns) {
    while (enqueued < read + 16) enqueue();
    const auto ns = static_cast<double>(
        Must(device.ElapsedNanoseconds(events[read % 32 * 2], events[read % 32 * 2 + 1])));
    ++read;
    elapsed += ns;
    if (elapsed > soak_ns) samples.push_back(ns);
  }
  *clock_mhz = device.Telemetry().clock_mhz.value_or(0);
  Must(device.Synchronize(nullptr));
  for (EventHandle event : events) device.DestroyEvent(event);
  return Median(samples);
}

int Main(int argc, char** argv) {
  Platform platform = Platform::kCpu;
  int64_t seq = 1024;
  std::string json_path;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--json" && i + 1 < argc) {
      json_path = argv[++i];
    } else if (const auto named = ParsePlatform(word); named.ok()) {
      platform = *named;
    } else {
      seq = std::atoi(argv[i]);
    }
  }
  Options options;
  options.tuning = TuningMode::kNever;
  const auto runtime = Must(Runtime::Open(options, platform, 0));
  Device& device = runtime->device();
  const KernelTemplate* t = Must(runtime->FindTemplate("attention_forward"));
  const Operation& op = OperationFor("attention_forward");
  const int64_t heads = platform == Platform::kCpu ? 4 : 32;
  const Problem problem = AttentionProblem(*t, heads, seq);
  const Plan* plan = Must(runtime->Prepare(*t, problem, nullptr, nullptr));
  std::printf("%s, %s, %s\n", device.identity().product.c_str(), problem.text().c_str(),
              plan->resolution().variant.c_str());
  std::printf("%-13s %12s %10s %9s %9s %8s %8s %8s\n", "data", "time", "clock", "toggles", "outer",
              "zeros", "ones", "spread");
  struct Figure {
    const char* name;
    std::vector<double> values;
  };
  std::vector<Figure> figures = {{"toggles_inner", {}},
                                 {"toggles_outer", {}},
                                 {"zeros", {}},
                                 {"ones", {}},
                                 {"exponent_spread", {}}};
  std::vector<double> times, clocks;
  Json rows = Json::array();
  for (const DataKind& kind : DataKinds()) {
    for (const uint64_t seed : {1, 2}) {
      const CallTensors tensors(Must(MakeTensors(op, problem, Must(t->Arguments(problem)), {}, {},
                                                 {.kind = std::string(kind.name), .seed = seed})),
                                &device);
      const DataSignature signature =
          Must(TakeSignature(tensors.host().arguments, tensors.pointers(), device, nullptr));
      double clock_mhz = 0;
      const double ns = SteadyNs(device, *plan, tensors, &clock_mhz);
      // The mean over q, k and v.
      double mean[5] = {};
      for (const InputSignature& s : signature.inputs) {
        const double each[] = {s.toggles_inner, s.toggles_outer, s.zeros, s.ones,
                               s.exponent_spread};
        for (int f = 0; f < 5; ++f)
          mean[f] += each[f] / static_cast<double>(signature.inputs.size());
      }
      for (size_t f = 0; f < 5; ++f) figures[f].values.push_back(mean[f]);
      times.push_back(ns);
      clocks.push_back(clock_mhz);
      std::printf("%-13s %9.3f ms %6.0f MHz %8.3f %9.3f %8.3f %8.3f %8.2f\n",
                  std::string(kind.name).c_str(), ns / 1e6, clock_mhz, mean[0], mean[1], mean[2],
                  mean[3], mean[4]);
      std::fflush(stdout);
      rows.push_back({{"data", std::string(kind.name)},
                      {"seed", seed},
                      {"ns", ns},
                      {"clock_mhz", clock_mhz},
                      {"toggles_inner", mean[0]},
                      {"toggles_outer", mean[1]},
                      {"zeros", mean[2]},
                      {"ones", mean[3]},
                      {"exponent_spread", mean[4]}});
    }
  }
  const double spread = *std::max_element(times.begin(), times.end()) /
                            *std::min_element(times.begin(), times.end()) -
                        1;
  std::printf("slowest over fastest data: +%.1f %%; correlation with the time:", 100 * spread);
  Json correlations;
  for (const Figure& f : figures) {
    const double r = Correlation(f.values, times);
    std::printf(" %s %.2f", f.name, r);
    correlations[f.name] = r;
  }
  std::printf("\n");
  if (!json_path.empty()) {
    std::ofstream(json_path) << Json({{"device", device.identity().product},
                                      {"variant", plan->resolution().variant},
                                      {"correlation", correlations},
                                      {"rows", rows}})
                                    .dump(1)
                             << "\n";
  }
  return 0;
}

}  // namespace
}  // namespace whet

int main(int argc, char** argv) { return whet::Main(argc, argv); }
