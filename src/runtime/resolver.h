// From a problem to a plan: DESIGN's "miss -> resolve", one piece for each step.
//
//   Resolver resolver(device, store, toolchains, options, log, counters);
//   absl::StatusOr<Resolved> resolved = resolver.Resolve(kernel_template, problem, args, stream,
//   Purpose::kLaunch, progress);
//
// 1. variant: the stored winner of the nearest class of data -> tuned now (blocking mode, with
// arguments) -> the default; in the online mode the plan's launches go on tuning (live_calls.h)
// 2. code: the winner's own -> any compiler's for the same source -> compiled; refused by the
// driver: rebuilt once
// 3. a variant whose code cannot be had gives way to the next one, and the plan says so
//
// Thread-safe; different problems are resolved side by side. The caller sees to one flight per
// problem.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cache/store.h"
#include "src/base/background.h"
#include "src/base/log.h"
#include "src/base/mutex.h"
#include "src/compile/toolchains.h"
#include "src/device/device.h"
#include "src/model/kernel_template.h"
#include "src/model/key.h"
#include "src/runtime/code_provider.h"
#include "src/runtime/live/live_calls.h"
#include "src/runtime/options.h"
#include "src/runtime/plan/loaded_variants.h"
#include "src/runtime/plan/plan.h"
#include "src/runtime/trial_log.h"
#include "src/tune/signature.h"
#include "src/tune/tuner.h"

namespace whet {

// What a plan is wanted for, which decides how long its making may take.
enum class Purpose : uint8_t {
  kLaunch,   // somebody waits: a blocking first call tunes with little patience
  kPrepare,  // explicit warm-up: tunes thoroughly, in the online mode too
  kTune,     // tunes whatever the caches hold; their winner is only the incumbent
};

struct ResolverCounters {
  CompileCounters compile;
  std::atomic<int64_t> resolutions{0};
  std::atomic<int64_t> tunings{0}, tuning_failures{0};
  std::atomic<int64_t> loads{0}, load_failures{0};
};

// A plan, and what is left to do about it.
struct Resolved {
  std::unique_ptr<Plan> plan;
  // Set where the plan was chosen before the device's identity was settled. Waits until it is, so
  // it is for the background; false when another choice would have been made then.
  std::function<bool()> confirm;
};

class Resolver {
 public:
  Resolver(Device& device, Store& store, Toolchains& toolchains, const Options& options,
           const Logger& log, ResolverCounters& counters, Background& background,
           BackgroundThreads& compiling);

  // Told, in the background, what live tuning has settled.
  void SetSettledSink(std::function<void(const Resolution&)> sink) { settled_ = std::move(sink); }
  LiveCounters live_counters() const;

  // `args` as in Plan::Launch, or null: then nothing is tuned. Errors: those of
  // KernelTemplate::Variants, of the compilers (when no variant's code can be had),
  // FailedPrecondition while `stream` is being captured, NotFound under the offline cache policy and
  // the offline tuning mode.
  // What `confirm` needs must outlive it: the template, and this.
  absl::StatusOr<Resolved> Resolve(const KernelTemplate& kernel_template, const Problem& problem,
                                   void* const* args, StreamHandle stream, Purpose purpose,
                                   const TuningProgress& progress);

  absl::StatusOr<std::unique_ptr<Plan>> ResolveVariant(const KernelTemplate& kernel_template,
                                                       const Problem& problem,
                                                       const Variant& variant);

  // Compiled (or from the caches) and loaded. Also the tuner's way to its variants.
  absl::StatusOr<LoadedVariant> Load(const KernelTemplate& kernel_template, const Problem& problem,
                                     const Variant& variant, absl::string_view code_key);

 private:
  class FetchedVariants;
  struct Choice;
  // What is the same all along while one problem is resolved.
  struct Task {
    const KernelTemplate& kernel_template;
    const Problem& problem;
    void* const* args;
    StreamHandle stream;
    std::vector<Argument> arguments;
    Variant preferred;                           // what is taken where nothing is known
    std::optional<std::vector<Variant>> listed;  // ListVariants makes it
    std::optional<KeyRecord> tuning_key;         // TuningKeyFor makes it
    std::optional<std::string> assumed_key;      // chosen under this one (empty: none had a winner)
    std::optional<DataSignature> signature;      // of the call's inputs, where it was taken
  };

  absl::StatusOr<Task> MakeTask(const KernelTemplate& kernel_template, const Problem& problem,
                                void* const* args, StreamHandle stream) const;
  // All variants of the problem, the default first. Most of what a start without tuning does would
  // be this, so it is done for those alone who need it.
  absl::StatusOr<const std::vector<Variant>*> ListVariants(Task& task) const;
  bool Offers(const Task& task, const Variant& variant) const;
  std::optional<DataSignature> Sign(const Task& task) const;
  TrialLogOptions LogOptions(Task& task) const;
  // Waits for the device's whole identity.
  const KeyRecord& TuningKeyFor(Task& task) const;
  std::vector<KeyRecord> StoredUnderAnyPower(const Task& task) const;
  absl::StatusOr<Choice> ChooseStored(Task& task, Purpose purpose) const;
  Choice ChooseStoredUnder(const KeyRecord& key, Task& task) const;
  bool Confirm(const KernelTemplate& kernel_template, const Problem& problem,
               const std::string& assumed_key) const;
  absl::StatusOr<Choice> ChooseByTuning(Task& task, const std::string& incumbent, Purpose purpose,
                                        const TuningProgress& progress);
  absl::Status ChooseAndLoad(Task& task, Purpose purpose, const TuningProgress& progress,
                             Choice& choice, Resolution& resolution);
  absl::Status LoadChoice(Task& task, Choice& choice, Resolution& resolution);
  absl::StatusOr<LoadedVariant> LoadCode(const KernelTemplate& kernel_template,
                                         const Problem& problem, VariantCode code);
  absl::StatusOr<std::unique_ptr<Plan>> MakePlan(const Problem& problem,
                                                 std::vector<Argument> arguments,
                                                 LoadedVariant loaded, Resolution resolution);
  void AttachLive(Task& task, const Choice& choice, Plan& plan);
  void KeepWinner(const KeyRecord& tuning_key, const TuningResult& result,
                  const std::string& code_key, const std::string& compiler,
                  const std::optional<DataSignature>& signature) const;
  void KeepSettled(const KeyRecord& tuning_key, const LiveOutcome& outcome);
  std::string ToolchainText() const;

  Device& device_;
  Store& store_;
  Toolchains& toolchains_;
  const Options& options_;
  const Logger& log_;
  ResolverCounters& counters_;
  Background& background_;
  BackgroundThreads& compiling_;
  const DeviceLimits limits_;
  CodeProvider code_;
  std::function<void(const Resolution&)> settled_;
  mutable Mutex live_mutex_;
  std::vector<std::unique_ptr<LiveCalls>> live_ ABSL_GUARDED_BY(live_mutex_);
};

}  // namespace whet
