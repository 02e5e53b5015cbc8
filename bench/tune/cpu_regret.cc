// How far from the best is the tuner's pick, on this processor with a real attention space?
//
// The winner is held against exhaustive timing in the same run: every variant alone, several passes
// in changing order. That ranking picks the few that may be better than the winner; each of them is
// then timed against the winner by turns, and the regret is the median of the turns' ratios. Times
// that were taken minutes apart say little on a machine with neighbours, and the smallest of
// twelve such times always looks better than any winner. For the same reason the winner is timed against itself: that ratio
// is the bench's own error, and a regret below it is none.
//
// A turn's time is the lower quartile of its launches, of those that no other program interrupted where there are
// enough (the process's involuntary context switches stay the same over them): what others take from a launch only
// makes it longer, and is no property of the variant. Where the winner and a rival swap places from turn to turn, the
// regret's interval says so: it is "proven" only as far as the interval is above zero.
//
// Once with the machine as it is, once with another process that keeps one processor busy.
//
//   cpu_regret [variants, 12] [seq, 1024] [--json FILE]

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/tune/bench_support.h"
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

// Launches of one variant after another on the same tensors.
class Launcher {
 public:
  Launcher(const TuningRequest& request, Device& device, CompilingSource& source)
      : device_(device), source_(source), pack_(request.arguments, {}) {
    for (size_t i = 0; i < request.arguments.size(); ++i) {
      const Argument& a = request.arguments[i];
      if (a.direction == Direction::kScalar) {
        pack_.SetScalar(static_cast<int>(i), &request.scalars[i], DTypeBytes(a.dtype));
      } else {
        pack_.SetPointer(static_cast<int>(i), request.pointers[i]);
      }
    }
    begin_ = Must(device.CreateEvent());
    end_ = Must(device.CreateEvent());
  }
  ~Launcher() {
    device_.DestroyEvent(begin_);
    device_.DestroyEvent(end_);
  }

  // Nanoseconds of one launch, of those that take `time_ns` together, after `warm_ns` of them.
  double Time(const Variant& v, double warm_ns, double time_ns) {
    const PreparedVariant p = Must(source_.Prepare({v}).front());
    std::vector<double> samples, undisturbed;
    for (double spent = 0; spent < warm_ns + time_ns || samples.empty();) {
      const int64_t switches = Interruptions();
      (void)device_.Record(begin_, nullptr);
      (void)device_.Launch(p.kernel, p.geometry, pack_.params(), nullptr);
      (void)device_.Record(end_, nullptr);
      const auto ns = static_cast<double>(Must(device_.ElapsedNanoseconds(begin_, end_)));
      if (spent >= warm_ns) {
        samples.push_back(ns);
        if (Interruptions() == switches) undisturbed.push_back(ns);
      }
      spent += ns;
      device_ns_ += ns;
    }
    launches_ += static_cast<int64_t>(samples.size());
    undisturbed_ += static_cast<int64_t>(undisturbed.size());
    return Quantile(undisturbed.size() >= kEnough ? undisturbed : samples, 0.25);
  }
  double device_ns() const { return device_ns_; }
  double undisturbed_share() const {
    return static_cast<double>(undisturbed_) / static_cast<double>(std::max<int64_t>(1, launches_));
  }

 private:
  Device& device_;
  CompilingSource& source_;
  ArgumentPack pack_;
  EventHandle begin_ = nullptr, end_ = nullptr;
  static constexpr size_t kEnough = 4;
  // How often the kernel took a processor away from a thread of this process.
  static int64_t Interruptions() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_nivcsw;
  }

  double device_ns_ = 0;
  int64_t launches_ = 0, undisturbed_ = 0;
};

// Another program that keeps one processor busy for as long as this lives.
class Load {
 public:
  explicit Load(bool there) : pid_(there ? fork() : -1) {
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (volatile uint64_t count = 0;;) count = count + 1;
  }
  ~Load() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

 private:
  const pid_t pid_;
};

// Nanoseconds of one launch of each variant: alone for 150 ms after 30 ms of warm-up, in three
// passes of changing order; the median of the passes.
std::map<std::string, double> Exhaustive(const TuningRequest& request, Launcher& launcher) {
  std::map<std::string, std::vector<double>> passes;
  std::vector<Variant> order = request.variants;
  for (int pass = 0; pass < 3; ++pass) {
    std::rotate(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(order.size() / 3),
                order.end());
    for (const Variant& v : order) {
      passes[v.id()].push_back(launcher.Time(v, 30e6, 150e6));
    }
  }
  std::map<std::string, double> times;
  for (auto& [id, medians] : passes) times[id] = Median(medians);
  return times;
}

// How much slower `winner` is than `other`, by turns of 20 ms: the ratio's median and its interval.
struct Paired {
  double ratio = 1;
  Interval interval;
};
Paired ByTurns(const Variant& winner, const Variant& other, Launcher& launcher) {
  std::vector<double> ratios;
  for (int turn = 0; turn < 40; ++turn) {
    // A B, then B A: what one leaves in the caches and the clock evens out.
    const bool first = turn % 2 == 0;
    const double a = launcher.Time(first ? winner : other, 3e6, 20e6);
    const double b = launcher.Time(first ? other : winner, 3e6, 20e6);
    ratios.push_back(first ? a / b : b / a);
  }
  return {.ratio = Median(ratios), .interval = MedianInterval(ratios)};
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
  const Problem problem = AttentionProblem(t, /*heads=*/8, seq);
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
    const Load load(loaded);
    const TuningResult r = Must(Tune(request, *device, source, nullptr));
    Launcher launcher(request, *device, source);
    const std::map<std::string, double> times = Exhaustive(request, launcher);
    const double exhaustive_ns = launcher.device_ns();
    // The four that looked best beside the winner.
    std::vector<Variant> rivals = request.variants;
    std::erase_if(rivals, [&](const Variant& v) { return v == r.winner; });
    std::sort(rivals.begin(), rivals.end(), [&](const Variant& a, const Variant& b) {
      return times.at(a.id()) < times.at(b.id());
    });
    if (rivals.size() > 4) rivals.resize(4);
    const Paired itself = ByTurns(r.winner, r.winner, launcher);
    double regret = 0, low = 0, high = 0;
    std::string best = r.winner.id();
    nlohmann::ordered_json pairs = nlohmann::ordered_json::array();
    for (const Variant& rival : rivals) {
      const Paired paired = ByTurns(r.winner, rival, launcher);
      pairs.push_back({{"rival", rival.id()},
                       {"winner_over_rival", paired.ratio},
                       {"low", paired.interval.low},
                       {"high", paired.interval.high}});
      if (paired.ratio - 1 <= regret) continue;
      regret = paired.ratio - 1;
      low = paired.interval.low - 1;
      high = paired.interval.high - 1;
      best = rival.id();
    }
    double least = 0;
    for (const auto& [id, ns] : times) least = least == 0 ? ns : std::min(least, ns);
    const double apart = times.at(r.winner.id()) / least - 1;
    std::printf(
        "%s: winner %s, %.3f ms; regret by turns %.2f %% (%.2f to %.2f %%; against itself %.2f, "
        "%.2f "
        "to %.2f %%), best %s; by times taken apart %.2f %%; gain over the default %.2f; device "
        "time "
        "%.2f s (exhaustive %.2f s); %.0f %% of the launches undisturbed\n",
        loaded ? "one processor kept busy" : "as it is", r.winner.id().c_str(),
        times.at(r.winner.id()) / 1e6, 100 * regret, 100 * std::max(0.0, low), 100 * high,
        100 * (itself.ratio - 1), 100 * (itself.interval.low - 1), 100 * (itself.interval.high - 1),
        best.c_str(), 100 * apart, r.gain, absl::ToDoubleSeconds(r.device), exhaustive_ns / 1e9,
        100 * launcher.undisturbed_share());
    std::fflush(stdout);
    report.push_back({{"loaded", loaded},
                      {"winner", r.winner.id()},
                      {"regret_percent", 100 * regret},
                      {"regret_at_least_percent", 100 * std::max(0.0, low)},
                      {"regret_at_most_percent", 100 * high},
                      {"against_itself_percent", 100 * (itself.ratio - 1)},
                      {"against_itself_interval", {itself.interval.low, itself.interval.high}},
                      {"regret_by_times_apart_percent", 100 * apart},
                      {"undisturbed_launches_percent", 100 * launcher.undisturbed_share()},
                      {"pairs", pairs},
                      {"gain", r.gain},
                      {"device_seconds", absl::ToDoubleSeconds(r.device)},
                      {"exhaustive_seconds", exhaustive_ns / 1e9},
                      {"exhaustive_ns", times}});
  }
  if (!json_path.empty()) std::ofstream(json_path) << report.dump(1) << "\n";
  return 0;
}

}  // namespace
}  // namespace whet

int main(int argc, char** argv) { return whet::Main(argc, argv); }
