#include "src/runtime/runtime.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cache/layers.h"
#include "src/base/files.h"
#include "src/base/mutex.h"
#include "src/base/parallel.h"
#include "src/base/single_flight.h"
#include "src/runtime/builtin_templates.h"
#include "src/runtime/plan_table.h"
#include "src/runtime/resolver.h"

namespace whet {
namespace {

class DeviceRuntime final : public Runtime {
 public:
  DeviceRuntime(Options options, std::unique_ptr<Device> device)
      : options_(std::move(options)),
        log_(options_.log),
        device_(std::move(device)),
        store_(LayeredCache::Open(LayersOf(options_), log_)),
        toolchains_(options_.toolchains),
        resolver_(*device_, *store_, toolchains_, options_, log_, counters_, background_),
        builtin_files_(BuiltinTemplateFiles()) {
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
    const std::vector<std::string> builtin = OperationNames(builtin_files_);
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
    absl::StatusOr<KernelTemplate> parsed = KernelTemplate::Parse(key, builtin_files_);
    if (!parsed.ok()) return parsed.status();
    return Keep(key, *std::move(parsed));
  }

  std::vector<std::string> TemplateNames() override {
    std::vector<std::string> names = OperationNames(builtin_files_);
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
    for (const auto& [path, text] : builtin_files_) {
      if (path.starts_with("common/")) all.emplace(path, text);
    }
    absl::StatusOr<KernelTemplate> parsed = KernelTemplate::Parse(name, all);
    if (!parsed.ok()) return parsed.status();
    const std::vector<std::string> builtin = OperationNames(builtin_files_);
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
    if (!plan.ok()) return plan.status();
    return (*plan)->Launch(args, stream);
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
      absl::StatusOr<std::unique_ptr<Plan>> plan =
          resolver_.Resolve(kernel_template, problem, args, stream, purpose,
                            [&](absl::string_view stage, int done, int of) {
                              if (progress) progress(problem.text(), stage, done, of);
                            });
      if (!plan.ok()) return plan.status();
      const Resolution& resolution = (*plan)->resolution();
      if (resolution.total > absl::Seconds(1)) {
        log_.Notice(absl::StrCat(problem.text(), " was settled in ",
                                 absl::FormatDuration(resolution.total), ": ", resolution.compiled,
                                 " code objects compiled, ", absl::FormatDuration(resolution.tune),
                                 " of tuning"));
      }
      if (resolved) resolved(resolution);
      return plans_.Insert(key, *std::move(plan));
    });
  }

  const Options options_;
  const Logger log_;
  ResolverCounters counters_;
  const std::unique_ptr<Device> device_;
  const std::unique_ptr<LayeredCache> store_;
  Toolchains toolchains_;
  Resolver resolver_;
  const TemplateFiles builtin_files_;

  PlanTable plans_;
  SingleFlight<std::string, const Plan*> flights_;

  Mutex templates_mutex_;
  std::map<std::string, std::unique_ptr<KernelTemplate>> templates_
      ABSL_GUARDED_BY(templates_mutex_);
  Mutex variant_plans_mutex_;
  std::vector<std::unique_ptr<Plan>> variant_plans_ ABSL_GUARDED_BY(variant_plans_mutex_);
  Mutex sinks_mutex_;
  ProgressSink progress_ ABSL_GUARDED_BY(sinks_mutex_);
  ResolutionSink resolved_ ABSL_GUARDED_BY(sinks_mutex_);
  // The last member: what it runs uses all the others, so it ends before them.
  BackgroundThread background_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Runtime>> Runtime::Open(Options options, Platform platform,
                                                       int device) {
  absl::StatusOr<std::unique_ptr<Device>> opened = OpenDevice(platform, device, options.device);
  if (!opened.ok()) return opened.status();
  auto runtime = std::make_unique<DeviceRuntime>(std::move(options), *std::move(opened));
  if (absl::Status s = runtime->LoadTemplateDirectories(); !s.ok()) return s;
  return runtime;
}

}  // namespace whet
