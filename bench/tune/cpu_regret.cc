// How far from the best is the tuner's pick, on this processor with a real attention space?
//
// The winner is held against exhaustive timing in the same run: every variant alone, several passes
// in changing order, median of the passes. Once with the machine as it is, once with a thread that
// keeps one processor busy.
//
//   cpu_regret [variants, 12] [seq, 1024] [--json FILE]

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "nlohmann/json.hpp"
#include "src/compile/toolchains.h"
#include "src/device/argument_pack.h"
#include "src/device/devices.h"
#include "src/model/kernel_template.h"
#include "src/ops/operation.h"
#include "src/runtime/builtin_templates.h"
#include "src/tune/statistics.h"
#include "src/tune/tuner.h"

namespace whet {
namespace {

template <typename T>
T Must(absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  std::fprintf(stderr, "%s\n", std::string(value.status().message()).c_str());
  std::exit(1);
}

// Compiles each variant once, whatever asks for it.
class CompilingSource final : public VariantSource {
 public:
  CompilingSource(const KernelTemplate& t, const Problem& problem, Device& device)
      : template_(t), problem_(problem), device_(device), toolchains_({}) {}

  std::vector<absl::StatusOr<PreparedVariant>> Prepare(
      const std::vector<Variant>& variants) override {
    std::vector<absl::StatusOr<PreparedVariant>> prepared;
    for (const Variant& v : variants) prepared.push_back(One(v));
    return prepared;
  }

 private:
  absl::StatusOr<PreparedVariant> One(const Variant& v) {
    if (const auto found = done_.find(v.id()); found != done_.end()) return found->second;
    const DeviceIdentity& identity = device_.identity();
    const Specialization s =
        Must(template_.Specialize(problem_, v, identity.target, DeviceLimits::Of(identity)));
    Compiler* compiler = Must(toolchains_.For(identity.target));
    CompileRequest request;
    request.label = v.id();
    request.source = s.source;
    request.entry = s.entry;
    request.target = identity.target;
    if (const auto o = s.options.find(compiler->identity().compiler); o != s.options.end()) {
      request.options = o->second;
    }
    absl::StatusOr<CodeObject> object = compiler->Compile(request);
    if (!object.ok()) return object.status();
    modules_.push_back(Must(device_.LoadModule(object->bytes)));
    PreparedVariant prepared;
    prepared.kernel = Must(modules_.back()->GetKernel(s.entry, s.launch.shared_bytes));
    prepared.geometry = s.launch;
    done_[v.id()] = prepared;
    return prepared;
  }

  const KernelTemplate& template_;
  const Problem& problem_;
  Device& device_;
  Toolchains toolchains_;
  std::vector<std::unique_ptr<Module>> modules_;
  std::map<std::string, PreparedVariant> done_;
};

// Nanoseconds of one launch of each variant: alone for 150 ms after 30 ms of warm-up, in three
// passes of changing order.
std::map<std::string, double> Exhaustive(const TuningRequest& request, Device& device,
                                         CompilingSource& source, double* device_ns) {
  ArgumentPack pack(request.arguments, {});
  for (size_t i = 0; i < request.arguments.size(); ++i) {
    const Argument& a = request.arguments[i];
    if (a.direction == Direction::kScalar) {
      pack.SetScalar(static_cast<int>(i), &request.scalars[i], DTypeBytes(a.dtype));
    } else {
      pack.SetPointer(static_cast<int>(i), request.pointers[i]);
    }
  }
  EventHandle begin = Must(device.CreateEvent()), end = Must(device.CreateEvent());
  std::map<std::string, std::vector<double>> passes;
  std::vector<Variant> order = request.variants;
  for (int pass = 0; pass < 3; ++pass) {
    std::rotate(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(order.size() / 3),
                order.end());
    for (const Variant& v : order) {
      const PreparedVariant p = Must(source.Prepare({v}).front());
      std::vector<double> samples;
      for (double spent = 0; spent < 180e6;) {
        (void)device.Record(begin, nullptr);
        (void)device.Launch(p.kernel, p.geometry, pack.params(), nullptr);
        (void)device.Record(end, nullptr);
        const auto ns = static_cast<double>(Must(device.ElapsedNanoseconds(begin, end)));
        if (spent > 30e6) samples.push_back(ns);
        spent += ns;
        *device_ns += ns;
      }
      passes[v.id()].push_back(Median(samples));
    }
  }
  std::map<std::string, double> times;
  for (auto& [id, medians] : passes) times[id] = Median(medians);
  return times;
}

int Main(int argc, char** argv) {
  size_t most = 12;
  int64_t seq = 1024;
  std::string json_path;
  for (int i = 1, position = 0; i < argc; ++i) {
    if (std::string(argv[i]) == "--json" && i + 1 < argc) {
      json_path = argv[++i];
    } else if (position++ == 0) {
      most = static_cast<size_t>(std::atoi(argv[i]));
    } else {
      seq = std::atoi(argv[i]);
    }
  }
  const KernelTemplate t = Must(KernelTemplate::Parse("attention_forward", BuiltinTemplateFiles()));
  const Operation& op = OperationFor("attention_forward");
  const Problem problem = Must(t.MakeProblem(op.CompleteFields({{"dtype", "bf16"},
                                                                {"batch", int64_t{1}},
                                                                {"heads_q", int64_t{8}},
                                                                {"heads_kv", int64_t{8}},
                                                                {"seq_q", seq},
                                                                {"seq_kv", seq},
                                                                {"dqk", int64_t{128}},
                                                                {"dv", int64_t{128}},
                                                                {"causal", int64_t{1}}})));
  std::unique_ptr<Device> device = Must(OpenDevice(Platform::kCpu, 0, {}));
  const DeviceLimits limits = DeviceLimits::Of(device->identity());
  const OperationTensors tensors =
      Must(MakeTensors(op, problem, Must(t.Arguments(problem)), {}, {}, {.kind = "normal"}));

  TuningRequest request;
  request.variants = Must(t.Variants(problem, device->identity().target, limits));
  std::printf("%zu variants, of which the first %zu take part\n", request.variants.size(),
              std::min(most, request.variants.size()));
  if (request.variants.size() > most) request.variants.resize(most);
  request.reference = Must(t.ReferenceVariant(problem, device->identity().target, limits));
  request.arguments = tensors.arguments;
  request.tolerance = [&t](DType dtype) { return t.Tolerance(dtype); };
  for (size_t i = 0; i < tensors.tensors.size(); ++i) {
    const HostTensor& tensor = tensors.tensors[i];
    uint64_t scalar = 0;
    const bool is_scalar = request.arguments[i].direction == Direction::kScalar;
    if (is_scalar)
      std::copy_n(tensor.data(), tensor.span_bytes(), reinterpret_cast<std::byte*>(&scalar));
    request.scalars.push_back(scalar);
    request.pointers.push_back(is_scalar ? nullptr : tensor.data());
  }

  CompilingSource source(t, problem, *device);
  (void)source.Prepare(request.variants);
  nlohmann::ordered_json report = nlohmann::ordered_json::array();
  for (bool loaded : {false, true}) {
    std::atomic<bool> stop{!loaded};
    std::thread load([&stop] {
      while (!stop.load(std::memory_order_relaxed)) {
      }
    });
    const TuningResult r = Must(Tune(request, *device, source, nullptr));
    double exhaustive_ns = 0;
    const std::map<std::string, double> times =
        Exhaustive(request, *device, source, &exhaustive_ns);
    stop = true;
    load.join();
    double best = 0;
    for (const auto& [id, ns] : times) best = best == 0 ? ns : std::min(best, ns);
    const double regret = times.at(r.winner.id()) / best - 1;
    const double tune_s = absl::ToDoubleSeconds(r.device);
    std::printf(
        "%s: winner %s, %.3f ms, regret %.2f %%, gain over the default %.2f; device time "
        "%.2f s (exhaustive %.2f s)\n",
        loaded ? "one processor kept busy" : "as it is", r.winner.id().c_str(),
        times.at(r.winner.id()) / 1e6, 100 * regret, r.gain, tune_s, exhaustive_ns / 1e9);
    report.push_back({{"loaded", loaded},
                      {"winner", r.winner.id()},
                      {"regret_percent", 100 * regret},
                      {"gain", r.gain},
                      {"device_seconds", tune_s},
                      {"exhaustive_seconds", exhaustive_ns / 1e9},
                      {"exhaustive_ns", times}});
  }
  if (!json_path.empty()) std::ofstream(json_path) << report.dump(1) << "\n";
  return 0;
}

}  // namespace
}  // namespace whet

int main(int argc, char** argv) { return whet::Main(argc, argv); }
