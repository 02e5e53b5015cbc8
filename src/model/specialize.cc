#include <algorithm>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "src/model/kernel_fit.h"
#include "src/model/kernel_template.h"
#include "src/model/scopes.h"
#include "src/model/template_data.h"

namespace whet {
namespace {

void Define(std::string& out, absl::string_view macro, absl::string_view value) {
  absl::StrAppend(&out, "#define ", macro, " ", value, "\n");
}

// Safe in every expression; the smallest integer has no literal of its own in C.
std::string IntegerLiteral(int64_t value) {
  if (value == std::numeric_limits<int64_t>::min()) {
    return absl::StrCat("(", value + 1, " - 1)");
  }
  return value < 0 ? absl::StrCat("(", value, ")") : absl::StrCat(value);
}

std::string UpperDTypeMacro(absl::string_view dtype) {
  return absl::StrCat("WHET_", absl::AsciiStrToUpper(dtype));
}

std::string ArchitectureMacro(absl::string_view architecture) {
  std::string macro = absl::StrCat("WHET_ARCH_", architecture);
  std::replace_if(
      macro.begin(), macro.end(),
      [](char c) { return !absl::ascii_isalnum(static_cast<unsigned char>(c)); }, '_');
  return macro;
}

std::string Prelude(const KernelTemplate::Data& data, const Problem& problem, const Scope& scope,
                    const Specialization& unit, const Target& target) {
  std::string out;
  Define(out, absl::StrCat("WHET_PLATFORM_", absl::AsciiStrToUpper(PlatformName(target.platform))),
         "1");
  Define(out, ArchitectureMacro(target.architecture), "1");
  Define(out, "WHET_ENTRY", unit.entry);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kE4M3, DType::kE4M3Fnuz,
                            DType::kE5M2, DType::kI8, DType::kU8, DType::kI32, DType::kI64}) {
    Define(out, UpperDTypeMacro(DTypeName(dtype)), absl::StrCat(static_cast<int>(dtype)));
  }
  for (const auto& [name, value] : problem.fields()) {
    const std::string macro = absl::StrCat("SHAPE_", absl::AsciiStrToUpper(name));
    if (const int64_t* integer = std::get_if<int64_t>(&value)) {
      Define(out, macro, IntegerLiteral(*integer));
    } else if (data.FindField(name)->type == FieldType::kDType) {
      Define(out, macro, UpperDTypeMacro(ValueText(value)));
    } else {
      // MakeProblem lets nothing through that a literal would have to escape.
      Define(out, macro, absl::StrCat("\"", ValueText(value), "\""));
    }
  }
  for (const DerivedSpec& derived : data.derived) {
    Define(out, absl::StrCat("SHAPE_", absl::AsciiStrToUpper(derived.name)),
           IntegerLiteral(std::get<int64_t>(*scope.Find(derived.name))));
  }
  for (const auto& [name, value] : unit.variant.parameters) {
    Define(out, absl::StrCat("TUNE_", absl::AsciiStrToUpper(name)), IntegerLiteral(value));
  }
  Define(out, "LAUNCH_BLOCK_X", absl::StrCat(unit.launch.block[0]));
  Define(out, "LAUNCH_BLOCK_Y", absl::StrCat(unit.launch.block[1]));
  Define(out, "LAUNCH_BLOCK_Z", absl::StrCat(unit.launch.block[2]));
  Define(out, "LAUNCH_SHARED_BYTES", absl::StrCat(unit.launch.shared_bytes));
  return out;
}

// The variant's values in the kernel's order, or what is wrong with them.
absl::StatusOr<std::vector<int64_t>> AssignmentOf(const KernelSpec& kernel, const Variant& variant,
                                                  const std::string& architecture) {
  if (variant.parameters.size() != kernel.parameters.size()) {
    return absl::InvalidArgumentError(absl::StrCat("kernel ", kernel.name, " has ",
                                                   kernel.parameters.size(), " parameters, not ",
                                                   variant.parameters.size()));
  }
  std::vector<int64_t> assignment;
  for (size_t i = 0; i < kernel.parameters.size(); ++i) {
    const ParameterSpec& parameter = kernel.parameters[i];
    const auto& [name, value] = variant.parameters[i];
    if (name != parameter.name) {
      return absl::InvalidArgumentError(absl::StrCat(
          "parameter ", i + 1, " of kernel ", kernel.name, " is ", parameter.name, ", not ", name));
    }
    const std::vector<int64_t>* values = ForArchitecture(parameter.values, architecture);
    if (values == nullptr || std::find(values->begin(), values->end(), value) == values->end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(value, " is not one of the values of ", name, " for ", architecture));
    }
    assignment.push_back(value);
  }
  return assignment;
}

}  // namespace

struct KernelTemplate::Fit {
  const KernelSpec* kernel;
  Scope scope;  // with the parameters
  LaunchGeometry launch;
};

absl::StatusOr<KernelTemplate::Fit> KernelTemplate::FitOf(const Scope& problem,
                                                          const Variant& variant,
                                                          const Target& target,
                                                          const DeviceLimits& limits) const {
  const KernelSpec* const kernel = data_->FindKernel(variant.kernel);
  if (kernel == nullptr) return absl::InvalidArgumentError("there is no such kernel");
  Fit fit = {.kernel = kernel, .scope = TargetScope(target, limits, &problem), .launch = {}};
  absl::StatusOr<std::string> why = WhyNotKernel(*kernel, target, fit.scope);
  if (!why.ok()) return why.status();
  if (!why->empty()) return absl::InvalidArgumentError(*why);
  const absl::StatusOr<std::vector<int64_t>> assignment =
      AssignmentOf(*kernel, variant, target.architecture);
  if (!assignment.ok()) return assignment.status();
  SetParameters(*kernel, *assignment, fit.scope);
  why = WhyNotAssignment(*kernel, target.platform, limits, fit.scope, &fit.launch);
  if (!why.ok()) return why.status();
  if (!why->empty()) return absl::InvalidArgumentError(*why);
  return fit;
}

bool KernelTemplate::Offers(const Problem& problem, const Variant& variant, const Target& target,
                            const DeviceLimits& limits) const {
  const absl::StatusOr<Scope> scope = ScopeOf(problem);
  return scope.ok() && FitOf(*scope, variant, target, limits).ok();
}

absl::StatusOr<Specialization> KernelTemplate::Specialize(const Problem& problem,
                                                          const Variant& variant,
                                                          const Target& target,
                                                          const DeviceLimits& limits) const {
  const absl::StatusOr<Scope> problem_scope = ScopeOf(problem);
  if (!problem_scope.ok()) return problem_scope.status();
  const absl::StatusOr<Fit> fit = FitOf(*problem_scope, variant, target, limits);
  if (!fit.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("cannot specialise ", name(), " ", variant.id(),
                                                   " for ", target.ToString(), " and ",
                                                   problem.text(), ": ", fit.status().message()));
  }
  Specialization unit;
  unit.launch = fit->launch;
  unit.template_name = name();
  unit.variant = variant;
  unit.entry = absl::StrCat(name(), "_", fit->kernel->name);
  unit.options = fit->kernel->options;
  for (const TensorMapSpec& spec : fit->kernel->tensor_maps) {
    TensorMap map = {.name = spec.name,
                     .argument = spec.argument,
                     .box = {},
                     .swizzle_bytes = spec.swizzle_bytes,
                     .interleave = false};
    for (const Expression& extent : spec.box)
      map.box.push_back(*extent.EvaluateInteger(fit->scope));
    if (spec.interleave.has_value()) map.interleave = *spec.interleave->EvaluateBool(fit->scope);
    unit.tensor_maps.push_back(std::move(map));
  }
  unit.source =
      absl::StrCat(Prelude(*data_, problem, fit->scope, unit, target), fit->kernel->source);
  return unit;
}

}  // namespace whet
