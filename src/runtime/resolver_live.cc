// Live tuning of what the resolver settled, or could not settle yet.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/mutex.h"
#include "src/runtime/resolver_internal.h"

namespace whet {

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

// In the online mode what is not settled goes on being tuned, and what is settled is watched.
void Resolver::AttachLive(Task& task, const Choice& choice, Plan& plan) {
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
  live.compiling = &compiling_;
  live.fetched_ahead = compiling_.threads() + 1;
  live.online = options_.online;
  live.watch_drift = drift;
  const TrialLogOptions log_options = LogOptions(task);
  live.on_blocked = [log_options](const VariantEvidence& evidence) {
    TrialLog(log_options).Out(evidence);
  };
  live.on_settled = [this, key = TuningKeyFor(task), log_options](const LiveOutcome& outcome) {
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
    if (const auto variants = ListVariants(task); variants.ok()) {
      for (const Variant& v : **variants) add(v);
    }
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
  Resolution resolution = outcome.plan->resolution();
  if (compared < 2) {
    resolution.note = absl::StrCat("not tuned: what ", outcome.calls,
                                   " live calls may cost sufficed for no comparison");
    if (settled_) settled_(resolution);
    return;
  }
  const std::optional<DataSignature> signature =
      outcome.signature.inputs.empty() ? std::nullopt : std::optional(outcome.signature);
  KeepWinner(tuning_key, outcome.result, resolution.code_key, resolution.compiler, signature);
  resolution.gain = outcome.result.gain;
  resolution.variant_origin = Origin::kTuned;
  resolution.note = absl::StrCat("settled on ", outcome.calls, " live calls");
  if (settled_) settled_(resolution);
}

}  // namespace whet
