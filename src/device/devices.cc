#include "src/device/devices.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/device/cpu/cpu_device.h"
#include "src/device/cuda/cuda_device.h"
#include "src/device/hip/hip_device.h"

namespace whet {
namespace {

struct PlatformEntry {
  Platform platform;
  absl::StatusOr<std::unique_ptr<Device>> (*open)(int index, const DeviceOptions& options);
  DeviceReport (*report)(const DeviceOptions& options);
};

// A platform is a folder and one line here.
constexpr PlatformEntry kPlatforms[] = {
    {Platform::kCpu, OpenCpuDevice, ReportCpuDevices},
    {Platform::kHip, OpenHipDevice, ReportHipDevices},
    {Platform::kCuda, OpenCudaDevice, ReportCudaDevices},
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> OpenDevice(Platform platform, int index,
                                                   const DeviceOptions& options) {
  for (const PlatformEntry& entry : kPlatforms) {
    if (entry.platform == platform) return entry.open(index, options);
  }
  return absl::UnimplementedError(absl::StrCat("cannot open a device: this build has no platform ",
                                               static_cast<int>(platform)));
}

std::vector<DeviceReport> ReportDevices(const DeviceOptions& options) {
  std::vector<DeviceReport> reports;
  for (const PlatformEntry& entry : kPlatforms) reports.push_back(entry.report(options));
  return reports;
}

}  // namespace whet
