#include "src/model/kernel_template.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "src/model/key.h"
#include "src/model/scopes.h"
#include "src/model/template_data.h"
#include "src/model/template_reader.h"

namespace whet {

DeviceLimits DeviceLimits::Of(const DeviceIdentity& identity) {
  return {.compute_units = identity.compute_units,
          .l2_bytes = identity.l2_bytes,
          .shared_bytes_max = identity.shared_bytes_max};
}

const KernelSpec* KernelTemplate::Data::FindKernel(absl::string_view kernel) const {
  for (const KernelSpec& known : kernels) {
    if (known.name == kernel) return &known;
  }
  return nullptr;
}

const FieldSpec* KernelTemplate::Data::FindField(absl::string_view field) const {
  for (const FieldSpec& known : fields) {
    if (known.name == field) return &known;
  }
  return nullptr;
}

int KernelTemplate::Data::ArgumentIndex(absl::string_view argument) const {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name == argument) return static_cast<int>(i);
  }
  return -1;
}

KernelTemplate::KernelTemplate(std::shared_ptr<const Data> data) : data_(std::move(data)) {}

absl::StatusOr<KernelTemplate> KernelTemplate::Parse(const std::string& name,
                                                     const TemplateFiles& files,
                                                     std::optional<Platform> only) {
  absl::StatusOr<Data> data = ReadTemplate(name, files, only);
  if (!data.ok()) return data.status();
  const absl::Status checked = CheckTemplate(*data);
  if (!checked.ok()) return checked;
  return KernelTemplate(std::make_shared<const Data>(*std::move(data)));
}

const std::string& KernelTemplate::name() const { return data_->name; }

int64_t KernelTemplate::version() const { return data_->version; }

const std::string& KernelTemplate::summary() const { return data_->summary; }

double KernelTemplate::Tolerance(DType dtype) const {
  const auto found = data_->tolerance.find(dtype);
  return found == data_->tolerance.end() ? 0 : found->second;
}

Hash128 KernelTemplate::KernelDigest(absl::string_view kernel) const {
  const KernelSpec* found = data_->FindKernel(kernel);
  if (found == nullptr) return KeyRecord("unknown_kernel").Add("name", kernel).hash();
  return found->digest;
}

Hash128 KernelTemplate::VariantSetDigest(Platform platform) const {
  KeyRecord record("variant_set");
  // A kernel's expressions see the derived values, so these decide the set too.
  for (const DerivedSpec& derived : data_->derived) {
    record.Add(derived.name, derived.value.text());
  }
  for (const KernelSpec& kernel : data_->kernels) {
    if (kernel.IsFor(platform)) record.Add(kernel.name, kernel.digest.ToHex());
  }
  return record.hash();
}

absl::StatusOr<Scope> KernelTemplate::ScopeOf(const Problem& problem) const {
  if (problem.operation() == name()) return ProblemScope(*data_, problem.fields());
  return absl::InvalidArgumentError(absl::StrCat(problem.text(), " is not a problem of ", name()));
}

absl::StatusOr<std::vector<Argument>> KernelTemplate::Arguments(const Problem& problem) const {
  const absl::StatusOr<Scope> scope = ScopeOf(problem);
  if (!scope.ok()) return scope.status();
  std::vector<Argument> out;
  for (const ArgumentSpec& spec : data_->arguments) {
    absl::StatusOr<Argument> argument = EvaluateArgument(spec, problem, *scope);
    if (!argument.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("argument ", spec.name, " of ", problem.text(),
                                                     ": ", argument.status().message()));
    }
    out.push_back(*std::move(argument));
  }
  return out;
}

}  // namespace whet
