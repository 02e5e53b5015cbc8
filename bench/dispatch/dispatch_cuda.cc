// What does a warm launch cost on the host of an NVIDIA GPU, over the driver's own launch of the same kernel? And a start from a cache?
//
//   bazel build --config=release //bench/dispatch:dispatch_cuda
//   dispatch_cuda [--json FILE]               nanoseconds of host time per launch, medians over bursts; rows take turns
//   dispatch_cuda --start CACHE_DIR [PACK]    one process's start: run it twice, the first fills the cache
//
// Two kernels: RMSNorm of one row (five arguments) and attention forward of one short head (six arguments and three tensor maps of 128
// bytes). Rows from the inside out: cuLaunchKernel by itself, the device layer, the plan, the C interface with packed fields, and with the
// structure of attention's shapes. "moving" rows change a tensor's address at every launch, so its tensor map changes too.
// A burst is shorter than the driver's queue, and is waited for outside of the time.

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/device/argument_pack.h"
#include "src/runtime/runtime.h"
#include "whet/whet.h"

namespace whet {
namespace {

constexpr int kBurst = 256;
constexpr int kBursts = 200;
constexpr int64_t kDim = 128, kSequence = 64;

void Require(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}
void Require(whet_status status) {
  if (status == WHET_OK) return;
  std::fprintf(stderr, "%s\n", whet_last_error());
  std::exit(1);
}
template <typename T>
T Take(absl::StatusOr<T> value) {
  Require(value.status());
  return *std::move(value);
}

double Now() {
  return std::chrono::duration<double, std::nano>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The driver, as an application without Whet would call it.
struct Driver {
  int (*init)(unsigned);
  int (*retain)(void** context, int device);
  int (*set_current)(void* context);
  int (*alloc)(uint64_t* pointer, size_t bytes);
  int (*synchronize)(void* stream);
  int (*launch)(void* function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                unsigned shared_bytes, void* stream, void** params, void** extra);
  Driver() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW);
    const auto find = [&](auto& function, const char* name) {
      function =
          library == nullptr
              ? nullptr
              : reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      if (function == nullptr) Require(absl::UnavailableError("no CUDA driver here"));
    };
    find(init, "cuInit");
    find(retain, "cuDevicePrimaryCtxRetain");
    find(set_current, "cuCtxSetCurrent");
    find(alloc, "cuMemAlloc_v2");
    find(synchronize, "cuStreamSynchronize");
    find(launch, "cuLaunchKernel");
    void* context = nullptr;
    if (init(0) != 0 || retain(&context, 0) != 0 || set_current(context) != 0) {
      Require(absl::UnavailableError("cannot use CUDA device 0"));
    }
  }
  void* Allocate(size_t bytes) const {
    uint64_t pointer = 0;
    if (alloc(&pointer, bytes) != 0) Require(absl::ResourceExhaustedError("no device memory"));
    return reinterpret_cast<void*>(pointer);
  }
};

// A settled problem: its plan, and what launches its kernel without one.
struct Settled {
  Settled(const std::string& operation, const std::string& fields, void* const* args) {
    Options options;
    options.tuning = TuningMode::kNever;
    runtime = Take(Runtime::Open(options, Platform::kCuda, 0));
    kernel_template = Take(runtime->FindTemplate(operation));
    whet_options c_options = WHET_OPTIONS_INIT;
    c_options.cache_directory = "";
    c_options.tuning = "never";
    Require(whet_runtime_open(&c_options, WHET_PLATFORM_CUDA, 0, &c_runtime));
    Require(whet_template_find(c_runtime, operation.c_str(), &c_template));
    packed.resize(whet_template_field_count(c_template));
    Require(whet_problem_parse(c_template, fields.c_str(), packed.data()));
    Require(
        whet_prepare(c_runtime, c_template, packed.data(), packed.size(), args, nullptr, &c_plan));

    problem =
        std::make_unique<Problem>(Take(kernel_template->MakeProblem(absl::MakeConstSpan(packed))));
    plan = Take(runtime->Prepare(*kernel_template, *problem, args, nullptr));
    const DeviceIdentity& identity = runtime->device().identity();
    const Specialization made =
        Take(kernel_template->Specialize(*problem, Take(Variant::Parse(plan->resolution().variant)),
                                         identity.target, DeviceLimits::Of(identity)));
    for (const CodeEntry& entry : Take(runtime->store().ListCode())) {
      module = Take(runtime->device().LoadModule(runtime->store().FindCode(entry.key)->object));
    }
    kernel = Take(module->GetKernel(made.entry, made.launch.shared_bytes));
    pack = std::make_unique<ArgumentPack>(plan->arguments(), made.tensor_maps);
    for (size_t i = 0; i < plan->arguments().size(); ++i) {
      const Argument& argument = plan->arguments()[i];
      if (argument.direction == Direction::kScalar) {
        pack->SetScalar(static_cast<int>(i), args[i], DTypeBytes(argument.dtype));
      } else {
        pack->SetPointer(static_cast<int>(i), *static_cast<void**>(args[i]));
      }
    }
    Require(pack->EncodeTensorMaps(runtime->device()));
  }

  std::unique_ptr<Runtime> runtime;
  const KernelTemplate* kernel_template = nullptr;
  std::unique_ptr<Problem> problem;
  const Plan* plan = nullptr;
  std::unique_ptr<Module> module;
  Kernel kernel;
  std::unique_ptr<ArgumentPack> pack;
  whet_runtime* c_runtime = nullptr;
  const whet_template* c_template = nullptr;
  const whet_plan* c_plan = nullptr;
  std::vector<int64_t> packed;
};

struct Row {
  std::string name;
  std::function<void(int i)> launch;
  std::vector<double> ns = {};
  double Median() {
    std::nth_element(ns.begin(), ns.begin() + static_cast<std::ptrdiff_t>(ns.size() / 2), ns.end());
    return ns[ns.size() / 2];
  }
};

void Add(const Driver& driver, Settled& s, const std::string& name, void* const* args,
         std::vector<Row>& rows) {
  const LaunchGeometry g = s.plan->geometry();
  const auto u = [](int64_t x) { return static_cast<unsigned>(x); };
  rows.push_back({name + ", cuLaunchKernel", [&driver, &s, g, u](int) {
                    if (driver.launch(s.kernel.function, u(g.grid[0]), u(g.grid[1]), u(g.grid[2]),
                                      u(g.block[0]), u(g.block[1]), u(g.block[2]),
                                      u(g.shared_bytes), nullptr,
                                      const_cast<void**>(s.pack->params()), nullptr) != 0) {
                      Require(absl::InternalError("cuLaunchKernel failed"));
                    }
                  }});
  rows.push_back({name + ", device layer", [&s, g](int) {
                    Require(s.runtime->device().Launch(s.kernel, g, s.pack->params(), nullptr));
                  }});
  rows.push_back({name + ", whet_plan_launch",
                  [&s, args](int) { Require(whet_plan_launch(s.c_plan, args, nullptr)); }});
  rows.push_back({name + ", whet_launch", [&s, args](int) {
                    Require(whet_launch(s.c_runtime, s.c_template, s.packed.data(), s.packed.size(),
                                        args, nullptr));
                  }});
}

int Dispatch(const char* json) {
  const Driver driver;
  const size_t bytes = 1 << 20;
  void *q = driver.Allocate(bytes), *k = driver.Allocate(bytes), *v = driver.Allocate(bytes),
       *o = driver.Allocate(bytes), *none = nullptr;
  float scale = 0.1f, epsilon = 1e-6f;

  void* norm_args[] = {&q, &none, &v, &o, &epsilon};
  Settled norm("rms_norm", "dtype=f32,rows=1,columns=1024,x_stride=1024,residual=0", norm_args);
  void* attention_args[] = {&q, &k, &v, &o, &none, &scale};
  std::string fields =
      "dtype=bf16,batch=1,heads_q=1,heads_kv=1,seq_q=64,seq_kv=64,dqk=128,dv=128,"
      "causal=1";
  for (const char* t : {"q", "k", "v", "o"}) {
    fields +=
        std::string(",") + t + "_stride_b=8192," + t + "_stride_h=8192," + t + "_stride_s=128";
  }
  Settled attention("attention_forward", fields, attention_args);

  whet_attention_forward_args shapes = WHET_ATTENTION_FORWARD_ARGS_INIT;
  shapes.seq_q = shapes.seq_kv = kSequence;
  shapes.dqk = shapes.dv = kDim;
  shapes.causal = 1;
  shapes.q = q;
  shapes.k = k;
  shapes.v = v;
  shapes.o = o;
  shapes.scale = scale;

  std::vector<Row> rows;
  Add(driver, norm, "RMSNorm", norm_args, rows);
  Add(driver, attention, "attention", attention_args, rows);
  rows.push_back({"attention, whet_attention_forward", [&](int) {
                    Require(whet_attention_forward(attention.c_runtime, &shapes, nullptr));
                  }});
  rows.push_back({"attention, whet_attention_forward, moving", [&](int i) {
                    shapes.q = static_cast<char*>(q) + 16 * (i % 64);
                    Require(whet_attention_forward(attention.c_runtime, &shapes, nullptr));
                  }});

  for (int burst = -10; burst < kBursts; ++burst) {
    for (Row& row : rows) {
      const double begin = Now();
      for (int i = 0; i < kBurst; ++i) row.launch(i);
      const double ns = (Now() - begin) / kBurst;
      if (driver.synchronize(nullptr) != 0) Require(absl::InternalError("a kernel failed"));
      if (burst >= 0) row.ns.push_back(ns);
    }
  }
  std::printf("%-44s %10s %10s\n", "kernel, way", "ns", "over raw");
  std::string out = "[";
  double raw = 0;
  for (Row& row : rows) {
    const double ns = row.Median();
    if (row.name.find("cuLaunchKernel") != std::string::npos) raw = ns;
    std::printf("%-44s %10.0f %+10.0f\n", row.name.c_str(), ns, ns - raw);
    out += (out.size() > 1 ? ",\n " : "") + ("{\"row\": \"" + row.name + "\", \"ns\": ") +
           std::to_string(ns) + ", \"over_raw_ns\": " + std::to_string(ns - raw) + "}";
  }
  if (json != nullptr) {
    std::FILE* const file = std::fopen(json, "w");
    if (file == nullptr) return 1;
    std::fprintf(file, "%s]\n", out.c_str());
    std::fclose(file);
  }
  whet_runtime_close(norm.c_runtime);
  whet_runtime_close(attention.c_runtime);
  return 0;
}

// The application has its context and its tensors; how long until the first launch, and until its end?
int Start(const char* cache, const char* pack) {
  const double begin = Now();
  const Driver driver;
  const size_t bytes = size_t{1} << 25;
  whet_attention_forward_args args = WHET_ATTENTION_FORWARD_ARGS_INIT;
  args.heads_q = args.heads_kv = 32;
  args.seq_q = args.seq_kv = 4096;
  args.dqk = args.dv = kDim;
  args.causal = 1;
  args.q = driver.Allocate(bytes);
  args.k = driver.Allocate(bytes);
  args.v = driver.Allocate(bytes);
  args.o = driver.Allocate(bytes);
  const double ready = Now();
  whet_options options = WHET_OPTIONS_INIT;
  options.cache_directory = cache;
  options.packs = pack;
  options.tuning = "never";
  whet_runtime* runtime = nullptr;
  Require(whet_runtime_open(&options, WHET_PLATFORM_CUDA, 0, &runtime));
  const double open = Now();
  Require(whet_attention_forward(runtime, &args, nullptr));
  const double launched = Now();
  if (driver.synchronize(nullptr) != 0) Require(absl::InternalError("a kernel failed"));
  const double done = Now();
  whet_counters counters = {};
  counters.struct_size = sizeof(counters);
  Require(whet_stats(runtime, &counters));
  std::printf(
      "context and tensors %.2f ms; then open %.2f ms, launched %.2f ms, done %.2f ms; %s\n",
      (ready - begin) / 1e6, (open - ready) / 1e6, (launched - ready) / 1e6, (done - ready) / 1e6,
      counters.compiles > 0 ? "compiled" : "from the cache");
  whet_runtime_close(runtime);
  return 0;
}

}  // namespace
}  // namespace whet

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "--start" && argc > 2) return whet::Start(argv[2], argc > 3 ? argv[3] : nullptr);
  return whet::Dispatch(mode == "--json" && argc > 2 ? argv[2] : nullptr);
}
