// The runtime: one device, its templates, its caches. What an application embeds, under the C API.
//
//   std::unique_ptr<Runtime> rt = *Runtime::Open(options, Platform::kCpu, /*device=*/0);
//   const KernelTemplate* t = *rt->FindTemplate("rms_norm");
//   Problem p = *t->MakeProblem({{"dtype", "bf16"}, {"rows", 512}, {"columns", 4096}});
//   void* args[] = {&x, &residual, &weight, &y, &epsilon};
//   absl::Status s = rt->Launch(*t, p, args, stream);        // first call: compiles, tunes,
//   stores; then: a table lookup and a launch
//
// Thread-safe. Calls for different problems never wait for each other; calls for one problem that
// is being resolved wait for that one flight.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "cache/store.h"
#include "src/device/device.h"
#include "src/model/kernel_template.h"
#include "src/runtime/options.h"
#include "src/runtime/plan/plan.h"

namespace whet {

struct RuntimeCounters {
  int64_t resolutions = 0;
  int64_t compiles = 0, compile_failures = 0;
  int64_t tunings = 0, tuning_failures = 0;
  int64_t loads = 0, load_failures = 0;
  int64_t live_tunings = 0;  // rounds on live calls that have settled
  int64_t live_trials = 0;   // launches on scratch beside live calls
  int64_t drift_checks = 0, drifts = 0;
  StoreCounters store;
  LayerCounters layers;
  // Compiles of other processes; see CompileCounters.
  int64_t lock_waits = 0, lock_wait_ns = 0, made_by_others = 0, without_lock = 0;
};

// What is going on during a resolution: "compile" 3 of 16, "screen" ... For progress lines.
using ProgressSink =
    std::function<void(absl::string_view problem, absl::string_view stage, int done, int of)>;

// One finished resolution.
using ResolutionSink = std::function<void(const Resolution&)>;

class Runtime {
 public:
  // Unavailable when the device cannot be opened; an unusable cache is no error.
  // The built-in operations in `expected` are read meanwhile, which would else take a millisecond
  // at their first use; of these, only what is for `platform`: CompileVariants for another one finds
  // no kernel.
  static absl::StatusOr<std::unique_ptr<Runtime>> Open(
      Options options, Platform platform, int device,
      absl::Span<const absl::string_view> expected = {});
  virtual ~Runtime() = default;

  virtual Device& device() = 0;
  virtual Store& store() = 0;
  virtual Toolchains& toolchains() = 0;
  virtual const Options& options() const = 0;

  // Built-in or added. NotFound lists the known names. The pointer lives as long as the runtime.
  virtual absl::StatusOr<const KernelTemplate*> FindTemplate(absl::string_view name) = 0;
  virtual std::vector<std::string> TemplateNames() = 0;
  // AlreadyExists when the name is taken.
  virtual absl::StatusOr<const KernelTemplate*> AddTemplate(const std::string& name,
                                                            const TemplateFiles& files) = 0;

  // Settles the problem without launching it: from the caches, or by compiling and (blocking and
  // online tuning, with `args`) tuning thoroughly on the caller's tensors. With args == nullptr
  // nothing is tuned.
  // FailedPrecondition while `stream` is being captured and there is no plan yet.
  virtual absl::StatusOr<const Plan*> Prepare(const KernelTemplate& kernel_template,
                                              const Problem& problem, void* const* args,
                                              StreamHandle stream) = 0;
  // Tunes whatever the caches hold, and stores the outcome by the rule for incumbents.
  virtual absl::StatusOr<const Plan*> Tune(const KernelTemplate& kernel_template,
                                           const Problem& problem, void* const* args,
                                           StreamHandle stream) = 0;
  // A plan for one given variant, never stored as a winner: for measuring and debugging.
  virtual absl::StatusOr<const Plan*> PrepareVariant(const KernelTemplate& kernel_template,
                                                     const Problem& problem,
                                                     const Variant& variant) = 0;

  // The plan table's lookup, and the launch. A problem seen before costs no lock and no allocation.
  virtual absl::Status Launch(const KernelTemplate& kernel_template, const Problem& problem,
                              void* const* args, StreamHandle stream) = 0;

  // The same for a problem given as its packed fields (Problem::packed).
  virtual absl::Status Launch(const KernelTemplate& kernel_template,
                              absl::Span<const int64_t> fields, void* const* args,
                              StreamHandle stream) = 0;

  virtual RuntimeCounters counters() const = 0;
  virtual void SetProgressSink(ProgressSink sink) = 0;
  virtual void SetResolutionSink(ResolutionSink sink) = 0;
};

// One variant that CompileVariants was asked for.
struct CompiledVariant {
  Variant variant;
  absl::Status status;
  std::string compiler;  // "hiprtc 7.14.1", when status is OK
  bool was_cached = false;
  int64_t object_bytes = 0;
};

// Compiles `variants` for a target that need not be here, side by side, into the store: what `whet
// compile` does. One result per variant, in order. NotFound when no compiler here knows the target.
absl::StatusOr<std::vector<CompiledVariant>> CompileVariants(
    Runtime& runtime, const KernelTemplate& kernel_template, const Problem& problem,
    const std::vector<Variant>& variants, const Target& target, const ProgressSink& progress);

}  // namespace whet
