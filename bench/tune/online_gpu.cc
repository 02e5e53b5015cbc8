// Are a GPU's live calls right while they are being tuned on (tuning mode "online"), when do they settle, and what do they
// cost?
//
// Attention forward, BF16, causal, 32 heads: calls follow each other, the queue is waited for after every 32. In three
// processes' worth of runtimes: with nothing compiled; with the code of all candidates compiled but no winner; with the
// winner. Until it settles, 60 s at most, and 4,000 calls more. Now and then a call's output, poisoned before, is held
// against the first call's. Needs nothing but the driver and the runtime compiler.
//
//   online_gpu [seq, 4096]

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
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

constexpr int kCallsPerWait = 32;
constexpr int kCallsPerCheck = 1024;
constexpr int kCallsAfterwards = 4000;

double NowS() { return static_cast<double>(Clock::Real()->MonotonicNanoseconds()) / 1e9; }

class GpuCalls {
 public:
  explicit GpuCalls(int64_t seq) : seq_(seq) {}

  void Open(const std::string& cache, TuningMode mode) {
    Options options;
    options.cache_directory = cache;
    options.tuning = mode;
    runtime_ = Must(Runtime::Open(options, Platform::kCuda, 0));
    runtime_->SetResolutionSink([](const Resolution& r) {
      std::printf("  event: %s, %s\n", r.variant.c_str(), r.note.c_str());
      std::fflush(stdout);
    });
    template_ = Must(runtime_->FindTemplate("attention_forward"));
    problem_ = std::make_unique<Problem>(AttentionProblem(*template_, /*heads=*/32, seq_));
    tensors_ = std::make_unique<CallTensors>(
        Must(MakeTensors(OperationFor("attention_forward"), *problem_,
                         Must(template_->Arguments(*problem_)), {}, {}, {.kind = "normal"})),
        &runtime_->device());
    const OperationTensors& host = tensors_->host();
    output_ = 0;
    while (host.arguments[output_].direction != Direction::kOut ||
           !host.tensors[output_].present()) {
      ++output_;
    }
  }
  void Close() {
    tensors_.reset();
    runtime_.reset();
  }

  void CompileAll() {
    const double begin = NowS();
    const DeviceIdentity& identity = runtime_->device().identity();
    std::vector<Variant> all =
        Must(template_->Variants(*problem_, identity.target, DeviceLimits::Of(identity)));
    if (all.size() > 16) all.resize(16);
    int compiled = 0;
    for (const Variant& v : all)
      compiled += runtime_->PrepareVariant(*template_, *problem_, v).ok();
    std::printf("compiled %d of %zu candidates in %.1f s\n", compiled, all.size(), NowS() - begin);
  }

  void Run(const char* what, double longest_s) {
    std::printf("%s\n", what);
    Device& device = runtime_->device();
    std::vector<double> pace_ms;  // of a call, per wait
    double settled_s = -1;
    int64_t calls = 0, settled_at = -1, last = -1;
    int checks = 0, wrong = 0;
    double worst = 0;
    const double begin = NowS();
    for (double before = begin; last < 0 || calls < last;) {
      const bool check = calls % kCallsPerCheck == 0;
      if (check) Poison();
      for (int i = 0; i < kCallsPerWait; ++i) {
        Must(runtime_->Launch(*template_, *problem_, tensors_->args(), nullptr));
      }
      Must(device.Synchronize(nullptr));
      calls += kCallsPerWait;
      const double now = NowS();
      if (calls > kCallsPerWait && !check) pace_ms.push_back((now - before) * 1e3 / kCallsPerWait);
      if (check) Check(&checks, &wrong, &worst);
      before = NowS();
      if (last >= 0) continue;
      const bool settled = runtime_->counters().live_tunings > 0;
      if (settled) {
        settled_s = now - begin;
        settled_at = calls;
      }
      if (settled || now - begin > longest_s) last = calls + kCallsAfterwards;
    }
    const RuntimeCounters counters = runtime_->counters();
    const size_t first = std::min<size_t>(pace_ms.size(), 1000 / kCallsPerWait);
    const size_t tail = std::min<size_t>(pace_ms.size(), 2000 / kCallsPerWait);
    double sum_first = 0, most = 0;
    for (size_t i = 0; i < first; ++i) sum_first += pace_ms[i];
    for (double p : pace_ms) most = std::max(most, p);
    const double settled_ms = Median(absl::MakeConstSpan(pace_ms).last(tail));
    const std::string runs =
        Must(runtime_->Prepare(*template_, *problem_, nullptr, nullptr))->resolution().variant;
    std::printf(
        "  %lld calls in %.1f s; settled after %lld calls, %.2f s; %lld trials on scratch, %lld "
        "compiles; first 1,000 calls %.4f ms each, last 2,000 %.4f ms (%+.1f %%), slowest 32 calls "
        "%.3f ms each; runs %s; %d outputs looked at, %d wrong, largest difference %.1e\n",
        static_cast<long long>(calls), NowS() - begin, static_cast<long long>(settled_at),
        settled_s, static_cast<long long>(counters.live_trials),
        static_cast<long long>(counters.compiles), sum_first / static_cast<double>(first),
        settled_ms, 100 * (sum_first / static_cast<double>(first) / settled_ms - 1), most,
        runs.c_str(), checks, wrong, worst);
    std::printf("  ms of a call, by eighths:");
    for (size_t i = 0; i < 8; ++i) {
      const size_t from = i * pace_ms.size() / 8, to = (i + 1) * pace_ms.size() / 8;
      std::printf(" %.4f", Median(absl::MakeConstSpan(pace_ms).subspan(from, to - from)));
    }
    std::printf("\n");
    std::fflush(stdout);
  }

 private:
  int64_t bytes() const { return tensors_->host().tensors[output_].span_bytes(); }
  void Poison() {
    Must(runtime_->device().Fill(tensors_->pointers()[output_], 0xff, bytes(), nullptr));
  }
  void Check(int* checks, int* wrong, double* worst) {
    std::string now(static_cast<size_t>(bytes()), '\0');
    Must(
        runtime_->device().CopyToHost(now.data(), tensors_->pointers()[output_], bytes(), nullptr));
    if (expected_.empty()) expected_ = now;
    const Argument& argument = tensors_->host().arguments[output_];
    const Difference d = CompareTensors(argument, now, expected_);
    ++*checks;
    *wrong += !d.problem.empty() || d.relative_l2 > template_->Tolerance(argument.dtype);
    *worst = std::max(*worst, d.relative_l2);
  }

  const int64_t seq_;
  std::unique_ptr<Runtime> runtime_;
  const KernelTemplate* template_ = nullptr;
  std::unique_ptr<Problem> problem_;
  std::unique_ptr<CallTensors> tensors_;
  size_t output_ = 0;
  std::string expected_;
};

int Main(int argc, char** argv) {
  GpuCalls calls(argc > 1 ? std::atoi(argv[1]) : 4096);
  const TemporaryDirectory cold = Must(TemporaryDirectory::Create("whet-online-gpu"));
  calls.Open(cold.path(), TuningMode::kOnline);
  calls.Run("nothing compiled:", 60);
  calls.Close();
  calls.Open(cold.path(), TuningMode::kOnline);
  calls.Run("the same again (its winner is stored):", 1);
  calls.Close();
  const TemporaryDirectory warm = Must(TemporaryDirectory::Create("whet-online-gpu"));
  calls.Open(warm.path(), TuningMode::kNever);
  calls.CompileAll();
  calls.Close();
  calls.Open(warm.path(), TuningMode::kOnline);
  calls.Run("compiled ahead:", 60);
  calls.Close();
  return 0;
}

}  // namespace
}  // namespace whet

int main(int argc, char** argv) { return whet::Main(argc, argv); }
