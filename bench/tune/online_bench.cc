// What do 1,000 live calls cost while they are being tuned on, against the best variant all along?
//
// On the simulated GPU (tests/support/simulated_gpu.h): spaces of 8 variants in random order and of
// 16 and 64 whose order of preference is right to 10 %, as a template's cost expression is; seeded.
// On this processor: attention through the runtime, its code compiled ahead and not; every call's
// result is held against the first's.
//
// The policy's numbers were chosen on spaces 1 to 100 and 40001 to 40400.
//
//   online_bench [runs per kind of space, 200] [--first-space N, 60001] [--seq N, 512] [--no-cpu]
//                [--json FILE]

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "src/base/clock.h"
#include "src/base/files.h"
#include "src/ops/operation.h"
#include "src/runtime/runtime.h"
#include "src/tune/statistics.h"
#include "src/tune/verification.h"
#include "tests/support/live_harness.h"
#include "tests/support/simulated_space.h"

namespace whet {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kCalls = 1000;

template <typename T>
T Must(absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  std::fprintf(stderr, "%s\n", std::string(value.status().message()).c_str());
  std::exit(1);
}
void Must(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  std::exit(1);
}

double NowNs() { return static_cast<double>(Clock::Real()->MonotonicNanoseconds()); }

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

// Attention on this processor.
class CpuCalls {
 public:
  explicit CpuCalls(int64_t seq) : operation_(OperationFor("attention_forward")) {
    fields_ = operation_.CompleteFields({{"dtype", "bf16"},
                                         {"batch", int64_t{1}},
                                         {"heads_q", int64_t{8}},
                                         {"heads_kv", int64_t{8}},
                                         {"seq_q", seq},
                                         {"seq_kv", seq},
                                         {"dqk", int64_t{128}},
                                         {"dv", int64_t{128}},
                                         {"causal", int64_t{1}}});
  }

  void Open(const std::string& cache, TuningMode mode) {
    runtime_.reset();
    Options options;
    options.cache_directory = cache;
    options.tuning = mode;
    runtime_ = Must(Runtime::Open(options, Platform::kCpu, 0));
    template_ = Must(runtime_->FindTemplate("attention_forward"));
    if (!problem_) {
      problem_ = std::make_unique<Problem>(Must(template_->MakeProblem(fields_)));
      tensors_ = std::make_unique<OperationTensors>(
          Must(MakeTensors(operation_, *problem_, Must(template_->Arguments(*problem_)), {}, {},
                           {.kind = "normal"})));
      for (size_t i = 0; i < tensors_->tensors.size(); ++i) {
        pointers_.push_back(tensors_->tensors[i].present() ? tensors_->tensors[i].data() : nullptr);
        if (tensors_->arguments[i].direction == Direction::kOut && output_ < 0 &&
            tensors_->tensors[i].present()) {
          output_ = static_cast<int>(i);
        }
      }
      for (size_t i = 0; i < pointers_.size(); ++i) {
        const bool scalar = tensors_->arguments[i].direction == Direction::kScalar;
        args_.push_back(scalar ? static_cast<void*>(pointers_[i])
                               : static_cast<void*>(&pointers_[i]));
      }
    }
  }

  std::vector<Variant> Variants() {
    const DeviceIdentity& identity = runtime_->device().identity();
    std::vector<Variant> all =
        Must(template_->Variants(*problem_, identity.target, DeviceLimits::Of(identity)));
    if (all.size() > 16) all.resize(16);
    return all;
  }
  const Plan& PlanFor(const Variant& v) {
    return *Must(runtime_->PrepareVariant(*template_, *problem_, v));
  }

  // Seconds of `calls` calls, without what the checks take.
  double Time(const Plan* plan, int calls, std::vector<double>* each = nullptr) {
    double total_ns = 0;
    for (int call = 0; call < calls; ++call) {
      const double begin = NowNs();
      Must(plan != nullptr ? plan->Launch(args_.data(), nullptr)
                           : runtime_->Launch(*template_, *problem_, args_.data(), nullptr));
      const double ns = NowNs() - begin;
      total_ns += ns;
      if (each != nullptr) each->push_back(ns);
      Check();
    }
    return total_ns / 1e9;
  }
  int wrong() const { return wrong_; }
  Runtime& runtime() { return *runtime_; }
  std::string Settled() {
    return Must(runtime_->Prepare(*template_, *problem_, nullptr, nullptr))->resolution().variant;
  }

 private:
  void Check() {
    const HostTensor& o = tensors_->tensors[static_cast<size_t>(output_)];
    const auto* bytes = reinterpret_cast<const char*>(o.data());
    const auto size = static_cast<size_t>(o.span_bytes());
    if (expected_.empty()) {
      expected_.assign(bytes, size);
      return;
    }
    if (std::memcmp(bytes, expected_.data(), size) == 0) return;
    const Argument& argument = tensors_->arguments[static_cast<size_t>(output_)];
    const Difference d = CompareTensors(argument, absl::string_view(bytes, size), expected_);
    wrong_ += !d.problem.empty() || d.relative_l2 > template_->Tolerance(argument.dtype);
  }

  const Operation& operation_;
  FieldValues fields_;
  std::unique_ptr<Runtime> runtime_;
  const KernelTemplate* template_ = nullptr;
  std::unique_ptr<Problem> problem_;
  std::unique_ptr<OperationTensors> tensors_;
  std::vector<void*> pointers_;
  std::vector<void*> args_;
  int output_ = -1;
  std::string expected_;
  int wrong_ = 0;
};

void Cpu(int64_t seq, Json& report) {
  const TemporaryDirectory warm = Must(TemporaryDirectory::Create("whet-online-bench"));
  CpuCalls calls(seq);
  calls.Open(warm.path(), TuningMode::kNever);
  std::vector<Variant> variants = calls.Variants();
  std::vector<const Plan*> plans;
  for (const Variant& v : variants) plans.push_back(&calls.PlanFor(v));
  // Who is best, by turns; half of the comparison before the tuned calls and half after them, since
  // neighbours on this machine come and go.
  std::vector<std::vector<double>> rounds(plans.size());
  for (int round = 0; round < 12; ++round) {
    for (size_t i = 0; i < plans.size(); ++i) {
      std::vector<double> each;
      calls.Time(plans[i], 5, &each);
      rounds[i].push_back(Median(each));
    }
  }
  size_t best = 0;
  std::vector<double> medians;
  for (const auto& r : rounds) medians.push_back(Median(r));
  for (size_t i = 1; i < medians.size(); ++i) best = medians[i] < medians[best] ? i : best;
  for (const bool ahead : {true, false}) {
    const TemporaryDirectory cold = Must(TemporaryDirectory::Create("whet-online-bench"));
    calls.Open(warm.path(), TuningMode::kNever);
    const Plan& ideal = calls.PlanFor(variants[best]);
    double best_s = calls.Time(&ideal, kCalls / 2);
    calls.Open(ahead ? warm.path() : cold.path(), TuningMode::kOnline);
    const double first_s = calls.Time(nullptr, 1);
    const double tuned_s = calls.Time(nullptr, kCalls - 1);
    const RuntimeCounters counters = calls.runtime().counters();
    const std::string settled = calls.Settled();
    calls.Open(warm.path(), TuningMode::kNever);
    best_s += calls.Time(&calls.PlanFor(variants[best]), kCalls / 2);
    std::printf(
        "cpu, code %s: best %.3f s, tuned on live calls %.3f s (%+.2f %%), first call %.3f s "
        "with its compiling; %d trials, %s, runs %s (best %s, default %.3f of the best's time); %d "
        "wrong results\n",
        ahead ? "compiled ahead" : "compiled meanwhile", best_s, tuned_s,
        100 * (tuned_s / best_s - 1), first_s, static_cast<int>(counters.live_trials),
        counters.live_tunings > 0 ? "settled" : "not settled", settled.c_str(),
        variants[best].id().c_str(), medians[0] / medians[best], calls.wrong());
    report.push_back({{"device", "cpu"},
                      {"compiled_ahead", ahead},
                      {"best_seconds", best_s},
                      {"tuned_seconds", tuned_s},
                      {"excess_percent", 100 * (tuned_s / best_s - 1)},
                      {"first_call_seconds", first_s},
                      {"settled", counters.live_tunings > 0},
                      {"variant", settled},
                      {"best", variants[best].id()},
                      {"wrong", calls.wrong()}});
  }
}

int Main(int argc, char** argv) {
  int runs = 200;
  int64_t seq = 512;
  bool cpu = true;
  uint64_t first_space = 60001;
  std::string json_path;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--json" && i + 1 < argc) {
      json_path = argv[++i];
    } else if (word == "--seq" && i + 1 < argc) {
      seq = std::atoi(argv[++i]);
    } else if (word == "--first-space" && i + 1 < argc) {
      first_space = std::strtoull(argv[++i], nullptr, 10);
    } else if (word == "--no-cpu") {
      cpu = false;
    } else {
      runs = std::atoi(argv[i]);
    }
  }
  Json report = Json::array();
  std::printf("%d calls against the best variant all along, simulated GPU, %d runs each\n", kCalls,
              runs);
  std::printf("%-36s %8s %10s %10s %11s %11s %10s\n", "", "median", "p99", "worst", "within 5 %",
              "regret p90", "settled");
  if (runs > 0) {
    Simulated(8, false, runs, first_space, report);
    Simulated(8, true, runs, first_space, report);
    Simulated(16, true, runs, first_space, report);
    Simulated(64, true, runs, first_space, report);
  }
  if (cpu) Cpu(seq, report);
  if (!json_path.empty()) std::ofstream(json_path) << report.dump(1) << "\n";
  return 0;
}

}  // namespace
}  // namespace whet

int main(int argc, char** argv) { return whet::Main(argc, argv); }
