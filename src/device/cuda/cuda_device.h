// CUDA devices: HIP's NVIDIA platform, over the driver API alone.
//
//   absl::StatusOr<std::unique_ptr<Device>> d = OpenCudaDevice(/*index=*/0, {});
//
// The primary context is used, the one that the CUDA runtime, PyTorch and most applications use. A caller's other current context is left as it is.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "src/device/cuda/cuda_driver.h"
#include "src/device/device.h"
#include "src/device/device_options.h"

namespace whet {

absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(int index, const DeviceOptions& options);
DeviceReport ReportCudaDevices(const DeviceOptions& options);

// The same over a driver that is already open, which must outlive the device. For tests.
absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(int index, const CudaDriver& driver,
                                                       const std::string& nvml_library);

}  // namespace whet
