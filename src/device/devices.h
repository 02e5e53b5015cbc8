// The devices of this machine, opened on demand.
//
//   absl::StatusOr<std::unique_ptr<Device>> d = OpenDevice(Platform::kCpu, 0, {});
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "src/device/device.h"
#include "src/device/device_options.h"
#include "src/model/target.h"

namespace whet {

// Unavailable when the platform's runtime library or device is not there, NotFound when it has
// fewer devices than `index` asks for, Unimplemented when this build has no such platform; the
// message says what was looked for.
absl::StatusOr<std::unique_ptr<Device>> OpenDevice(Platform platform, int index,
                                                   const DeviceOptions& options);

// Every platform, for `whet doctor`. Opens the vendors' runtimes.
std::vector<DeviceReport> ReportDevices(const DeviceOptions& options);

}  // namespace whet
