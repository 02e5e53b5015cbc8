// The tensors of one call on a device, and what it takes to launch on them.
//
//   std::unique_ptr<DeviceCall> call = *DeviceCall::Make(runtime.device(), input.tensors);
//   runtime.Launch(t, problem, call->args(), nullptr);
//   OperationTensors after = *call->Download();
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/device/device.h"
#include "src/ops/operation.h"
#include "src/runtime/plan/plan.h"

namespace whet {

// Owns device memory; the device must outlive it. Not thread-safe.
class DeviceCall {
 public:
  // Allocates every present tensor and uploads all of them, outputs' NaN included.
  static absl::StatusOr<std::unique_ptr<DeviceCall>> Make(Device& device,
                                                          const OperationTensors& tensors);
  ~DeviceCall();
  DeviceCall(const DeviceCall&) = delete;
  DeviceCall& operator=(const DeviceCall&) = delete;

  // args()[i] points to the value of argument i, as Plan::Launch takes them.
  void* const* args() { return args_.data(); }

  // Fresh copies of what kernels write; the other tensors are those given to Make. Waits for the
  // default stream.
  absl::StatusOr<OperationTensors> Download();

 private:
  DeviceCall(Device& device, OperationTensors tensors);
  Device& device_;
  OperationTensors host_;
  std::vector<DevicePointer> pointers_;  // one per argument, null for scalars and absent ones
  std::vector<void*> args_;
};

// Time of one launch on the default stream, the median of batches that take about `seconds` in all.
struct LaunchTiming {
  double median_ns = 0;
  double fastest_ns = 0;
  int64_t launches = 0;
};
absl::StatusOr<LaunchTiming> TimeLaunches(Device& device, const Plan& plan, void* const* args,
                                          double seconds);

}  // namespace whet
