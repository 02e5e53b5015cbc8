// The devices of this machine, opened on demand.
//
//   absl::StatusOr<std::unique_ptr<Device>> d = OpenDevice(Platform::kCpu, 0, {});
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "src/device/device.h"
#include "src/model/target.h"

namespace whet {

struct DeviceOptions {
  int cpu_threads = 0;  // 0: AvailableProcessors()
};

// Unavailable when the platform's runtime library or device is not there, Unimplemented when this
// build has no such platform; the message says what was looked for.
absl::StatusOr<std::unique_ptr<Device>> OpenDevice(Platform platform, int index,
                                                   const DeviceOptions& options);

struct DeviceReport {
  Platform platform = Platform::kCpu;
  std::vector<DeviceIdentity> devices;
  std::string reason;  // when there are none
};

// Every platform, for `whet doctor`. Opens the vendors' runtimes.
std::vector<DeviceReport> ReportDevices(const DeviceOptions& options);

}  // namespace whet
