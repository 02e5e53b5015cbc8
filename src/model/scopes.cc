#include "src/model/scopes.h"

#include <algorithm>
#include <array>
#include <string>

namespace whet {
namespace {

constexpr const char* kPlatform = "platform";
constexpr const char* kArchitecture = "arch";
constexpr const char* kComputeUnits = "compute_units";
constexpr const char* kL2Bytes = "l2_bytes";
constexpr const char* kSharedBytesMax = "shared_bytes_max";

}  // namespace

absl::StatusOr<Scope> ProblemScope(const KernelTemplate::Data& data, const FieldValues& fields) {
  Scope scope;
  for (const auto& [name, value] : fields) scope.Set(name, value);
  for (const DerivedSpec& derived : data.derived) {
    const absl::StatusOr<int64_t> value = derived.value.EvaluateInteger(scope);
    if (!value.ok()) return value.status();
    scope.Set(derived.name, *value);
  }
  return scope;
}

Scope TargetScope(const Target& target, const DeviceLimits& limits, const Scope* parent) {
  Scope scope(parent);
  scope.Set(kPlatform, std::string(PlatformName(target.platform)));
  scope.Set(kArchitecture, target.architecture);
  scope.Set(kComputeUnits, limits.compute_units);
  scope.Set(kL2Bytes, limits.l2_bytes);
  scope.Set(kSharedBytesMax, limits.shared_bytes_max);
  scope.SetFeatures(target.features);
  return scope;
}

void SetParameters(const KernelSpec& kernel, const std::vector<int64_t>& values, Scope& scope) {
  for (size_t i = 0; i < kernel.parameters.size(); ++i) {
    scope.Set(kernel.parameters[i].name, values[i]);
  }
}

bool IsReservedName(absl::string_view name) {
  // Functions too: "min" beside "min(...)" would only confuse.
  constexpr std::array<absl::string_view, 11> kReserved = {
      kPlatform,  kArchitecture, kComputeUnits, kL2Bytes, kSharedBytesMax, "min", "max",
      "ceil_div", "round_up",    "next_pow2",   "has"};
  return std::find(kReserved.begin(), kReserved.end(), name) != kReserved.end();
}

}  // namespace whet
