// The names that a template's expressions may use, with their values.
//
//   absl::StatusOr<Scope> problem_scope = ProblemScope(data, fields);
//   Scope scope = TargetScope(target, limits, &*problem_scope);
//   SetParameters(kernel, values, scope);
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "src/model/expression.h"
#include "src/model/kernel_template.h"
#include "src/model/template_data.h"

namespace whet {

// Fields and derived values. InvalidArgument when a derived value cannot be evaluated.
absl::StatusOr<Scope> ProblemScope(const KernelTemplate::Data& data, const FieldValues& fields);

// platform, arch, features and limits, on top of `parent`, which must outlive the result.
Scope TargetScope(const Target& target, const DeviceLimits& limits, const Scope* parent);

// One value for each parameter of the kernel, in order.
void SetParameters(const KernelSpec& kernel, const std::vector<int64_t>& values, Scope& scope);

// Whether the name already means something in every expression, so that no field may have it.
bool IsReservedName(absl::string_view name);

}  // namespace whet
