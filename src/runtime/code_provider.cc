#include "src/runtime/code_provider.h"

#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/runtime/code_attributes.h"

namespace whet {
namespace {

VariantCode ToVariantCode(MadeCode made, Specialization specialization) {
  VariantCode code;
  code.specialization = std::move(specialization);
  code.object = std::move(made.entry.object);
  code.key = std::move(made.entry.key);
  code.origin = made.origin;
  if (const absl::StatusOr<CodeAttributes> attributes =
          CodeAttributesFromJson(made.entry.attributes);
      attributes.ok()) {
    code.compiler = attributes->compiler;
  }
  return code;
}

MadeCode Found(CodeEntry entry) {
  const Origin origin = OriginOfLayer(entry.facts.layer);
  return {.entry = std::move(entry), .origin = origin};
}

}  // namespace

std::vector<Target> CompatibleTargets(const Target& target) {
  std::vector<Target> targets = {target};
  if (target.platform == Platform::kHip) {
    // Fewer features last: what leaves less open may have been compiled to better code.
    const size_t count = target.features.size();
    for (size_t left_out = 1; left_out <= count && count <= 4; ++left_out) {
      for (size_t mask = 0; mask < (size_t{1} << count); ++mask) {
        if (static_cast<size_t>(__builtin_popcountll(mask)) != left_out) continue;
        Target open = target;
        open.features.clear();
        for (size_t i = 0; i < count; ++i) {
          if ((mask >> i & 1) == 0) open.features.push_back(target.features[i]);
        }
        targets.push_back(std::move(open));
      }
    }
  } else if (target.platform == Platform::kCuda && absl::EndsWith(target.architecture, "a")) {
    targets.push_back(target);
    targets.back().architecture.pop_back();
  }
  return targets;
}

CodeKeyFields RequestFields(const KernelTemplate& kernel_template, const Problem& problem,
                            const Specialization& specialization, const Target& target) {
  CodeKeyFields fields;
  fields.template_name = kernel_template.name();
  fields.template_version = kernel_template.version();
  fields.source_digest = HashBytes(specialization.source).ToHex();
  fields.problem = problem.text();
  fields.variant = specialization.variant.id();
  fields.target = target;
  return fields;
}

TuningKeyFields TuningFieldsOf(const KernelTemplate& kernel_template, const Problem& problem,
                               const DeviceIdentity& device) {
  TuningKeyFields fields;
  fields.template_name = kernel_template.name();
  fields.template_version = kernel_template.version();
  fields.variant_set_digest = kernel_template.VariantSetDigest(device.target.platform).ToHex();
  fields.problem = problem.text();
  fields.device = device;
  fields.protocol = kTuningProtocol;
  return fields;
}

KeyRecord TuningKeyOf(const KernelTemplate& kernel_template, const Problem& problem,
                      const DeviceIdentity& device) {
  return TuningKey(TuningFieldsOf(kernel_template, problem, device));
}

struct CodeProvider::Job {
  Compiler* compiler = nullptr;
  CompileRequest request;
  CodeKeyFields fields;
  std::string key;
};

CodeProvider::CodeProvider(Target target, DeviceLimits limits, Toolchains& toolchains, Store& store,
                           const Options& options, const Logger& log, CompileCounters& counters)
    : target_(std::move(target)),
      limits_(limits),
      toolchains_(toolchains),
      store_(store),
      policy_(options.cache_policy),
      compile_timeout_(options.compile_timeout),
      log_(log),
      counters_(counters) {
  if (policy_ == CachePolicy::kReadWrite && store.persistent()) {
    flights_ = std::make_unique<HostFlights>(
        HostFlightOptions{.directory = options.lock_directory, .on_event = options.on_cache_event},
        log);
  }
}

absl::StatusOr<VariantCode> CodeProvider::Get(const KernelTemplate& kernel_template,
                                              const Problem& problem, const Variant& variant,
                                              absl::string_view code_key) {
  absl::StatusOr<Specialization> specialization =
      kernel_template.Specialize(problem, variant, target_, limits_);
  if (!specialization.ok()) return specialization.status();
  CodeKeyFields fields = RequestFields(kernel_template, problem, *specialization, target_);
  const KeyRecord request = CodeRequestKey(fields);

  std::optional<CodeEntry> entry;
  if (!code_key.empty()) {
    entry = store_.FindCode(code_key);
    // The winner may have been measured with a source that has changed since.
    if (entry.has_value() && entry->request != request.bytes()) entry.reset();
  }
  if (!entry.has_value()) entry = store_.FindCodeByRequest(request.bytes());
  if (entry.has_value()) return ToVariantCode(Found(*std::move(entry)), *std::move(specialization));

  const std::vector<Target> compatible = CompatibleTargets(target_);
  for (size_t i = 1; i < compatible.size(); ++i) {
    absl::StatusOr<Specialization> other =
        kernel_template.Specialize(problem, variant, compatible[i], limits_);
    if (!other.ok()) continue;
    const KeyRecord other_request =
        CodeRequestKey(RequestFields(kernel_template, problem, *other, compatible[i]));
    entry = store_.FindCodeByRequest(other_request.bytes());
    if (entry.has_value()) return ToVariantCode(Found(*std::move(entry)), *std::move(other));
  }
  if (policy_ == CachePolicy::kOffline) {
    return absl::NotFoundError(
        absl::StrCat("the cache holds no code for ", variant.id(), " of ", problem.text(), " on ",
                     target_.ToString(), " (request key ", request.hash().ToHex(),
                     ") and the cache policy is offline; ship a pack with it, or allow compiling"));
  }
  return CompileCode(*std::move(specialization), std::move(fields));
}

absl::StatusOr<MadeCode> CodeProvider::Make(const KernelTemplate& kernel_template,
                                            const Problem& problem, const Variant& variant) {
  absl::StatusOr<Specialization> specialization =
      kernel_template.Specialize(problem, variant, target_, limits_);
  if (!specialization.ok()) return specialization.status();
  absl::StatusOr<Job> job =
      Prepare(*specialization, RequestFields(kernel_template, problem, *specialization, target_));
  if (!job.ok()) return job.status();
  absl::StatusOr<MadeCode> made = absl::NotFoundError(
      absl::StrCat("the cache holds no code for ", variant.id(), " of ", problem.text(), " on ",
                   target_.ToString(), " by ", job->fields.compiler, " (code key ",
                   HashBytes(job->key).ToHex(), ") and the cache policy is offline"));
  if (std::optional<CodeEntry> entry = store_.FindCode(job->key)) {
    made = Found(*std::move(entry));
  } else if (policy_ != CachePolicy::kOffline) {
    made = Fly(*job);
  }
  if (made.ok()) {
    made->toolchain = absl::StrCat(job->fields.compiler, " ", job->fields.compiler_version,
                                   ", build ", job->fields.compiler_build);
  }
  return made;
}

absl::StatusOr<VariantCode> CodeProvider::Rebuild(const KernelTemplate& kernel_template,
                                                  const Problem& problem,
                                                  const VariantCode& refused,
                                                  absl::string_view reason) {
  store_.RemoveCode(refused.key, reason);
  log_.Warning(absl::StrCat("cached code of ", refused.specialization.variant.id(), " for ",
                            problem.text(), " was refused by the driver (", reason,
                            "); it is compiled anew"));
  if (policy_ == CachePolicy::kOffline) {
    return absl::NotFoundError(absl::StrCat(
        "the cached code of ", refused.specialization.variant.id(), " for ", problem.text(),
        " does not load (", reason, ") and the cache policy is offline"));
  }
  // The refused code may have been a compatible target's.
  absl::StatusOr<Specialization> specialization =
      kernel_template.Specialize(problem, refused.specialization.variant, target_, limits_);
  if (!specialization.ok()) return specialization.status();
  CodeKeyFields fields = RequestFields(kernel_template, problem, *specialization, target_);
  return CompileCode(*std::move(specialization), std::move(fields));
}

absl::StatusOr<CodeProvider::Job> CodeProvider::Prepare(const Specialization& specialization,
                                                        CodeKeyFields fields) {
  absl::StatusOr<Compiler*> found = toolchains_.For(target_);
  if (!found.ok()) return found.status();
  Job job;
  job.compiler = *found;
  const ToolchainIdentity& identity = job.compiler->identity();
  job.request.label = absl::StrCat(fields.template_name, " ", fields.variant);
  job.request.source = specialization.source;
  job.request.entry = specialization.entry;
  job.request.target = target_;
  job.request.timeout = compile_timeout_;
  if (const auto it = specialization.options.find(identity.compiler);
      it != specialization.options.end()) {
    job.request.options = it->second;
  }
  fields.compiler = identity.compiler;
  fields.compiler_version = identity.version;
  fields.compiler_build = identity.build;
  fields.options = job.compiler->Options(job.request);
  fields.object_format = job.compiler->ObjectFormat(target_);
  job.key = CodeKey(fields).bytes();
  job.fields = std::move(fields);
  return job;
}

absl::StatusOr<MadeCode> CodeProvider::Fly(const Job& job) {
  if (flights_ == nullptr) return Compile(job);
  std::optional<CodeEntry> entry;
  bool looked = false;
  absl::StatusOr<MadeCode> made = absl::UnknownError("not made");
  const absl::Status status = flights_->Run(
      job.key, absl::StrCat(job.request.label, " for ", target_.ToString()),
      [&] {
        // The caller has just looked; what matters is the look once the lock is held.
        if (!std::exchange(looked, true)) return false;
        entry = store_.FindCode(job.key);
        return entry.has_value();
      },
      [&] {
        made = Compile(job);
        return made.status();
      });
  const HostFlightCounters flown = flights_->counters();
  counters_.found_made = flown.made_by_others;
  counters_.lock_waits = flown.waits;
  counters_.lock_wait_ns = flown.wait_ns;
  counters_.without_lock = flown.without_lock;
  if (!status.ok()) return status;
  if (entry.has_value()) return Found(*std::move(entry));
  return made;
}

absl::StatusOr<MadeCode> CodeProvider::Compile(const Job& job) {
  ++counters_.compiles;
  absl::StatusOr<CodeObject> object = job.compiler->Compile(job.request);
  if (!object.ok()) {
    ++counters_.failures;
    return object.status();
  }
  CodeAttributes attributes;
  attributes.entry = object->entry;
  attributes.format = object->format;
  attributes.template_name = job.fields.template_name;
  attributes.problem = job.fields.problem;
  attributes.variant = job.fields.variant;
  attributes.target = target_.ToString();
  attributes.compiler = absl::StrCat(job.fields.compiler, " ", job.fields.compiler_version);
  attributes.resources = object->resources;
  attributes.log = object->log;
  MadeCode made;
  made.origin = Origin::kCompiled;
  made.entry.key = job.key;
  made.entry.request = CodeRequestKey(job.fields).bytes();
  made.entry.attributes = CodeAttributesToJson(attributes);
  made.entry.object = std::move(object->bytes);
  // A cache that cannot take it has said so itself; the code is good all the same.
  store_.PutCode(made.entry).IgnoreError();
  return made;
}

absl::StatusOr<VariantCode> CodeProvider::CompileCode(Specialization specialization,
                                                      CodeKeyFields fields) {
  absl::StatusOr<Job> job = Prepare(specialization, std::move(fields));
  if (!job.ok()) return job.status();
  absl::StatusOr<MadeCode> made = Fly(*job);
  if (!made.ok()) return made.status();
  return ToVariantCode(*std::move(made), std::move(specialization));
}

}  // namespace whet
