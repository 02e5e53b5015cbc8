#include "src/runtime/resolver.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "src/base/mutex.h"
#include "src/base/parallel.h"
#include "src/model/keys.h"
#include "src/tune/evidence.h"

namespace whet {
namespace {

// Gives the tuner its variants and keeps them loaded, so that the winner need not be loaded again.
class LoadedVariants final : public VariantSource {
 public:
  LoadedVariants(Resolver& resolver, const KernelTemplate& kernel_template, const Problem& problem)
      : resolver_(resolver), template_(kernel_template), problem_(problem) {}

  std::vector<absl::StatusOr<PreparedVariant>> Prepare(
      const std::vector<Variant>& variants) override {
    std::vector<absl::StatusOr<PreparedVariant>> results(variants.size(),
                                                         absl::UnknownError("not prepared"));
    ParallelFor(variants.size(), AvailableProcessors(), [&](size_t i) {
      const std::string id = variants[i].id();
      {
        // The tuner may ask again for what it has dropped and needs after all.
        MutexLock lock(mutex_);
        if (const auto it = loaded_.find(id); it != loaded_.end()) {
          results[i] = it->second.prepared;
          return;
        }
      }
      absl::StatusOr<LoadedVariant> loaded =
          resolver_.Load(template_, problem_, variants[i], /*code_key=*/"");
      if (!loaded.ok()) {
        results[i] = loaded.status();
        return;
      }
      results[i] = loaded->prepared;
      MutexLock lock(mutex_);
      loaded_.insert_or_assign(id, *std::move(loaded));
    });
    return results;
  }

  LoadedVariant Take(const Variant& variant) {
    MutexLock lock(mutex_);
    return std::move(loaded_.at(variant.id()));
  }

  int compiled() const {
    MutexLock lock(mutex_);
    return static_cast<int>(std::count_if(loaded_.begin(), loaded_.end(), [](const auto& entry) {
      return entry.second.code_origin == Origin::kCompiled;
    }));
  }

 private:
  Resolver& resolver_;
  const KernelTemplate& template_;
  const Problem& problem_;
  mutable Mutex mutex_;
  std::map<std::string, LoadedVariant> loaded_ ABSL_GUARDED_BY(mutex_);
};

std::string TuningKeyOf(const KernelTemplate& kernel_template, const Problem& problem,
                        const DeviceIdentity& device) {
  TuningKeyFields fields;
  fields.template_name = kernel_template.name();
  fields.template_version = kernel_template.version();
  fields.variant_set_digest = kernel_template.VariantSetDigest(device.target.platform).ToHex();
  fields.problem = problem.text();
  fields.device = device;
  fields.protocol = kTuningProtocol;
  return TuningKey(fields).bytes();
}

// The kernel that the template prefers losing all its variants to failures costs speed in silence, so it is said: empty, or a clause for people.
std::string LostKernel(const std::vector<VariantEvidence>& evidence) {
  const VariantEvidence* lost = nullptr;
  for (const VariantEvidence& e : evidence) {
    if (e.variant.kernel != evidence.front().variant.kernel) continue;
    if (e.outcome == VariantOutcome::kUntried) continue;
    if (e.outcome != VariantOutcome::kFailed && e.outcome != VariantOutcome::kWrong) return "";
    if (lost == nullptr) lost = &e;
  }
  if (lost == nullptr) return "";
  return absl::StrCat("no variant of the kernel ", lost->variant.kernel, " could be used (",
                      lost->variant.id(), ": ", lost->reason, ")");
}

}  // namespace

struct Resolver::Choice {
  Variant variant;
  Origin origin = Origin::kNone;
  std::string code_key;
  double gain = 0;
  // Only after tuning.
  std::optional<LoadedVariant> loaded;
  std::unique_ptr<TuningResult> tuning;
  int compiled = 0;
  std::string note;
};

Resolver::Resolver(Device& device, Store& store, Toolchains& toolchains, const Options& options,
                   const Logger& log, ResolverCounters& counters)
    : device_(device),
      store_(store),
      options_(options),
      log_(log),
      counters_(counters),
      limits_(DeviceLimits::Of(device.identity())),
      code_(device.identity().target, limits_, toolchains, store, options, log,
            counters.compile) {}

absl::StatusOr<LoadedVariant> Resolver::Load(const KernelTemplate& kernel_template,
                                             const Problem& problem, const Variant& variant,
                                             absl::string_view code_key) {
  absl::StatusOr<VariantCode> code = code_.Get(kernel_template, problem, variant, code_key);
  if (!code.ok()) return code.status();
  for (bool rebuilt = false;; rebuilt = true) {
    const Specialization& specialization = code->specialization;
    ++counters_.loads;
    absl::StatusOr<std::unique_ptr<Module>> module = device_.LoadModule(code->object);
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
      loaded.code_key = code->key;
      loaded.compiler = code->compiler;
      loaded.code_origin = code->origin;
      return loaded;
    }
    ++counters_.load_failures;
    if (rebuilt || code->origin == Origin::kCompiled || absl::IsUnavailable(kernel.status()) ||
        absl::IsResourceExhausted(kernel.status())) {
      return kernel.status();
    }
    code = code_.Rebuild(kernel_template, problem, *code, kernel.status().message());
    if (!code.ok()) return code.status();
  }
}

Resolver::Choice Resolver::ChooseStored(const std::string& tuning_key,
                                        const std::vector<Variant>& variants) const {
  Choice choice;
  const std::optional<WinnerEntry> winner = store_.FindWinner(tuning_key);
  if (!winner.has_value()) return choice;
  const auto it = std::find_if(variants.begin(), variants.end(),
                               [&](const Variant& v) { return v.id() == winner->variant; });
  // A record that names no variant of today is not believed.
  if (it == variants.end()) return choice;
  choice.variant = *it;
  choice.origin = OriginOfLayer(winner->facts.layer);
  choice.code_key = winner->code_key;
  if (const absl::StatusOr<Evidence> evidence = EvidenceFromJson(winner->evidence); evidence.ok()) {
    choice.gain = evidence->result.gain;
  }
  return choice;
}

absl::StatusOr<Resolver::Choice> Resolver::ChooseByTuning(
    const KernelTemplate& kernel_template, const Problem& problem, const std::string& tuning_key,
    const std::vector<Variant>& variants, const std::string& incumbent, void* const* args,
    StreamHandle stream, const TuningProgress& progress) {
  const absl::StatusOr<Variant> reference =
      kernel_template.ReferenceVariant(problem, device_.identity().target, limits_);
  if (!reference.ok()) return reference.status();
  absl::StatusOr<std::vector<Argument>> arguments = kernel_template.Arguments(problem);
  if (!arguments.ok()) return arguments.status();

  TuningRequest request;
  request.variants = variants;
  request.reference = *reference;
  request.arguments = *std::move(arguments);
  request.pointers.resize(request.arguments.size());
  request.scalars.resize(request.arguments.size());
  for (size_t i = 0; i < request.arguments.size(); ++i) {
    const Argument& argument = request.arguments[i];
    if (argument.direction == Direction::kScalar) {
      std::memcpy(&request.scalars[i], args[i], DTypeBytes(argument.dtype));
    } else if (argument.present) {
      std::memcpy(&request.pointers[i], args[i], sizeof(DevicePointer));
    }
  }
  request.stream = stream;
  request.tolerance = [&](DType dtype) { return kernel_template.Tolerance(dtype); };
  request.incumbent = incumbent;
  request.policy = options_.tuning_policy;

  ++counters_.tunings;
  LoadedVariants source(*this, kernel_template, problem);
  absl::StatusOr<TuningResult> result = Tune(request, device_, source, progress);
  if (!result.ok()) {
    ++counters_.tuning_failures;
    return result.status();
  }
  Choice choice;
  choice.variant = result->winner;
  choice.origin = Origin::kTuned;
  choice.gain = result->gain;
  choice.compiled = source.compiled();
  choice.note = LostKernel(result->evidence);
  choice.loaded = source.Take(result->winner);
  choice.code_key = choice.loaded->code_key;

  WinnerEntry entry;
  entry.key = tuning_key;
  entry.variant = result->winner.id();
  entry.code_key = choice.code_key;
  entry.evidence = EvidenceToJson(
      *result, {.driver = device_.identity().driver, .compiler = choice.loaded->compiler});
  entry.protocol = kTuningProtocol;
  for (const VariantEvidence& evidence : result->evidence) {
    entry.evidence_count += static_cast<int64_t>(evidence.samples_ns.size());
  }
  // As with code: a cache that cannot take it has said so itself.
  store_.PutWinner(entry).IgnoreError();
  choice.tuning = std::make_unique<TuningResult>(*std::move(result));
  return choice;
}

absl::StatusOr<std::unique_ptr<Plan>> Resolver::MakePlan(const Problem& problem,
                                                         std::vector<Argument> arguments,
                                                         LoadedVariant loaded,
                                                         Resolution resolution) {
  resolution.code_origin = loaded.code_origin;
  resolution.compiler = std::move(loaded.compiler);
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
  resolution.target = device_.identity().target.ToString();
  resolution.variant = variant.id();
  resolution.variants = 1;
  resolution.compiled = loaded->code_origin == Origin::kCompiled ? 1 : 0;
  resolution.total = absl::Now() - begin;
  return MakePlan(problem, *std::move(arguments), *std::move(loaded), std::move(resolution));
}

absl::StatusOr<std::unique_ptr<Plan>> Resolver::Resolve(const KernelTemplate& kernel_template,
                                                        const Problem& problem, void* const* args,
                                                        StreamHandle stream, bool retune,
                                                        const TuningProgress& progress) {
  const absl::Time begin = absl::Now();
  ++counters_.resolutions;
  const DeviceIdentity& device = device_.identity();
  const absl::StatusOr<bool> capturing = device_.IsCapturing(stream);
  if (!capturing.ok()) return capturing.status();
  if (*capturing) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot compile or load ", problem.text(),
                     " while its stream is being captured into a graph; prepare the problem before "
                     "the capture"));
  }
  absl::StatusOr<std::vector<Argument>> arguments = kernel_template.Arguments(problem);
  if (!arguments.ok()) return arguments.status();
  const absl::StatusOr<std::vector<Variant>> variants =
      kernel_template.Variants(problem, device.target, limits_);
  if (!variants.ok()) return variants.status();

  Resolution resolution;
  resolution.problem = problem.text();
  resolution.target = device.target.ToString();
  resolution.variants = static_cast<int>(variants->size());

  const absl::StatusOr<Specialization> first =
      kernel_template.Specialize(problem, variants->front(), device.target, limits_);
  if (!first.ok()) return first.status();
  if (first->launch.empty()) {
    // An empty tensor: nothing to run, so nothing to compile either.
    LoadedVariant nothing;
    nothing.prepared.geometry = first->launch;
    resolution.variant = variants->front().id();
    resolution.variant_origin = Origin::kDefault;
    return MakePlan(problem, *std::move(arguments), std::move(nothing), std::move(resolution));
  }

  const std::string tuning_key = TuningKeyOf(kernel_template, problem, device);
  Choice choice = ChooseStored(tuning_key, *variants);
  const bool may_tune =
      args != nullptr && options_.cache_policy != CachePolicy::kOffline &&
      (retune || (options_.tuning == TuningMode::kBlocking && choice.origin == Origin::kNone));
  if (may_tune) {
    const std::string incumbent =
        choice.origin == Origin::kNone ? std::string() : choice.variant.id();
    const absl::Time tune_begin = absl::Now();
    absl::StatusOr<Choice> tuned = ChooseByTuning(kernel_template, problem, tuning_key, *variants,
                                                  incumbent, args, stream, progress);
    resolution.tune = absl::Now() - tune_begin;
    if (tuned.ok()) {
      choice = *std::move(tuned);
      resolution.compile = choice.tuning->compile;
      resolution.compiled = choice.compiled;
      resolution.note = choice.note;
      if (!choice.note.empty()) log_.Warning(absl::StrCat(problem.text(), ": ", choice.note));
    } else if (retune || absl::IsUnavailable(tuned.status())) {
      return tuned.status();
    } else {
      resolution.note = absl::StrCat("not tuned: ", tuned.status().message());
      log_.Warning(absl::StrCat(problem.text(), " could not be tuned (", tuned.status().message(),
                                "); the default variant is used"));
    }
  } else if (choice.origin == Origin::kNone && options_.cache_policy == CachePolicy::kOffline) {
    resolution.note = "no winner in the cache; the default variant is used";
  }
  if (choice.origin == Origin::kNone) {
    choice.variant = variants->front();
    choice.origin = Origin::kDefault;
  }

  if (!choice.loaded.has_value()) {
    absl::StatusOr<LoadedVariant> loaded =
        Load(kernel_template, problem, choice.variant, choice.code_key);
    const absl::Status first_failure = loaded.status();
    // Any variant gives the right result: take the first that can be had before giving up.
    for (size_t i = 0;
         !loaded.ok() && i < variants->size() && !absl::IsUnavailable(loaded.status()); ++i) {
      const Variant& next = (*variants)[i];
      if (next == choice.variant) continue;
      loaded = Load(kernel_template, problem, next, /*code_key=*/"");
      if (!loaded.ok()) continue;
      resolution.note =
          absl::StrCat(choice.variant.id(), " could not be had: ", first_failure.message());
      log_.Warning(
          absl::StrCat(problem.text(), ": ", resolution.note, "; ", next.id(), " is used"));
      choice.variant = next;
      choice.origin = Origin::kDefault;
      choice.gain = 0;
    }
    if (!loaded.ok()) return first_failure;
    if (loaded->code_origin == Origin::kCompiled) ++resolution.compiled;
    choice.loaded = *std::move(loaded);
  }

  resolution.variant = choice.variant.id();
  resolution.variant_origin = choice.origin;
  resolution.gain = choice.gain;
  resolution.total = absl::Now() - begin;
  absl::StatusOr<std::unique_ptr<Plan>> plan =
      MakePlan(problem, *std::move(arguments), *std::move(choice.loaded), std::move(resolution));
  if (plan.ok() && choice.tuning != nullptr) (*plan)->set_tuning(std::move(choice.tuning));
  return plan;
}

}  // namespace whet
