// Clock, power and temperature of an AMD GPU from the amdgpu driver's hwmon files: no library, no privileges, no queue of the device involved.
//
//   AmdgpuSensors sensors("0000:03:00.0");
//   TelemetrySample s = sensors.Sample();
#pragma once

#include <cstdint>
#include <string>

#include "src/device/device.h"

namespace whet {

class AmdgpuSensors {
 public:
  // `sysfs` is for tests.
  explicit AmdgpuSensors(const std::string& pci_bus_id, const std::string& sysfs = "/sys");

  // What is not readable stays absent. freq1_input, power1_average (or power1_input), temp2_input (junction; else temp1_input): Linux, Documentation/gpu/amdgpu.
  TelemetrySample Sample() const;
  int64_t PowerCapWatts() const;  // 0 when unknown
  std::string Partition() const;  // "SPX/NPS1"; empty when unknown

 private:
  std::string device_;  // .../bus/pci/devices/<id>
  std::string hwmon_;   // .../hwmon/hwmonN, or empty
};

}  // namespace whet
