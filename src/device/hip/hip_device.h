// AMD GPUs, over the HIP runtime's module API.
//
//   absl::StatusOr<std::unique_ptr<Device>> d = OpenHipDevice(/*index=*/0, {});
//
// HIP's current device is a property of the thread; it is set where it differs, and given back.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "src/device/device.h"
#include "src/device/device_options.h"
#include "src/device/hip/hip_runtime.h"

namespace whet {

absl::StatusOr<std::unique_ptr<Device>> OpenHipDevice(int index, const DeviceOptions& options);
DeviceReport ReportHipDevices(const DeviceOptions& options);

// The same over a runtime that is already open, which must outlive the device. For tests.
absl::StatusOr<std::unique_ptr<Device>> OpenHipDevice(int index, const HipRuntime& hip,
                                                      const std::string& sysfs);

}  // namespace whet
