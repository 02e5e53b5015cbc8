// What do 1,000 live calls of attention on this processor cost while they are being tuned on, against
// the best variant all along?
//
// Through the runtime, its code compiled ahead and not; every call's result is held against the
// first's.
//
//   online_cpu [seq, 512] [--json FILE]

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/tune/bench_support.h"
#include "src/base/clock.h"
#include "src/base/files.h"
#include "src/ops/operation.h"
#include "src/runtime/runtime.h"
#include "src/tune/statistics.h"
#include "src/tune/verification.h"

namespace whet {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kCalls = 1000;

double NowNs() { return static_cast<double>(Clock::Real()->MonotonicNanoseconds()); }

// Attention on this processor.
class CpuCalls {
 public:
  explicit CpuCalls(int64_t seq) : seq_(seq) {}

  void Open(const std::string& cache, TuningMode mode) {
    runtime_.reset();
    Options options;
    options.cache_directory = cache;
    options.tuning = mode;
    runtime_ = Must(Runtime::Open(options, Platform::kCpu, 0));
    template_ = Must(runtime_->FindTemplate("attention_forward"));
    if (problem_) return;
    problem_ = std::make_unique<Problem>(AttentionProblem(*template_, /*heads=*/8, seq_));
    tensors_ = std::make_unique<CallTensors>(
        Must(MakeTensors(OperationFor("attention_forward"), *problem_,
                         Must(template_->Arguments(*problem_)), {}, {}, {.kind = "normal"})),
        /*device=*/nullptr);
    const OperationTensors& host = tensors_->host();
    while (host.arguments[output_].direction != Direction::kOut ||
           !host.tensors[output_].present()) {
      ++output_;
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
      Must(plan != nullptr ? plan->Launch(tensors_->args(), nullptr)
                           : runtime_->Launch(*template_, *problem_, tensors_->args(), nullptr));
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
    const HostTensor& o = tensors_->host().tensors[output_];
    const auto* bytes = reinterpret_cast<const char*>(o.data());
    const auto size = static_cast<size_t>(o.span_bytes());
    if (expected_.empty()) {
      expected_.assign(bytes, size);
      return;
    }
    if (std::memcmp(bytes, expected_.data(), size) == 0) return;
    const Argument& argument = tensors_->host().arguments[output_];
    const Difference d = CompareTensors(argument, absl::string_view(bytes, size), expected_);
    wrong_ += !d.problem.empty() || d.relative_l2 > template_->Tolerance(argument.dtype);
  }

  const int64_t seq_;
  std::unique_ptr<Runtime> runtime_;
  const KernelTemplate* template_ = nullptr;
  std::unique_ptr<Problem> problem_;
  std::unique_ptr<CallTensors> tensors_;
  size_t output_ = 0;
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
  int64_t seq = 512;
  std::string json_path;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--json" && i + 1 < argc) {
      json_path = argv[++i];
    } else {
      seq = std::atoi(argv[i]);
    }
  }
  Json report = Json::array();
  Cpu(seq, report);
  if (!json_path.empty()) std::ofstream(json_path) << report.dump(1) << "\n";
  return 0;
}

}  // namespace
}  // namespace whet

int main(int argc, char** argv) { return whet::Main(argc, argv); }
