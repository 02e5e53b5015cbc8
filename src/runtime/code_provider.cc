#include "src/runtime/code_provider.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/runtime/code_attributes.h"

namespace whet {
namespace {

VariantCode FromEntry(CodeEntry entry, Specialization specialization) {
  VariantCode code;
  code.specialization = std::move(specialization);
  code.object = std::move(entry.object);
  code.key = std::move(entry.key);
  code.origin = OriginOfLayer(entry.facts.layer);
  if (const absl::StatusOr<CodeAttributes> attributes = CodeAttributesFromJson(entry.attributes);
      attributes.ok()) {
    code.compiler = attributes->compiler;
  }
  return code;
}

}  // namespace

CodeKeyFields CodeProvider::KeyFields(const KernelTemplate& kernel_template, const Problem& problem,
                                      const Specialization& specialization) const {
  CodeKeyFields fields;
  fields.template_name = kernel_template.name();
  fields.template_version = kernel_template.version();
  fields.source_digest = HashBytes(specialization.source).ToHex();
  fields.problem = problem.text();
  fields.variant = specialization.variant.id();
  fields.target = target_;
  return fields;
}

absl::StatusOr<VariantCode> CodeProvider::Get(const KernelTemplate& kernel_template,
                                              const Problem& problem, const Variant& variant,
                                              absl::string_view code_key) {
  absl::StatusOr<Specialization> specialization =
      kernel_template.Specialize(problem, variant, target_, limits_);
  if (!specialization.ok()) return specialization.status();
  CodeKeyFields fields = KeyFields(kernel_template, problem, *specialization);
  const KeyRecord request = CodeRequestKey(fields);

  std::optional<CodeEntry> entry;
  if (!code_key.empty()) {
    entry = store_.FindCode(code_key);
    // The winner may have been measured with a source that has changed since.
    if (entry.has_value() && entry->request != request.bytes()) entry.reset();
  }
  if (!entry.has_value()) entry = store_.FindCodeByRequest(request.bytes());
  if (entry.has_value()) {
    return FromEntry(*std::move(entry), *std::move(specialization));
  }
  if (policy_ == CachePolicy::kOffline) {
    return absl::NotFoundError(
        absl::StrCat("the cache holds no code for ", variant.id(), " of ", problem.text(), " on ",
                     target_.ToString(), " (request key ", request.hash().ToHex(),
                     ") and the cache policy is offline; ship a pack with it, or allow compiling"));
  }
  return Compile(*std::move(specialization), std::move(fields));
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
  return Compile(refused.specialization,
                 KeyFields(kernel_template, problem, refused.specialization));
}

absl::StatusOr<VariantCode> CodeProvider::Compile(Specialization specialization,
                                                  CodeKeyFields fields) {
  absl::StatusOr<Compiler*> found = toolchains_.For(target_);
  if (!found.ok()) return found.status();
  Compiler& compiler = **found;
  const ToolchainIdentity& identity = compiler.identity();

  CompileRequest request;
  request.label = absl::StrCat(fields.template_name, " ", fields.variant);
  request.source = specialization.source;
  request.entry = specialization.entry;
  request.target = target_;
  if (const auto it = specialization.options.find(identity.compiler);
      it != specialization.options.end()) {
    request.options = it->second;
  }
  fields.compiler = identity.compiler;
  fields.compiler_version = identity.version;
  fields.compiler_build = identity.build;
  fields.options = compiler.Options(request);
  fields.object_format = compiler.ObjectFormat(target_);

  ++counters_.compiles;
  absl::StatusOr<CodeObject> object = compiler.Compile(request);
  if (!object.ok()) {
    ++counters_.failures;
    return object.status();
  }

  VariantCode code;
  code.key = CodeKey(fields).bytes();
  code.compiler = absl::StrCat(identity.compiler, " ", identity.version);
  code.origin = Origin::kCompiled;

  CodeAttributes attributes;
  attributes.entry = object->entry;
  attributes.format = object->format;
  attributes.template_name = fields.template_name;
  attributes.problem = fields.problem;
  attributes.variant = fields.variant;
  attributes.target = target_.ToString();
  attributes.compiler = code.compiler;
  attributes.resources = object->resources;
  attributes.log = object->log;
  CodeEntry entry;
  entry.key = code.key;
  entry.request = CodeRequestKey(fields).bytes();
  entry.attributes = CodeAttributesToJson(attributes);
  entry.object = object->bytes;
  // A cache that cannot take it has said so itself; the code is good all the same.
  store_.PutCode(entry).IgnoreError();

  code.object = std::move(object->bytes);
  code.specialization = std::move(specialization);
  return code;
}

}  // namespace whet
