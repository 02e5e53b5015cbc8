#include "src/device/devices.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/device/cpu/cpu_device.h"
#include "src/device/cuda/cuda_device.h"

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
    {Platform::kCuda, OpenCudaDevice, ReportCudaDevices},
};

constexpr Platform kKnown[] = {Platform::kCpu, Platform::kHip, Platform::kCuda};

const PlatformEntry* Find(Platform platform) {
  for (const PlatformEntry& entry : kPlatforms) {
    if (entry.platform == platform) return &entry;
  }
  return nullptr;
}

std::string NotInThisBuild(Platform platform) {
  return absl::StrCat("this build has no ", PlatformName(platform), " device");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> OpenDevice(Platform platform, int index,
                                                   const DeviceOptions& options) {
  const PlatformEntry* entry = Find(platform);
  if (entry == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("cannot open a device: ", NotInThisBuild(platform)));
  }
  return entry->open(index, options);
}

std::vector<DeviceReport> ReportDevices(const DeviceOptions& options) {
  std::vector<DeviceReport> reports;
  for (Platform platform : kKnown) {
    const PlatformEntry* entry = Find(platform);
    DeviceReport report;
    if (entry != nullptr) {
      report = entry->report(options);
    } else {
      report.reason = NotInThisBuild(platform);
    }
    report.platform = platform;
    reports.push_back(std::move(report));
  }
  return reports;
}

}  // namespace whet
