#include "src/runtime/resolver.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "src/base/mutex.h"
#include "src/model/keys.h"
#include "src/runtime/trial_log.h"
#include "src/runtime/winners.h"
#include "src/tune/drift.h"
#include "src/tune/evidence.h"

namespace whet {
namespace {

// The kernel that the template prefers losing all its variants to failures costs speed in silence,
// so it is said: empty, or a clause for people.
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

// A call that somebody waits for: so much is spent on getting variants ready while that helps.
constexpr absl::Duration kFirstCallPatience = absl::Seconds(4);

// Whatever the kernels are, there is nothing for them to write.
bool NothingToRun(const std::vector<Argument>& arguments) {
  return std::none_of(arguments.begin(), arguments.end(), [](const Argument& a) {
    const bool written = a.direction == Direction::kOut || a.direction == Direction::kInOut;
    return written && a.present && a.span_bytes > 0;
  });
}

// Empty where nothing may be written.
std::string LogDirectory(const Options& options) {
  const bool writes = options.cache_policy == CachePolicy::kReadWrite ||
                      options.cache_policy == CachePolicy::kVerify;
  return writes ? options.cache_directory : std::string();
}

bool MayTune(TuningMode mode) {
  return mode == TuningMode::kBlocking || mode == TuningMode::kOnline;
}

}  // namespace

struct Resolver::Choice {
  Variant variant;
  Origin origin = Origin::kNone;
  std::string code_key;
  double gain = 0;
  std::string note;
  // Of a stored winner, or of one that was tuned now.
  double winner_ns = 0;
  std::optional<DataSignature> signature;
  std::vector<Variant> few;
  // Only after tuning, or once it was loaded.
  std::optional<LoadedVariant> loaded;
  std::unique_ptr<TuningResult> tuning;
  int compiled = 0;
};

// The variants that live calls of one problem try.
class Resolver::FetchedVariants final : public LiveVariants {
 public:
  FetchedVariants(Resolver& resolver, const Task& task, Resolution resolution)
      : resolver_(resolver),
        template_(task.kernel_template),
        problem_(task.problem),
        arguments_(task.arguments),
        resolution_(std::move(resolution)) {}

  absl::Status Fetch(const Variant& variant) override {
    absl::StatusOr<VariantCode> code =
        resolver_.code_.Get(template_, problem_, variant, /*code_key=*/"");
    if (!code.ok()) return code.status();
    MutexLock lock(mutex_);
    codes_.insert_or_assign(variant.id(), *std::move(code));
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<Plan>> Load(const Variant& variant) override {
    VariantCode code;
    {
      MutexLock lock(mutex_);
      const auto it = codes_.find(variant.id());
      if (it == codes_.end()) return absl::InternalError("its code was not fetched");
      code = std::move(it->second);
      codes_.erase(it);
    }
    absl::StatusOr<LoadedVariant> loaded = resolver_.LoadCode(template_, problem_, std::move(code));
    if (!loaded.ok()) return loaded.status();
    Resolution resolution = resolution_;
    resolution.variant = variant.id();
    resolution.variant_origin = Origin::kTuned;
    resolution.note = "settled on live calls";
    resolution.gain = 0;
    return resolver_.MakePlan(problem_, arguments_, *std::move(loaded), std::move(resolution));
  }

 private:
  Resolver& resolver_;
  const KernelTemplate& template_;
  const Problem problem_;
  const std::vector<Argument> arguments_;
  const Resolution resolution_;
  Mutex mutex_;
  std::map<std::string, VariantCode> codes_ ABSL_GUARDED_BY(mutex_);
};

Resolver::Resolver(Device& device, Store& store, Toolchains& toolchains, const Options& options,
                   const Logger& log, ResolverCounters& counters, Background& background)
    : device_(device),
      store_(store),
      toolchains_(toolchains),
      options_(options),
      log_(log),
      counters_(counters),
      background_(background),
      limits_(DeviceLimits::Of(device.identity())),
      code_(device.identity().target, limits_, toolchains, store, options, log, counters.compile) {}

LiveCounters Resolver::live_counters() const {
  LiveCounters sum;
  MutexLock lock(live_mutex_);
  for (const std::unique_ptr<LiveCalls>& live : live_) {
    const LiveCounters one = live->counters();
    sum.rounds += one.rounds;
    sum.checks += one.checks;
    sum.drifts += one.drifts;
    sum.admissions += one.admissions;
  }
  return sum;
}

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

std::string Resolver::ToolchainText() const {
  const absl::StatusOr<Compiler*> compiler = toolchains_.For(device_.identity().target);
  if (!compiler.ok()) return "none";
  const ToolchainIdentity& identity = (*compiler)->identity();
  return absl::StrCat(identity.compiler, " ", identity.version, ", build ", identity.build);
}

absl::StatusOr<Resolver::Task> Resolver::MakeTask(const KernelTemplate& kernel_template,
                                                  const Problem& problem, void* const* args,
                                                  StreamHandle stream) const {
  absl::StatusOr<std::vector<Argument>> arguments = kernel_template.Arguments(problem);
  if (!arguments.ok()) return arguments.status();
  absl::StatusOr<std::vector<Variant>> variants =
      kernel_template.Variants(problem, device_.identity().target, limits_);
  if (!variants.ok()) return variants.status();
  return Task{.kernel_template = kernel_template,
              .problem = problem,
              .args = args,
              .stream = stream,
              .arguments = *std::move(arguments),
              .variants = *std::move(variants),
              .tuning_key = TuningKeyOf(kernel_template, problem, device_.identity()),
              .signature = std::nullopt};
}

std::optional<DataSignature> Resolver::Sign(const Task& task) const {
  if (task.args == nullptr) return std::nullopt;
  std::vector<DevicePointer> pointers(task.arguments.size(), nullptr);
  for (size_t i = 0; i < pointers.size(); ++i) {
    const Argument& argument = task.arguments[i];
    if (argument.direction == Direction::kScalar || !argument.present) continue;
    std::memcpy(&pointers[i], task.args[i], sizeof(DevicePointer));
    // The launch will say what is wrong with it.
    if (pointers[i] == nullptr && argument.span_bytes > 0) return std::nullopt;
  }
  absl::StatusOr<DataSignature> signature =
      TakeSignature(task.arguments, pointers, device_, task.stream);
  if (!signature.ok()) return std::nullopt;
  return *std::move(signature);
}

absl::StatusOr<Resolver::Choice> Resolver::ChooseStored(Task& task) const {
  Choice choice;
  if (options_.tuning == TuningMode::kDeterministic) return choice;
  const Winners winners(store_);
  std::optional<StoredWinner> winner = winners.Find(task.tuning_key, task.variants, nullptr);
  if (winner.has_value() && winner->signature.has_value()) {
    task.signature = Sign(task);
    if (task.signature.has_value()) {
      winner = winners.Find(task.tuning_key, task.variants, &*task.signature);
    }
  }
  if (!winner.has_value()) return choice;
  choice.variant = winner->variant;
  choice.origin = winner->origin;
  choice.code_key = winner->code_key;
  choice.gain = winner->gain;
  choice.winner_ns = winner->winner_ns;
  choice.signature = std::move(winner->signature);
  choice.few = std::move(winner->few);
  if (winner->other_class) {
    choice.origin = Origin::kInherited;
    choice.note = absl::StrFormat(
        "the winner was tuned on other data (distance %.2f, the same class ends at %.2f)",
        winner->distance, kSameClass);
  }
  return choice;
}

absl::StatusOr<Resolver::Choice> Resolver::ChooseByTuning(Task& task, const std::string& incumbent,
                                                          Purpose purpose,
                                                          const TuningProgress& progress) {
  const KernelTemplate& kernel_template = task.kernel_template;
  const absl::StatusOr<Variant> reference =
      kernel_template.ReferenceVariant(task.problem, device_.identity().target, limits_);
  if (!reference.ok()) return reference.status();

  TuningRequest request;
  request.variants = task.variants;
  request.reference = *reference;
  request.arguments = task.arguments;
  request.pointers.resize(request.arguments.size());
  request.scalars.resize(request.arguments.size());
  for (size_t i = 0; i < request.arguments.size(); ++i) {
    const Argument& argument = request.arguments[i];
    if (argument.direction == Direction::kScalar) {
      std::memcpy(&request.scalars[i], task.args[i], DTypeBytes(argument.dtype));
    } else if (argument.present) {
      std::memcpy(&request.pointers[i], task.args[i], sizeof(DevicePointer));
    }
  }
  request.stream = task.stream;
  request.tolerance = [&](DType dtype) { return kernel_template.Tolerance(dtype); };
  request.incumbent = incumbent;
  request.policy = options_.tuning_policy;
  if (purpose == Purpose::kLaunch) {
    request.policy.patience = std::min(request.policy.patience, kFirstCallPatience);
  }
  TrialLog log(LogOptions(task));
  request.known = log.known();
  request.on_out = [&](const VariantEvidence& evidence) { log.Out(evidence); };
  request.before_first_launch = [&](const Variant& variant) { log.Launching(variant); };
  request.after_first_launch = [&](const Variant& variant) { log.Launched(variant); };

  ++counters_.tunings;
  LoadedVariants source(
      [&](const Variant& variant) {
        return Load(kernel_template, task.problem, variant, /*code_key=*/"");
      },
      /*side_by_side=*/device_.identity().target.platform != Platform::kCpu);
  absl::StatusOr<TuningResult> result = whet::Tune(request, device_, source, progress);
  if (!result.ok()) {
    ++counters_.tuning_failures;
    return result.status();
  }
  log.Finish();
  // After the timing, so that reading them back does not cool the device down before.
  if (!task.signature.has_value()) task.signature = Sign(task);

  Choice choice;
  choice.variant = result->winner;
  choice.origin = Origin::kTuned;
  choice.gain = result->gain;
  choice.compiled = source.compiled();
  choice.note = LostKernel(result->evidence);
  choice.loaded = source.Take(result->winner);
  choice.code_key = choice.loaded->code_key;
  choice.signature = task.signature;
  choice.few = BestFew(*result, LiveOptions().few);
  for (const VariantEvidence& evidence : result->evidence) {
    if (evidence.variant == result->winner) choice.winner_ns = evidence.median_ns;
  }
  KeepWinner(task.tuning_key, *result, choice.code_key, choice.loaded->compiler, task.signature);
  if (task.signature.has_value()) result->data_signature = SignatureToJson(*task.signature);
  choice.tuning = std::make_unique<TuningResult>(*std::move(result));
  return choice;
}

TrialLogOptions Resolver::LogOptions(const Task& task) const {
  return {.directory = LogDirectory(options_),
          .tuning_key = task.tuning_key.bytes(),
          .target = device_.identity().target.ToString(),
          .toolchain = ToolchainText(),
          .operation = absl::StrCat(
              task.kernel_template.name(), " ",
              task.kernel_template.VariantSetDigest(device_.identity().target.platform).ToHex())};
}

void Resolver::KeepWinner(const KeyRecord& tuning_key, const TuningResult& result,
                          const std::string& code_key, const std::string& compiler,
                          const std::optional<DataSignature>& signature) const {
  WinnerEntry entry;
  entry.variant = result.winner.id();
  entry.code_key = code_key;
  entry.evidence = EvidenceToJson(
      result, {.driver = device_.identity().driver,
               .compiler = compiler,
               .data_signature = signature.has_value() ? SignatureToJson(*signature) : ""});
  entry.protocol = kTuningProtocol;
  for (const VariantEvidence& evidence : result.evidence) {
    entry.evidence_count += static_cast<int64_t>(evidence.samples_ns.size());
  }
  Winners(store_).Keep(tuning_key, std::move(entry), signature);
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
  resolution.target = device_.identity().target.ToString();
  resolution.variant = variant.id();
  resolution.variants = 1;
  resolution.compiled = loaded->code_origin == Origin::kCompiled ? 1 : 0;
  resolution.total = absl::Now() - begin;
  return MakePlan(problem, *std::move(arguments), *std::move(loaded), std::move(resolution));
}

// Any variant gives the right result: the first that can be had, before giving up. Where the same
// choice everywhere was asked for, there is no other.
absl::Status Resolver::LoadChoice(const Task& task, Choice& choice, Resolution& resolution) {
  absl::StatusOr<LoadedVariant> loaded =
      Load(task.kernel_template, task.problem, choice.variant, choice.code_key);
  const absl::Status first_failure = loaded.status();
  if (!loaded.ok() && options_.tuning == TuningMode::kDeterministic) return first_failure;
  for (const Variant& next : task.variants) {
    if (loaded.ok() || absl::IsUnavailable(loaded.status())) break;
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
  absl::StatusOr<Choice> stored = ChooseStored(task);
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
      const absl::StatusOr<Variant> reference =
          task.kernel_template.ReferenceVariant(task.problem, device_.identity().target, limits_);
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
        " (tuning key ", task.tuning_key.hash().ToHex(),
        ") and the tuning mode is offline; tune it on such a device, or ship a pack with it"));
  } else if (choice.origin == Origin::kNone && options_.cache_policy == CachePolicy::kOffline) {
    resolution.note = "no winner in the cache; the default variant is used";
  }
  if (choice.origin == Origin::kNone) {
    choice.variant = task.variants.front();
    choice.origin = Origin::kDefault;
  }
  return choice.loaded.has_value() ? absl::OkStatus() : LoadChoice(task, choice, resolution);
}

absl::StatusOr<std::unique_ptr<Plan>> Resolver::Resolve(const KernelTemplate& kernel_template,
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
  resolution.target = device_.identity().target.ToString();
  resolution.variants = static_cast<int>(task->variants.size());
  if (NothingToRun(task->arguments)) {
    LoadedVariant nothing;
    nothing.prepared.geometry.grid[0] = 0;
    resolution.variant = task->variants.front().id();
    resolution.variant_origin = Origin::kDefault;
    return MakePlan(problem, task->arguments, std::move(nothing), std::move(resolution));
  }
  Choice choice;
  if (absl::Status s = ChooseAndLoad(*task, purpose, progress, choice, resolution); !s.ok()) {
    return s;
  }
  resolution.variant = choice.variant.id();
  resolution.variant_origin = choice.origin;
  resolution.gain = choice.gain;
  resolution.total = absl::Now() - begin;
  absl::StatusOr<std::unique_ptr<Plan>> plan =
      MakePlan(problem, task->arguments, *std::move(choice.loaded), std::move(resolution));
  if (!plan.ok()) return plan;
  if (choice.tuning != nullptr) (*plan)->set_tuning(std::move(choice.tuning));
  AttachLive(*task, choice, **plan);
  return plan;
}

// In the online mode what is not settled goes on being tuned, and what is settled is watched.
void Resolver::AttachLive(const Task& task, const Choice& choice, Plan& plan) {
  if (!MayTune(options_.tuning) || options_.cache_policy == CachePolicy::kOffline) return;
  const bool online = options_.tuning == TuningMode::kOnline;
  const bool drift = options_.drift.value_or(online);
  const bool settled = choice.origin != Origin::kDefault && choice.origin != Origin::kInherited;
  if (settled ? (!drift || choice.few.size() < 2 || !choice.signature.has_value()) : !online) {
    return;
  }
  LiveOptions live;
  live.device = &device_;
  live.arguments = task.arguments;
  live.tolerance = [&t = task.kernel_template](DType dtype) { return t.Tolerance(dtype); };
  live.variants = std::make_unique<FetchedVariants>(*this, task, plan.resolution());
  live.background = &background_;
  live.online = options_.online;
  live.watch_drift = drift;
  const TrialLogOptions log_options = LogOptions(task);
  live.on_settled = [this, key = task.tuning_key, log_options](const LiveOutcome& outcome) {
    TrialLog log(log_options);
    for (const VariantEvidence& evidence : outcome.result.evidence) {
      if (evidence.blocked) log.Out(evidence);
    }
    log.Finish();
    KeepSettled(key, outcome);
  };
  auto calls = std::make_unique<LiveCalls>(plan, std::move(live));
  if (settled) {
    calls->Watch(*choice.signature, choice.winner_ns, choice.few);
  } else {
    std::vector<Variant> candidates = {choice.variant};
    const std::vector<VariantEvidence> known = TrialLog(log_options).known();
    const auto add = [&](const Variant& v) {
      const bool out = std::any_of(known.begin(), known.end(),
                                   [&](const VariantEvidence& e) { return e.variant == v; });
      const bool there = std::find(candidates.begin(), candidates.end(), v) != candidates.end();
      if (!out && !there) candidates.push_back(v);
    };
    for (const Variant& v : choice.few) add(v);
    for (const Variant& v : task.variants) add(v);
    calls->Tune(std::move(candidates), /*incumbent=*/false);
  }
  plan.set_live(calls.get());
  MutexLock lock(live_mutex_);
  live_.push_back(std::move(calls));
}

void Resolver::KeepSettled(const KeyRecord& tuning_key, const LiveOutcome& outcome) {
  // Where the budget sufficed for no comparison there is nothing to keep: the next process may have
  // more calls to spread it over, or be told to tune.
  int compared = 0;
  for (const VariantEvidence& evidence : outcome.result.evidence) {
    compared += evidence.median_ns > 0 || evidence.outcome == VariantOutcome::kWrong ||
                evidence.outcome == VariantOutcome::kFailed;
  }
  if (compared < 2) return;
  Resolution resolution = outcome.plan->resolution();
  const std::optional<DataSignature> signature =
      outcome.signature.inputs.empty() ? std::nullopt : std::optional(outcome.signature);
  KeepWinner(tuning_key, outcome.result, resolution.code_key, resolution.compiler, signature);
  resolution.gain = outcome.result.gain;
  resolution.variant_origin = Origin::kTuned;
  resolution.note = absl::StrCat("settled on ", outcome.calls, " live calls");
  if (settled_) settled_(resolution);
}

}  // namespace whet
