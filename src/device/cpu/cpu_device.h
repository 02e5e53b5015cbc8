// The processor as a device: kernels are shared objects, blocks run on a pool of threads.
//
//   absl::StatusOr<std::unique_ptr<Device>> d = OpenCpuDevice(0, {.cpu_threads = 4});
//
// The null stream is the caller's own thread: a call on it returns when the work is done, and it
// waits for no other stream. A created stream is a queue with a thread of its own: calls return at
// once and the work is done in order. A launch on a created stream needs the sizes of the kernel's
// parameters (Kernel::SetParameters) to take a copy of them; without, it waits until the stream has
// come to it and its blocks are done. "Device memory" is ordinary memory: any host pointer will do.
//
// Kernels must not throw and must not end the process; code for features that this processor lacks
// dies of an illegal instruction, so targets are the compiler's and the cache key's business.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "src/device/device.h"
#include "src/device/device_options.h"

namespace whet {

// NotFound for any index but 0.
absl::StatusOr<std::unique_ptr<Device>> OpenCpuDevice(int index, const DeviceOptions& options);

DeviceReport ReportCpuDevices(const DeviceOptions& options);

}  // namespace whet
