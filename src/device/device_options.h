// What a device is opened with, and what is said of a platform's devices: shared by devices.h and
// the platforms' folders.
#pragma once

#include <string>
#include <vector>

#include "src/model/device_identity.h"
#include "src/model/target.h"

namespace whet {

struct DeviceOptions {
  int cpu_threads = 0;  // 0: AvailableProcessors()
};

struct DeviceReport {
  Platform platform = Platform::kCpu;
  std::vector<DeviceIdentity> devices;
  std::string reason;  // when there are none
};

}  // namespace whet
