// How far from the best is the tuner's pick, on this processor with a real attention space?
//
// The winner is held against exhaustive timing in the same run: every variant alone, several passes in changing order.
// That ranking picks the four that may be better; then all five launch by turns, one launch each, forth and back, and a
// ratio is the median of the rounds' ratios. Neighbours of this machine change its speed by tens of percent for tens of
// launches, so two launches in a row share it, and times that were taken apart do not.
//
// The best rival is chosen on one half of the rounds and judged on the other, for the fastest of five noisy times always
// looks better than it is. The winner runs twice in every round: the ratio of the two is the bench's own error.
//
// By wall time, over launches that no other program interrupted where those are most; and by processor time of all
// threads, which interruptions are no part of: where a processor is kept busy, wall time says when the scheduler let the
// launch run, and takes ten times as many rounds to show one percent.
//
// Once with the machine as it is, once with another process that keeps one processor busy.
//
//   cpu_regret [variants, 12] [seq, 1024] [--seconds N, 60: at most, for the rounds of each] [--json FILE]

#include <signal.h>
#include <sys/prctl.h>
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

  struct Sample {
    double wall_ns = 0, cpu_ns = 0;
    bool disturbed = false;
  };
  Sample Once(const Variant& v) {
    const PreparedVariant p = Must(source_.Prepare({v}).front());
    const ProcessorWork before = *device_.Work();
    (void)device_.Record(begin_, nullptr);
    (void)device_.Launch(p.kernel, p.geometry, pack_.params(), nullptr);
    (void)device_.Record(end_, nullptr);
    const ProcessorWork after = *device_.Work();
    const auto ns = static_cast<double>(Must(device_.ElapsedNanoseconds(begin_, end_)));
    device_ns_ += ns;
    return {.wall_ns = ns,
            .cpu_ns = static_cast<double>(after.cpu_ns - before.cpu_ns),
            .disturbed = after.interruptions != before.interruptions};
  }

  // Nanoseconds of one launch, of those that take `time_ns` together, after `warm_ns` of them.
  double Time(const Variant& v, double warm_ns, double time_ns) {
    std::vector<double> samples;
    for (double spent = 0; spent < warm_ns + time_ns || samples.empty();) {
      const double ns = Once(v).wall_ns;
      if (spent >= warm_ns) samples.push_back(ns);
      spent += ns;
    }
    return Median(samples);
  }
  double device_ns() const { return device_ns_; }

 private:
  Device& device_;
  CompilingSource& source_;
  ArgumentPack pack_;
  EventHandle begin_ = nullptr, end_ = nullptr;
  double device_ns_ = 0;
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

using Samples = std::vector<Launcher::Sample>;  // one per round

// What one contender took over another.
struct Paired {
  double ratio = 1;
  Interval interval{1, 1};
  double width() const { return (interval.high - interval.low) / 2; }
};

// Rounds in groups of two (forth and back); `half` 0 and 1 are every other group.
Paired RatioOf(const Samples& a, const Samples& b, int half, bool by_cpu, bool undisturbed_only) {
  std::vector<double> ratios;
  for (size_t r = 0; r < a.size(); ++r) {
    if (static_cast<int>(r / 2 % 2) != half) continue;
    if (undisturbed_only && !by_cpu && (a[r].disturbed || b[r].disturbed)) continue;
    ratios.push_back(by_cpu ? a[r].cpu_ns / b[r].cpu_ns : a[r].wall_ns / b[r].wall_ns);
  }
  return {.ratio = Median(ratios), .interval = MedianInterval(ratios)};
}

// The contenders' launches by turns; the first two are the same one.
class Rounds {
 public:
  explicit Rounds(size_t contenders) : samples_(contenders) {}

  void One(const std::vector<Variant>& contenders, Launcher& launcher) {
    const bool forth = rounds_++ % 2 == 0;
    for (size_t k = 0; k < contenders.size(); ++k) {
      const size_t i = forth ? k : contenders.size() - 1 - k;
      samples_[i].push_back(launcher.Once(contenders[i]));
      undisturbed_ += !samples_[i].back().disturbed;
    }
  }
  double undisturbed_share() const {
    return static_cast<double>(undisturbed_) / static_cast<double>(rounds_ * samples_.size());
  }
  Paired Ratio(size_t i, size_t j, int half, bool by_cpu) const {
    return RatioOf(samples_[i], samples_[j], half, by_cpu, undisturbed_share() >= 0.5);
  }
  // Chosen on one half.
  size_t Best(bool by_cpu) const {
    size_t best = 0;
    for (size_t i = 2; i < samples_.size(); ++i) {
      if (best == 0 ? Ratio(i, 0, 0, by_cpu).ratio < 1 : Ratio(i, best, 0, by_cpu).ratio < 1) {
        best = i;
      }
    }
    return best;
  }
  // Judged on the other.
  Paired Regret(bool by_cpu) const {
    const size_t best = Best(by_cpu);
    return best == 0 ? Paired{} : Ratio(0, best, 1, by_cpu);
  }
  Paired Itself(bool by_cpu) const { return Ratio(0, 1, 1, by_cpu); }
  size_t rounds() const { return rounds_; }

 private:
  std::vector<Samples> samples_;
  size_t rounds_ = 0, undisturbed_ = 0;
};

int Main(int argc, char** argv) {
  size_t most = 12;
  int64_t seq = 1024;
  double most_s = 60;
  std::string json_path;
  for (int i = 1, position = 0; i < argc; ++i) {
    if (std::string(argv[i]) == "--json" && i + 1 < argc) {
      json_path = argv[++i];
    } else if (std::string(argv[i]) == "--seconds" && i + 1 < argc) {
      most_s = std::atof(argv[++i]);
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
    std::vector<Variant> contenders = {r.winner, r.winner};
    contenders.insert(contenders.end(), rivals.begin(), rivals.end());
    Rounds rounds(contenders.size());
    const double before_ns = launcher.device_ns();
    while (launcher.device_ns() - before_ns < most_s * 1e9) {
      rounds.One(contenders, launcher);
      if (rounds.rounds() % 100 != 0) continue;
      // Half a percent either way will do.
      double widest = 0;
      for (size_t i = 1; i < contenders.size(); ++i) {
        widest = std::max(widest, rounds.Ratio(0, i, 1, /*by_cpu=*/false).width());
      }
      if (widest < 0.005) break;
    }
    double least = 0;
    for (const auto& [id, ns] : times) least = least == 0 ? ns : std::min(least, ns);
    const double apart = times.at(r.winner.id()) / least - 1;
    std::printf(
        "%s: winner %s, %.3f ms, %.2fx the default; tuning %.2f s of device time (timing all alone "
        "%.2f s)\n",
        loaded ? "one processor kept busy" : "as it is", r.winner.id().c_str(),
        times.at(r.winner.id()) / 1e6, r.gain, absl::ToDoubleSeconds(r.device),
        exhaustive_ns / 1e9);
    nlohmann::ordered_json entry = {{"loaded", loaded},
                                    {"winner", r.winner.id()},
                                    {"gain", r.gain},
                                    {"device_seconds", absl::ToDoubleSeconds(r.device)},
                                    {"exhaustive_seconds", exhaustive_ns / 1e9},
                                    {"regret_by_times_apart_percent", 100 * apart},
                                    {"rounds", rounds.rounds()},
                                    {"undisturbed_percent", 100 * rounds.undisturbed_share()},
                                    {"exhaustive_ns", times}};
    for (const bool by_cpu : {false, true}) {
      const Paired regret = rounds.Regret(by_cpu), itself = rounds.Itself(by_cpu);
      const std::string best = contenders[rounds.Best(by_cpu)].id();
      std::printf(
          "  by %s time: regret %.2f %% (%.2f to %.2f %%; the winner against itself %.2f, %.2f to "
          "%.2f %%), best %s\n",
          by_cpu ? "processor" : "wall", 100 * (regret.ratio - 1), 100 * (regret.interval.low - 1),
          100 * (regret.interval.high - 1), 100 * (itself.ratio - 1),
          100 * (itself.interval.low - 1), 100 * (itself.interval.high - 1), best.c_str());
      entry[by_cpu ? "by_processor_time" : "by_wall_time"] = {
          {"regret_percent", 100 * (regret.ratio - 1)},
          {"interval", {100 * (regret.interval.low - 1), 100 * (regret.interval.high - 1)}},
          {"itself_percent", 100 * (itself.ratio - 1)},
          {"itself_interval", {100 * (itself.interval.low - 1), 100 * (itself.interval.high - 1)}},
          {"best", best}};
    }
    std::printf(
        "  %zu rounds, %.0f %% of the launches undisturbed; regret by times taken apart %.2f %%\n",
        rounds.rounds(), 100 * rounds.undisturbed_share(), 100 * apart);
    std::fflush(stdout);
    report.push_back(std::move(entry));
  }
  if (!json_path.empty()) std::ofstream(json_path) << report.dump(1) << "\n";
  return 0;
}

}  // namespace
}  // namespace whet

int main(int argc, char** argv) { return whet::Main(argc, argv); }
