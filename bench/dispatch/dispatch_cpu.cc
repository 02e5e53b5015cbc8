// What does a warm launch cost on the host, and where does it go?
//
//   bazel run --config=release //bench/dispatch:dispatch_cpu -- --benchmark_out=dispatch.json --benchmark_out_format=json
//
// An attention of one token and a RMSNorm of one row on the CPU device: kernels of a few nanoseconds, so what is measured is everything but the
// kernel. Rows from the inside out: the kernel through the device, the plan (checks of the pointers), the plan table with a problem, with packed fields, and
// the C interface with its structure of shapes.

#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "src/runtime/runtime.h"
#include "whet/whet.h"

namespace whet {
namespace {

constexpr int64_t kDim = 16;

void Require(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

// One settled RMSNorm of one row.
struct Fixture {
  Fixture() {
    Options options;
    options.tuning = TuningMode::kNever;
    options.device.cpu_threads = 1;
    auto opened = Runtime::Open(options, Platform::kCpu, 0);
    Require(opened.status());
    runtime = *std::move(opened);
    auto found = runtime->FindTemplate("rms_norm");
    Require(found.status());
    kernel_template = *found;
    auto made = kernel_template->MakeProblem({{"dtype", "f32"},
                                              {"rows", int64_t{1}},
                                              {"columns", kDim},
                                              {"x_stride", kDim},
                                              {"residual", int64_t{0}}});
    Require(made.status());
    problem = std::make_unique<Problem>(*std::move(made));
    auto prepared = runtime->Prepare(*kernel_template, *problem, nullptr, nullptr);
    Require(prepared.status());
    plan = *prepared;
    // What the device alone is given.
    const DeviceIdentity& identity = runtime->device().identity();
    auto variant = Variant::Parse(plan->resolution().variant);
    Require(variant.status());
    auto specialization = kernel_template->Specialize(*problem, *variant, identity.target,
                                                      DeviceLimits::Of(identity));
    Require(specialization.status());
    auto entries = runtime->store().ListCode();
    Require(entries.status());
    for (const CodeEntry& entry : *entries) {
      const auto whole = runtime->store().FindCode(entry.key);
      auto loaded = runtime->device().LoadModule(whole->object);
      Require(loaded.status());
      module = *std::move(loaded);
    }
    auto found_kernel =
        module->GetKernel(specialization->entry, specialization->launch.shared_bytes);
    Require(found_kernel.status());
    kernel = *found_kernel;
  }

  std::unique_ptr<Runtime> runtime;
  const KernelTemplate* kernel_template = nullptr;
  std::unique_ptr<Problem> problem;
  const Plan* plan = nullptr;
  std::unique_ptr<Module> module;
  Kernel kernel;
  alignas(64) float x[kDim] = {1, 2, 3}, weight[kDim] = {1, 1, 1}, y[kDim] = {};
  float* xp = x;
  float* rp = nullptr;
  float* wp = weight;
  float* yp = y;
  float epsilon = 1e-6f;
  void* args[5] = {&xp, &rp, &wp, &yp, &epsilon};
};

Fixture& F() {
  static Fixture fixture;
  return fixture;
}

void BM_DeviceLaunch(benchmark::State& state) {
  Fixture& f = F();
  for (auto unused : state) {
    benchmark::DoNotOptimize(
        f.runtime->device().Launch(f.kernel, f.plan->geometry(), f.args, nullptr));
  }
}
BENCHMARK(BM_DeviceLaunch);

void BM_PlanLaunch(benchmark::State& state) {
  Fixture& f = F();
  for (auto unused : state) benchmark::DoNotOptimize(f.plan->Launch(f.args, nullptr));
}
BENCHMARK(BM_PlanLaunch);

void BM_RuntimeLaunchProblem(benchmark::State& state) {
  Fixture& f = F();
  for (auto unused : state) {
    benchmark::DoNotOptimize(f.runtime->Launch(*f.kernel_template, *f.problem, f.args, nullptr));
  }
}
BENCHMARK(BM_RuntimeLaunchProblem);

void BM_RuntimeLaunchPacked(benchmark::State& state) {
  Fixture& f = F();
  const std::vector<int64_t>& fields = f.problem->packed();
  for (auto unused : state) {
    benchmark::DoNotOptimize(
        f.runtime->Launch(*f.kernel_template, absl::MakeConstSpan(fields), f.args, nullptr));
  }
}
BENCHMARK(BM_RuntimeLaunchPacked);

void BM_CAttentionForward(benchmark::State& state) {
  whet_options options = WHET_OPTIONS_INIT;
  options.cache_directory = "";
  options.tuning = "never";
  options.cpu_threads = 1;
  whet_runtime* runtime = nullptr;
  if (whet_runtime_open(&options, WHET_PLATFORM_CPU, 0, &runtime) != WHET_OK) {
    state.SkipWithError(whet_last_error());
    return;
  }
  alignas(64) float q[kDim] = {1}, k[kDim] = {1}, v[kDim] = {1}, o[kDim] = {};
  whet_attention_forward_args args = WHET_ATTENTION_FORWARD_ARGS_INIT;
  args.dtype = WHET_DTYPE_F32;
  args.seq_q = args.seq_kv = 1;
  args.dqk = args.dv = kDim;
  args.q = q;
  args.k = k;
  args.v = v;
  args.o = o;
  for (auto unused : state) {
    if (whet_attention_forward(runtime, &args, nullptr) != WHET_OK) {
      state.SkipWithError(whet_last_error());
      break;
    }
  }
  whet_runtime_close(runtime);
}
BENCHMARK(BM_CAttentionForward);

}  // namespace
}  // namespace whet

BENCHMARK_MAIN();
