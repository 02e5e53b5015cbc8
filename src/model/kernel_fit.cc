#include "src/model/kernel_fit.h"

#include <algorithm>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace whet {
namespace {

constexpr const char* kAxes[3] = {"x", "y", "z"};

struct PlatformLimits {
  int64_t grid[3];
  int64_t block[3];
  int64_t threads;  // of one block
};

constexpr int64_t kAny32 = std::numeric_limits<uint32_t>::max();
// Common to every GPU that CUDA and HIP drive; a CPU block is one call, counted in 32 bits.
constexpr PlatformLimits kGpuLimits = {
    {std::numeric_limits<int32_t>::max(), 65535, 65535}, {1024, 1024, 64}, 1024};
constexpr PlatformLimits kCpuLimits = {{kAny32, kAny32, kAny32}, {kAny32, kAny32, kAny32}, kAny32};

absl::StatusOr<std::string> WhyNotAxes(const std::vector<Expression>& expressions,
                                       absl::string_view what, int64_t least, const int64_t* most,
                                       const Scope& scope, int64_t* out) {
  for (int axis = 0; axis < 3; ++axis) {
    const absl::StatusOr<int64_t> value = expressions[axis].EvaluateInteger(scope);
    if (!value.ok()) return value.status();
    if (*value < least || *value > most[axis]) {
      return absl::StrCat(what, " ", kAxes[axis], " is ", *value, ", outside of ", least, "..",
                          most[axis]);
    }
    out[axis] = *value;
  }
  return std::string();
}

absl::StatusOr<std::string> WhyNotLaunch(const LaunchSpec& launch, Platform platform,
                                         const DeviceLimits& limits, const Scope& scope,
                                         LaunchGeometry& geometry) {
  const PlatformLimits& most = platform == Platform::kCpu ? kCpuLimits : kGpuLimits;
  absl::StatusOr<std::string> why =
      WhyNotAxes(launch.block, "block", 1, most.block, scope, geometry.block);
  if (!why.ok() || !why->empty()) return why;
  // Each factor is below 2^32, so two of them stay below 2^63 only as unsigned: divide instead.
  if (geometry.block[0] > most.threads / geometry.block[1] / geometry.block[2]) {
    return absl::StrCat("block of ", geometry.block[0], " x ", geometry.block[1], " x ",
                        geometry.block[2], " has more than ", most.threads, " threads");
  }
  why = WhyNotAxes(launch.grid, "grid", 0, most.grid, scope, geometry.grid);
  if (!why.ok() || !why->empty()) return why;
  const absl::StatusOr<int64_t> shared = launch.shared_bytes.EvaluateInteger(scope);
  if (!shared.ok()) return shared.status();
  const int64_t shared_max =
      limits.shared_bytes_max > 0 ? limits.shared_bytes_max : std::numeric_limits<int32_t>::max();
  if (*shared < 0 || *shared > shared_max) {
    return absl::StrCat("it takes ", *shared, " bytes of shared memory, a block can have ",
                        shared_max);
  }
  geometry.shared_bytes = *shared;
  if (launch.cluster.empty()) return std::string();
  why = WhyNotAxes(launch.cluster, "cluster", 1, most.block, scope, geometry.cluster);
  if (!why.ok() || !why->empty()) return why;
  for (int axis = 0; axis < 3; ++axis) {
    if (geometry.grid[axis] % geometry.cluster[axis] != 0) {
      return absl::StrCat("grid ", kAxes[axis], " is no multiple of the cluster's ",
                          geometry.cluster[axis]);
    }
  }
  return std::string();
}

}  // namespace

absl::StatusOr<std::string> WhyNotKernel(const KernelSpec& kernel, const Target& target,
                                         const Scope& scope) {
  if (!kernel.IsFor(target.platform)) {
    return absl::StrCat("it is not for ", PlatformName(target.platform));
  }
  const std::string& architecture = target.architecture;
  if (!kernel.targets.empty() &&
      std::none_of(kernel.targets.begin(), kernel.targets.end(),
                   [&](const std::string& glob) { return MatchesGlob(glob, architecture); })) {
    return absl::StrCat("it is not for ", architecture);
  }
  for (const ParameterSpec& parameter : kernel.parameters) {
    if (ForArchitecture(parameter.values, architecture) == nullptr) {
      return absl::StrCat("parameter ", parameter.name, " has no values for ", architecture);
    }
  }
  const absl::StatusOr<bool> when = kernel.when.EvaluateBool(scope);
  if (!when.ok()) return when.status();
  if (!*when) return absl::StrCat("the problem does not satisfy ", kernel.when.text());
  return std::string();
}

absl::StatusOr<std::string> WhyNotAssignment(const KernelSpec& kernel, Platform platform,
                                             const DeviceLimits& limits, const Scope& scope,
                                             LaunchGeometry* geometry) {
  for (const Rule& rule : kernel.constraints) {
    const absl::StatusOr<bool> holds = rule.that.EvaluateBool(scope);
    if (!holds.ok()) return holds.status();
    if (!*holds) return rule.message;
  }
  *geometry = LaunchGeometry();
  absl::StatusOr<std::string> why = WhyNotLaunch(kernel.launch, platform, limits, scope, *geometry);
  if (!why.ok() || !why->empty()) return why;
  constexpr int64_t kBoxMax = 256;
  for (const TensorMapSpec& map : kernel.tensor_maps) {
    for (const Expression& extent : map.box) {
      const absl::StatusOr<int64_t> value = extent.EvaluateInteger(scope);
      if (!value.ok()) return value.status();
      if (*value < 1 || *value > kBoxMax) {
        return absl::StrCat("box of tensor map ", map.name, " has an extent of ", *value,
                            ", outside of 1..", kBoxMax);
      }
    }
    if (map.interleave.has_value()) {
      const absl::StatusOr<bool> interleave = map.interleave->EvaluateBool(scope);
      if (!interleave.ok()) return interleave.status();
    }
  }
  return std::string();
}

}  // namespace whet
