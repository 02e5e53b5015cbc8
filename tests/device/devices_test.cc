#include "src/device/devices.h"

#include "gtest/gtest.h"

namespace whet {
namespace {

TEST(DevicesTest, EveryPlatformOpensOrSaysWhyNot) {
  const std::vector<DeviceReport> reports = ReportDevices({.cpu_threads = 2});
  ASSERT_EQ(reports.size(), 3u);
  for (const DeviceReport& report : reports) {
    SCOPED_TRACE(PlatformName(report.platform));
    const absl::StatusOr<std::unique_ptr<Device>> device =
        OpenDevice(report.platform, 0, {.cpu_threads = 2});
    EXPECT_EQ(device.ok(), !report.devices.empty());
    if (report.devices.empty()) {
      EXPECT_FALSE(report.reason.empty());
    } else {
      EXPECT_EQ((*device)->identity().product, report.devices[0].product);
    }
  }
}

TEST(DevicesTest, ThereIsOneCpu) {
  EXPECT_TRUE(OpenDevice(Platform::kCpu, 0, {}).ok());
  EXPECT_EQ(OpenDevice(Platform::kCpu, 1, {}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(OpenDevice(Platform::kCpu, -1, {}).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace whet
