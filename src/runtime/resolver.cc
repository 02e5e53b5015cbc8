#include "src/runtime/resolver.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "src/runtime/resolver_internal.h"

namespace whet {
namespace {

// Whatever the kernels are, there is nothing for them to write.
bool NothingToRun(const std::vector<Argument>& arguments) {
  return std::none_of(arguments.begin(), arguments.end(), [](const Argument& a) {
    const bool written = a.direction == Direction::kOut || a.direction == Direction::kInOut;
    return written && a.present && a.span_bytes > 0;
  });
}

}  // namespace

Resolver::Resolver(Device& device, Store& store, Toolchains& toolchains, const Options& options,
                   const Logger& log, ResolverCounters& counters, Background& background,
                   BackgroundThreads& compiling)
    : device_(device),
      store_(store),
      toolchains_(toolchains),
      options_(options),
      log_(log),
      counters_(counters),
      background_(background),
      compiling_(compiling),
      limits_(DeviceLimits::Of(device.early_identity())),
      code_(device.early_identity().target, limits_, toolchains, store, options, log,
            counters.compile) {}

absl::StatusOr<LoadedVariant> Resolver::Load(const KernelTemplate& kernel_template,
                                             const Problem& problem, const Variant& variant,
                                             absl::string_view code_key) {
  absl::StatusOr<VariantCode> code = code_.Get(kernel_template, problem, variant, code_key);
  if (!code.ok()) return code.status();
  return LoadCode(kernel_template, problem, *std::move(code));
}

absl::StatusOr<LoadedVariant> Resolver::LoadCode(const KernelTemplate& kernel_template,
                                                 const Problem& problem, VariantCode code) {
  for (bool rebuilt = false;; rebuilt = true) {
    const Specialization& specialization = code.specialization;
    ++counters_.loads;
    absl::StatusOr<std::unique_ptr<Module>> module = device_.LoadModule(code.object);
    absl::StatusOr<Kernel> kernel =
        module.ok() ? (*module)->GetKernel(specialization.entry, specialization.launch.shared_bytes)
                    : absl::StatusOr<Kernel>(module.status());
    if (kernel.ok()) {
      LoadedVariant loaded;
      const absl::StatusOr<std::vector<Argument>> arguments = kernel_template.Arguments(problem);
      if (!arguments.ok()) return arguments.status();
      kernel->SetParameters(*arguments);
      loaded.module = *std::move(module);
      loaded.prepared = {*kernel, specialization.launch, specialization.tensor_maps};
      loaded.code_key = code.key;
      loaded.compiler = code.compiler;
      loaded.code_origin = code.origin;
      return loaded;
    }
    ++counters_.load_failures;
    if (rebuilt || code.origin == Origin::kCompiled || absl::IsUnavailable(kernel.status()) ||
        absl::IsResourceExhausted(kernel.status())) {
      return kernel.status();
    }
    absl::StatusOr<VariantCode> anew =
        code_.Rebuild(kernel_template, problem, code, kernel.status().message());
    if (!anew.ok()) return anew.status();
    code = *std::move(anew);
  }
}

absl::StatusOr<Resolver::Task> Resolver::MakeTask(const KernelTemplate& kernel_template,
                                                  const Problem& problem, void* const* args,
                                                  StreamHandle stream) const {
  absl::StatusOr<std::vector<Argument>> arguments = kernel_template.Arguments(problem);
  if (!arguments.ok()) return arguments.status();
  absl::StatusOr<Variant> preferred =
      kernel_template.DefaultVariant(problem, device_.early_identity().target, limits_);
  if (!preferred.ok()) return preferred.status();
  return Task{.kernel_template = kernel_template,
              .problem = problem,
              .args = args,
              .stream = stream,
              .arguments = *std::move(arguments),
              .preferred = *std::move(preferred),
              .listed = std::nullopt,
              .tuning_key = std::nullopt,
              .assumed_key = std::nullopt,
              .signature = std::nullopt};
}

absl::StatusOr<const std::vector<Variant>*> Resolver::ListVariants(Task& task) const {
  if (!task.listed.has_value()) {
    absl::StatusOr<std::vector<Variant>> variants =
        task.kernel_template.Variants(task.problem, device_.early_identity().target, limits_);
    if (!variants.ok()) return variants.status();
    task.listed = *std::move(variants);
  }
  return &*task.listed;
}

bool Resolver::Offers(const Task& task, const Variant& variant) const {
  return task.kernel_template.Offers(task.problem, variant, device_.early_identity().target,
                                     limits_);
}

absl::StatusOr<std::unique_ptr<Plan>> Resolver::MakePlan(const Problem& problem,
                                                         std::vector<Argument> arguments,
                                                         LoadedVariant loaded,
                                                         Resolution resolution) {
  resolution.code_origin = loaded.code_origin;
  resolution.compiler = std::move(loaded.compiler);
  resolution.code_key = std::move(loaded.code_key);
  return Plan::Make(device_, std::move(loaded.module), std::move(loaded.prepared),
                    std::move(arguments), problem.Integer("alignment"), std::move(resolution));
}

absl::StatusOr<std::unique_ptr<Plan>> Resolver::ResolveVariant(
    const KernelTemplate& kernel_template, const Problem& problem, const Variant& variant) {
  const absl::Time begin = absl::Now();
  absl::StatusOr<std::vector<Argument>> arguments = kernel_template.Arguments(problem);
  if (!arguments.ok()) return arguments.status();
  absl::StatusOr<LoadedVariant> loaded = Load(kernel_template, problem, variant, /*code_key=*/"");
  if (!loaded.ok()) return loaded.status();
  Resolution resolution;
  resolution.problem = problem.text();
  resolution.target = device_.early_identity().target.ToString();
  resolution.variant = variant.id();
  resolution.variants = 1;
  resolution.compiled = loaded->code_origin == Origin::kCompiled ? 1 : 0;
  resolution.total = absl::Now() - begin;
  return MakePlan(problem, *std::move(arguments), *std::move(loaded), std::move(resolution));
}

// Any variant gives the right result: the first that can be had, before giving up. Where the same
// choice everywhere was asked for, there is no other.
absl::Status Resolver::LoadChoice(Task& task, Choice& choice, Resolution& resolution) {
  absl::StatusOr<LoadedVariant> loaded =
      Load(task.kernel_template, task.problem, choice.variant, choice.code_key);
  const absl::Status first_failure = loaded.status();
  if (!loaded.ok() && options_.tuning == TuningMode::kDeterministic) return first_failure;
  const absl::StatusOr<const std::vector<Variant>*> others =
      loaded.ok() ? absl::CancelledError("not wanted") : ListVariants(task);
  for (size_t i = 0; others.ok() && i < (*others)->size(); ++i) {
    if (loaded.ok() || absl::IsUnavailable(loaded.status())) break;
    const Variant& next = (**others)[i];
    if (next == choice.variant) continue;
    loaded = Load(task.kernel_template, task.problem, next, /*code_key=*/"");
    if (!loaded.ok()) continue;
    resolution.note =
        absl::StrCat(choice.variant.id(), " could not be had: ", first_failure.message());
    log_.Warning(
        absl::StrCat(task.problem.text(), ": ", resolution.note, "; ", next.id(), " is used"));
    choice.variant = next;
    choice.origin = Origin::kDefault;
    choice.gain = 0;
  }
  if (!loaded.ok()) return first_failure;
  if (loaded->code_origin == Origin::kCompiled) ++resolution.compiled;
  choice.loaded = *std::move(loaded);
  return absl::OkStatus();
}

absl::Status Resolver::ChooseAndLoad(Task& task, Purpose purpose, const TuningProgress& progress,
                                     Choice& choice, Resolution& resolution) {
  absl::StatusOr<Choice> stored = ChooseStored(task, purpose);
  if (!stored.ok()) return stored.status();
  choice = *std::move(stored);
  resolution.note = choice.note;
  const bool unsettled = choice.origin == Origin::kNone ||
                         (choice.origin == Origin::kInherited && purpose == Purpose::kPrepare);
  const bool waits = options_.tuning == TuningMode::kBlocking || purpose != Purpose::kLaunch;
  const bool may_tune =
      task.args != nullptr && options_.cache_policy != CachePolicy::kOffline &&
      (purpose == Purpose::kTune || (MayTune(options_.tuning) && waits && unsettled));
  if (may_tune) {
    // Of another class of data: no incumbent there.
    const bool incumbent = choice.origin != Origin::kNone && choice.origin != Origin::kInherited;
    const absl::Time tune_begin = absl::Now();
    absl::StatusOr<Choice> tuned =
        ChooseByTuning(task, incumbent ? choice.variant.id() : std::string(), purpose, progress);
    resolution.tune = absl::Now() - tune_begin;
    if (tuned.ok()) {
      choice = *std::move(tuned);
      resolution.compile = choice.tuning->compile;
      resolution.compiled = choice.compiled;
      resolution.note = choice.note;
      if (!choice.note.empty()) log_.Warning(absl::StrCat(task.problem.text(), ": ", choice.note));
    } else if (purpose == Purpose::kTune || absl::IsUnavailable(tuned.status())) {
      return tuned.status();
    } else {
      resolution.note = absl::StrCat("not tuned: ", tuned.status().message());
      // No variant passed: what they were held against is what is right.
      const absl::StatusOr<Variant> reference = task.kernel_template.ReferenceVariant(
          task.problem, device_.early_identity().target, limits_);
      const bool none_left = absl::IsFailedPrecondition(tuned.status()) && reference.ok();
      if (none_left && choice.origin == Origin::kNone) {
        choice.variant = *reference;
        choice.origin = Origin::kDefault;
      }
      log_.Warning(absl::StrCat(task.problem.text(), " could not be tuned (",
                                tuned.status().message(), "); the ",
                                none_left ? "reference" : "default", " variant is used"));
    }
  } else if (choice.origin == Origin::kNone && options_.tuning == TuningMode::kOffline) {
    return absl::NotFoundError(absl::StrCat(
        "no winner is stored for ", task.problem.text(), " on ", device_.identity().product,
        " (tuning key ", TuningKeyFor(task).hash().ToHex(),
        ") and the tuning mode is offline; tune it on such a device, or ship a pack with it"));
  } else if (choice.origin == Origin::kNone && options_.cache_policy == CachePolicy::kOffline) {
    resolution.note = "no winner in the cache; the default variant is used";
  }
  if (choice.origin == Origin::kNone) {
    choice.variant = task.preferred;
    choice.origin = Origin::kDefault;
  }
  return choice.loaded.has_value() ? absl::OkStatus() : LoadChoice(task, choice, resolution);
}

absl::StatusOr<Resolved> Resolver::Resolve(const KernelTemplate& kernel_template,
                                           const Problem& problem, void* const* args,
                                           StreamHandle stream, Purpose purpose,
                                           const TuningProgress& progress) {
  const absl::Time begin = absl::Now();
  ++counters_.resolutions;
  const absl::StatusOr<bool> capturing = device_.IsCapturing(stream);
  if (!capturing.ok()) return capturing.status();
  if (*capturing) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot compile or load ", problem.text(),
                     " while its stream is being captured into a graph; prepare the problem before "
                     "the capture"));
  }
  absl::StatusOr<Task> task = MakeTask(kernel_template, problem, args, stream);
  if (!task.ok()) return task.status();

  Resolution resolution;
  resolution.problem = problem.text();
  resolution.target = device_.early_identity().target.ToString();
  if (NothingToRun(task->arguments)) {
    LoadedVariant nothing;
    nothing.prepared.geometry.grid[0] = 0;
    resolution.variant = task->preferred.id();
    resolution.variant_origin = Origin::kDefault;
    absl::StatusOr<std::unique_ptr<Plan>> plan =
        MakePlan(problem, task->arguments, std::move(nothing), std::move(resolution));
    if (!plan.ok()) return plan.status();
    return Resolved{.plan = *std::move(plan), .confirm = {}};
  }
  Choice choice;
  if (absl::Status s = ChooseAndLoad(*task, purpose, progress, choice, resolution); !s.ok()) {
    return s;
  }
  resolution.variant = choice.variant.id();
  resolution.variants = task->listed.has_value() ? static_cast<int>(task->listed->size()) : 0;
  resolution.variant_origin = choice.origin;
  resolution.gain = choice.gain;
  resolution.total = absl::Now() - begin;
  absl::StatusOr<std::unique_ptr<Plan>> plan =
      MakePlan(problem, task->arguments, *std::move(choice.loaded), std::move(resolution));
  if (!plan.ok()) return plan.status();
  if (choice.tuning != nullptr) (*plan)->set_tuning(std::move(choice.tuning));
  AttachLive(*task, choice, **plan);
  Resolved resolved{.plan = *std::move(plan), .confirm = {}};
  if (task->assumed_key.has_value()) {
    resolved.confirm = [this, &kernel_template, problem, assumed = *task->assumed_key] {
      return Confirm(kernel_template, problem, assumed);
    };
  }
  return resolved;
}

}  // namespace whet
