// Whether a kernel, or one assignment of its parameters, fits a target and a problem.
//
//   absl::StatusOr<std::string> why_not = WhyNotKernel(kernel, target, scope);
//   if (why_not.ok() && why_not->empty()) ...
//
// Functions named WhyNot return an empty text when it fits, one clause when it does not, and
// InvalidArgument when an expression of the template cannot be evaluated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "src/model/expression.h"
#include "src/model/kernel_template.h"
#include "src/model/template_data.h"

namespace whet {

// `scope` is TargetScope: no parameters yet.
absl::StatusOr<std::string> WhyNotKernel(const KernelSpec& kernel, const Target& target,
                                         const Scope& scope);

// Constraints, launch limits of the platform and of the device, tensor maps. `scope` knows the
// parameters; `geometry` receives the launch when it fits.
absl::StatusOr<std::string> WhyNotAssignment(const KernelSpec& kernel, Platform platform,
                                             const DeviceLimits& limits, const Scope& scope,
                                             LaunchGeometry* geometry);

}  // namespace whet
