// Choosing a variant by measuring: what the tuner is given, and what is kept of its result.
#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/runtime/resolver_internal.h"
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

// Empty where nothing may be written.
std::string LogDirectory(const Options& options) {
  const bool writes = options.cache_policy == CachePolicy::kReadWrite ||
                      options.cache_policy == CachePolicy::kVerify;
  return writes ? options.cache_directory : std::string();
}

}  // namespace

std::string Resolver::ToolchainText() const {
  const absl::StatusOr<Compiler*> compiler = toolchains_.For(device_.early_identity().target);
  if (!compiler.ok()) return "none";
  const ToolchainIdentity& identity = (*compiler)->identity();
  return absl::StrCat(identity.compiler, " ", identity.version, ", build ", identity.build);
}

absl::StatusOr<Resolver::Choice> Resolver::ChooseByTuning(Task& task, const std::string& incumbent,
                                                          Purpose purpose,
                                                          const TuningProgress& progress) {
  const KernelTemplate& kernel_template = task.kernel_template;
  const absl::StatusOr<Variant> reference =
      kernel_template.ReferenceVariant(task.problem, device_.early_identity().target, limits_);
  if (!reference.ok()) return reference.status();

  TuningRequest request;
  const absl::StatusOr<const std::vector<Variant>*> variants = ListVariants(task);
  if (!variants.ok()) return variants.status();
  request.variants = **variants;
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
      /*side_by_side=*/device_.early_identity().target.platform != Platform::kCpu);
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
  KeepWinner(TuningKeyFor(task), *result, choice.code_key, choice.loaded->compiler, task.signature);
  if (task.signature.has_value()) result->data_signature = SignatureToJson(*task.signature);
  choice.tuning = std::make_unique<TuningResult>(*std::move(result));
  return choice;
}

TrialLogOptions Resolver::LogOptions(Task& task) const {
  return {
      .directory = LogDirectory(options_),
      .tuning_key = TuningKeyFor(task).bytes(),
      .target = device_.early_identity().target.ToString(),
      .toolchain = ToolchainText(),
      .operation = absl::StrCat(
          task.kernel_template.name(), " ",
          task.kernel_template.VariantSetDigest(device_.early_identity().target.platform).ToHex())};
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

}  // namespace whet
