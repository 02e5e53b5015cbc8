#include "src/device/hip/amdgpu_sensors.h"

#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "src/base/clock.h"
#include "src/base/files.h"

namespace whet {
namespace {

std::optional<std::string> ReadLine(const std::string& path) {
  absl::StatusOr<std::string> text = ReadFile(path, 4096);
  if (!text.ok()) return std::nullopt;
  return std::string(absl::StripAsciiWhitespace(*text));
}

std::optional<double> ReadNumber(const std::string& path, double unit) {
  const std::optional<std::string> text = ReadLine(path);
  double value = 0;
  if (!text.has_value() || !absl::SimpleAtod(*text, &value)) return std::nullopt;
  return value * unit;
}

}  // namespace

AmdgpuSensors::AmdgpuSensors(const std::string& pci_bus_id, const std::string& sysfs)
    : device_(absl::StrCat(sysfs, "/bus/pci/devices/", pci_bus_id)) {
  const std::string parent = absl::StrCat(device_, "/hwmon");
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(parent);
  if (names.ok() && !names->empty()) hwmon_ = JoinPath(parent, names->front());
}

TelemetrySample AmdgpuSensors::Sample() const {
  TelemetrySample sample;
  sample.monotonic_ns = Clock::Real()->MonotonicNanoseconds();
  if (hwmon_.empty()) return sample;
  sample.clock_mhz = ReadNumber(hwmon_ + "/freq1_input", 1e-6);
  sample.power_watts = ReadNumber(hwmon_ + "/power1_average", 1e-6);
  if (!sample.power_watts.has_value()) {
    sample.power_watts = ReadNumber(hwmon_ + "/power1_input", 1e-6);
  }
  sample.temperature_celsius = ReadNumber(hwmon_ + "/temp2_input", 1e-3);
  if (!sample.temperature_celsius.has_value()) {
    sample.temperature_celsius = ReadNumber(hwmon_ + "/temp1_input", 1e-3);
  }
  return sample;
}

int64_t AmdgpuSensors::PowerCapWatts() const {
  return static_cast<int64_t>(ReadNumber(hwmon_ + "/power1_cap", 1e-6).value_or(0));
}

std::string AmdgpuSensors::Partition() const {
  const std::optional<std::string> compute = ReadLine(device_ + "/current_compute_partition");
  const std::optional<std::string> memory = ReadLine(device_ + "/current_memory_partition");
  if (!compute.has_value()) return "";
  return memory.has_value() ? absl::StrCat(*compute, "/", *memory) : *compute;
}

}  // namespace whet
