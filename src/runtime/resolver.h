// From a problem to a plan: DESIGN's "miss -> resolve", one piece for each step.
//
//   Resolver resolver(device, store, toolchains, options, log, counters);
//   absl::StatusOr<std::unique_ptr<Plan>> plan = resolver.Resolve(kernel_template, problem, args,
//   stream, /*retune=*/false);
//
// 1. variant: the stored winner -> tuned now (blocking mode, with arguments) -> the default
// 2. code: the winner's own -> any compiler's for the same source -> compiled; refused by the
// driver: rebuilt once
// 3. a variant whose code cannot be had gives way to the next one, and the plan says so
//
// Thread-safe; different problems are resolved side by side. The caller sees to one flight per
// problem.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cache/store.h"
#include "src/base/log.h"
#include "src/compile/toolchains.h"
#include "src/device/device.h"
#include "src/model/kernel_template.h"
#include "src/runtime/code_provider.h"
#include "src/runtime/options.h"
#include "src/runtime/plan.h"
#include "src/tune/tuner.h"

namespace whet {

struct ResolverCounters {
  CompileCounters compile;
  std::atomic<int64_t> resolutions{0};
  std::atomic<int64_t> tunings{0}, tuning_failures{0};
  std::atomic<int64_t> loads{0}, load_failures{0};
};

// A variant that is ready to run.
struct LoadedVariant {
  std::shared_ptr<Module> module;
  PreparedVariant prepared;
  std::string code_key;
  std::string compiler;
  Origin code_origin = Origin::kNone;
};

class Resolver {
 public:
  Resolver(Device& device, Store& store, Toolchains& toolchains, const Options& options,
           const Logger& log, ResolverCounters& counters);

  // `args` as in Plan::Launch, or null: then nothing is tuned. With `retune` the caches' winner is
  // only the incumbent. Errors: those of KernelTemplate::Variants, of the compilers (when no
  // variant's code can be had), FailedPrecondition while `stream` is being captured, NotFound under
  // the offline policy.
  absl::StatusOr<std::unique_ptr<Plan>> Resolve(const KernelTemplate& kernel_template,
                                                const Problem& problem, void* const* args,
                                                StreamHandle stream, bool retune,
                                                const TuningProgress& progress);

  absl::StatusOr<std::unique_ptr<Plan>> ResolveVariant(const KernelTemplate& kernel_template,
                                                       const Problem& problem,
                                                       const Variant& variant);

  // Compiled (or from the caches) and loaded. Also the tuner's way to its variants.
  absl::StatusOr<LoadedVariant> Load(const KernelTemplate& kernel_template, const Problem& problem,
                                     const Variant& variant, absl::string_view code_key);

 private:
  struct Choice;
  Choice ChooseStored(const std::string& tuning_key, const std::vector<Variant>& variants) const;
  absl::StatusOr<Choice> ChooseByTuning(const KernelTemplate& kernel_template,
                                        const Problem& problem, const std::string& tuning_key,
                                        const std::vector<Variant>& variants,
                                        const std::string& incumbent, void* const* args,
                                        StreamHandle stream, const TuningProgress& progress);
  absl::StatusOr<std::unique_ptr<Plan>> MakePlan(const Problem& problem,
                                                 std::vector<Argument> arguments,
                                                 LoadedVariant loaded, Resolution resolution);

  Device& device_;
  Store& store_;
  const Options& options_;
  const Logger& log_;
  ResolverCounters& counters_;
  const DeviceLimits limits_;
  CodeProvider code_;
};

}  // namespace whet
