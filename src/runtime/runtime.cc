#include "src/runtime/runtime.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cache/layers.h"
#include "src/base/files.h"
#include "src/base/mutex.h"
#include "src/base/parallel.h"
#include "src/base/single_flight.h"
#include "src/runtime/builtin_templates.h"
#include "src/runtime/plan/plan_table.h"
#include "src/runtime/resolver.h"

namespace whet {
namespace {

using Templates = std::map<std::string, std::unique_ptr<KernelTemplate>>;

// What a runtime stands on. The cache is opened and the templates are read by threads of their own
// meanwhile: one waits for files, the device for its driver, and all together take as long as the slowest.
struct Opened {
  std::unique_ptr<Device> device;
  std::unique_ptr<LayeredCache> cache;
  Templates templates;
};

// The device is opened by the calling thread, whose context it is asked for.
absl::StatusOr<Opened> OpenAll(const Options& options, Platform platform, int device,
                               absl::Span<const absl::string_view> expected) {
  Opened opened;
  const std::function<void()> beside[] = {
      [&] { opened.cache = LayeredCache::Open(LayersOf(options), Logger(options.log)); },
      [&] {
        for (const absl::string_view name : expected) {
          // What is wrong with it is told to whoever asks for it.
          absl::StatusOr<KernelTemplate> parsed =
              KernelTemplate::Parse(std::string(name), BuiltinTemplateFilesOf(name), platform);
          if (!parsed.ok()) continue;
          opened.templates[std::string(name)] =
              std::make_unique<KernelTemplate>(*std::move(parsed));
        }
      }};
  std::vector<std::thread> threads;
  for (const std::function<void()>& open : beside) {
    try {
      threads.emplace_back(open);
    } catch (const std::system_error&) {
      open();  // out of threads
    }
  }
  absl::StatusOr<std::unique_ptr<Device>> open_device =
      OpenDevice(platform, device, options.device);
  for (std::thread& thread : threads) thread.join();
  if (!open_device.ok()) return open_device.status();
  opened.device = *std::move(open_device);
  return opened;
}

// Compilers beside live calls. Where the calls run on the same processors one is enough, and gets what they
// leave over; a host that has many and little to do may use some.
int LiveCompilers(Platform platform) {
  return platform == Platform::kCpu ? 1 : std::clamp(AvailableProcessors() / 4, 1, 4);
}

class DeviceRuntime final : public Runtime {
 public:
  DeviceRuntime(Options options, Opened opened)
      : options_(std::move(options)),
        log_(options_.log),
        device_(std::move(opened.device)),
        store_(std::move(opened.cache)),
        toolchains_(options_.toolchains),
        resolver_(*device_, *store_, toolchains_, options_, log_, counters_, background_,
                  compiling_),
        templates_(std::move(opened.templates)) {
    resolver_.SetSettledSink([this](const Resolution& resolution) {
      ResolutionSink sink;
      {
        MutexLock lock(sinks_mutex_);
        sink = resolved_;
      }
      if (sink) sink(resolution);
    });
  }

  absl::Status LoadTemplateDirectories() {
    for (const std::string& directory : options_.template_directories) {
      absl::StatusOr<TemplateFiles> files = ReadTemplateDirectory(directory);
      if (!files.ok()) return files.status();
      for (const std::string& name : OperationNames(*files)) {
        if (auto added = AddTemplate(name, *files); !added.ok()) return added.status();
      }
    }
    return absl::OkStatus();
  }

  Device& device() override { return *device_; }
  Store& store() override { return *store_; }
  Toolchains& toolchains() override { return toolchains_; }
  const Options& options() const override { return options_; }

  absl::StatusOr<const KernelTemplate*> FindTemplate(absl::string_view name) override {
    const std::string key(name);
    MutexLock lock(templates_mutex_);
    if (const auto it = templates_.find(key); it != templates_.end()) return it->second.get();
    const std::vector<std::string> builtin = BuiltinOperationNames();
    if (std::find(builtin.begin(), builtin.end(), key) == builtin.end()) {
      std::vector<std::string> known = builtin;
      for (const auto& [added, unused] : templates_) known.push_back(added);
      std::sort(known.begin(), known.end());
      known.erase(std::unique(known.begin(), known.end()), known.end());
      return absl::NotFoundError(absl::StrCat("there is no operation \"", name, "\"; known are ",
                                              absl::StrJoin(known, ", ")));
    }
    // Parsing takes a millisecond or so and waits for nothing; a lock over it is shorter than a
    // flight.
    absl::StatusOr<KernelTemplate> parsed = KernelTemplate::Parse(key, BuiltinTemplateFilesOf(key));
    if (!parsed.ok()) return parsed.status();
    return Keep(key, *std::move(parsed));
  }

  std::vector<std::string> TemplateNames() override {
    std::vector<std::string> names = BuiltinOperationNames();
    MutexLock lock(templates_mutex_);
    for (const auto& [name, unused] : templates_) names.push_back(name);
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
  }

  absl::StatusOr<const KernelTemplate*> AddTemplate(const std::string& name,
                                                    const TemplateFiles& files) override {
    // The library's common/ headers are there for every template; a template's own files come
    // first.
    TemplateFiles all = files;
    all.merge(BuiltinTemplateFilesOf("common"));
    absl::StatusOr<KernelTemplate> parsed = KernelTemplate::Parse(name, all);
    if (!parsed.ok()) return parsed.status();
    const std::vector<std::string> builtin = BuiltinOperationNames();
    MutexLock lock(templates_mutex_);
    if (templates_.contains(name) ||
        std::find(builtin.begin(), builtin.end(), name) != builtin.end()) {
      return absl::AlreadyExistsError(
          absl::StrCat("cannot add the operation ", name, ": there is one of that name already"));
    }
    return Keep(name, *std::move(parsed));
  }

  absl::StatusOr<const Plan*> Prepare(const KernelTemplate& kernel_template, const Problem& problem,
                                      void* const* args, StreamHandle stream) override {
    const PlanKey key{&kernel_template, problem.packed()};
    if (const Plan* plan = plans_.Find(key)) return &plan->Current();
    return ResolveOnce(kernel_template, problem, args, stream, Purpose::kPrepare);
  }

  absl::StatusOr<const Plan*> Tune(const KernelTemplate& kernel_template, const Problem& problem,
                                   void* const* args, StreamHandle stream) override {
    return ResolveOnce(kernel_template, problem, args, stream, Purpose::kTune);
  }

  absl::StatusOr<const Plan*> PrepareVariant(const KernelTemplate& kernel_template,
                                             const Problem& problem,
                                             const Variant& variant) override {
    absl::StatusOr<std::unique_ptr<Plan>> plan =
        resolver_.ResolveVariant(kernel_template, problem, variant);
    if (!plan.ok()) return plan.status();
    MutexLock lock(variant_plans_mutex_);
    variant_plans_.push_back(*std::move(plan));
    return variant_plans_.back().get();
  }

  absl::Status Launch(const KernelTemplate& kernel_template, const Problem& problem,
                      void* const* args, StreamHandle stream) override {
    if (const Plan* plan = plans_.Find({&kernel_template, problem.packed()})) {
      return plan->Launch(args, stream);
    }
    return LaunchFirst(kernel_template, problem, args, stream);
  }

  absl::Status Launch(const KernelTemplate& kernel_template, absl::Span<const int64_t> fields,
                      void* const* args, StreamHandle stream) override {
    if (const Plan* plan = plans_.Find({&kernel_template, fields})) {
      return plan->Launch(args, stream);
    }
    absl::StatusOr<Problem> problem = kernel_template.MakeProblem(fields);
    if (!problem.ok()) return problem.status();
    return LaunchFirst(kernel_template, *problem, args, stream);
  }

  RuntimeCounters counters() const override {
    RuntimeCounters result;
    result.resolutions = counters_.resolutions;
    result.compiles = counters_.compile.compiles;
    result.compile_failures = counters_.compile.failures;
    result.tunings = counters_.tunings;
    result.tuning_failures = counters_.tuning_failures;
    result.loads = counters_.loads;
    result.load_failures = counters_.load_failures;
    const LiveCounters live = resolver_.live_counters();
    result.live_tunings = live.rounds;
    result.live_trials = live.admissions;
    result.drift_checks = live.checks;
    result.drifts = live.drifts;
    result.store = store_->counters();
    result.layers = store_->layer_counters();
    result.lock_waits = counters_.compile.lock_waits;
    result.lock_wait_ns = counters_.compile.lock_wait_ns;
    result.made_by_others = counters_.compile.found_made;
    result.without_lock = counters_.compile.without_lock;
    return result;
  }

  void SetProgressSink(ProgressSink sink) override {
    MutexLock lock(sinks_mutex_);
    progress_ = std::move(sink);
  }

  void SetResolutionSink(ResolutionSink sink) override {
    MutexLock lock(sinks_mutex_);
    resolved_ = std::move(sink);
  }

 private:
  const KernelTemplate* Keep(const std::string& name, KernelTemplate parsed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(templates_mutex_) {
    auto& slot = templates_[name];
    slot = std::make_unique<KernelTemplate>(std::move(parsed));
    return slot.get();
  }

  absl::Status LaunchFirst(const KernelTemplate& kernel_template, const Problem& problem,
                           void* const* args, StreamHandle stream) {
    const absl::StatusOr<const Plan*> plan =
        ResolveOnce(kernel_template, problem, args, stream, Purpose::kLaunch);
    const absl::Status launched = plan.ok() ? (*plan)->Launch(args, stream) : plan.status();
    PostConfirmations();
    return launched;
  }

  // After the launch: what asks the device for its identity holds up the driver's other calls.
  void PostConfirmations() {
    std::vector<std::function<void()>> confirmations;
    {
      MutexLock lock(confirmations_mutex_);
      confirmations.swap(confirmations_);
    }
    for (std::function<void()>& confirmation : confirmations) {
      background_.Post(std::move(confirmation));
    }
  }

  absl::StatusOr<const Plan*> ResolveOnce(const KernelTemplate& kernel_template,
                                          const Problem& problem, void* const* args,
                                          StreamHandle stream, Purpose purpose) {
    const PlanKey key{&kernel_template, problem.packed()};
    return flights_.Do(problem.text(), [&]() -> absl::StatusOr<const Plan*> {
      // Somebody may have landed between the caller's look and this flight.
      const Plan* const there = plans_.Find(key);
      if (there != nullptr && purpose != Purpose::kTune) return there;
      ProgressSink progress;
      ResolutionSink resolved;
      {
        MutexLock lock(sinks_mutex_);
        progress = progress_;
        resolved = resolved_;
      }
      absl::StatusOr<Resolved> settled =
          resolver_.Resolve(kernel_template, problem, args, stream, purpose,
                            [&](absl::string_view stage, int done, int of) {
                              if (progress) progress(problem.text(), stage, done, of);
                            });
      if (!settled.ok()) return settled.status();
      const Resolution& resolution = settled->plan->resolution();
      if (resolution.total > absl::Seconds(1)) {
        log_.Notice(absl::StrCat(problem.text(), " was settled in ",
                                 absl::FormatDuration(resolution.total), ": ", resolution.compiled,
                                 " code objects compiled, ", absl::FormatDuration(resolution.tune),
                                 " of tuning"));
      }
      if (resolved) resolved(resolution);
      const Plan* const plan = plans_.Insert(key, std::move(settled->plan));
      if (settled->confirm) {
        // A plan that is not confirmed gives right results; the next call settles the problem anew.
        MutexLock lock(confirmations_mutex_);
        confirmations_.push_back([this, plan, &kernel_template, fields = problem.packed(),
                                  confirm = std::move(settled->confirm)] {
          if (!confirm()) plans_.Forget({&kernel_template, fields}, plan);
        });
      }
      return plan;
    });
  }

  const Options options_;
  const Logger log_;
  ResolverCounters counters_;
  const std::unique_ptr<Device> device_;
  const std::unique_ptr<LayeredCache> store_;
  Toolchains toolchains_;
  Resolver resolver_;

  PlanTable plans_;
  SingleFlight<std::string, const Plan*> flights_;

  Mutex templates_mutex_;
  Templates templates_ ABSL_GUARDED_BY(templates_mutex_);
  Mutex variant_plans_mutex_;
  std::vector<std::unique_ptr<Plan>> variant_plans_ ABSL_GUARDED_BY(variant_plans_mutex_);
  Mutex confirmations_mutex_;
  std::vector<std::function<void()>> confirmations_ ABSL_GUARDED_BY(confirmations_mutex_);
  Mutex sinks_mutex_;
  ProgressSink progress_ ABSL_GUARDED_BY(sinks_mutex_);
  ResolutionSink resolved_ ABSL_GUARDED_BY(sinks_mutex_);
  // The last member: what it runs uses all the others, so it ends before them.
  BackgroundThreads background_;
  BackgroundThreads compiling_{
      {.threads = LiveCompilers(device_->early_identity().target.platform), .idle = true}};
};

}  // namespace

absl::StatusOr<std::unique_ptr<Runtime>> Runtime::Open(
    Options options, Platform platform, int device, absl::Span<const absl::string_view> expected) {
  absl::StatusOr<Opened> opened = OpenAll(options, platform, device, expected);
  if (!opened.ok()) return opened.status();
  auto runtime = std::make_unique<DeviceRuntime>(std::move(options), *std::move(opened));
  if (absl::Status s = runtime->LoadTemplateDirectories(); !s.ok()) return s;
  return runtime;
}

}  // namespace whet
