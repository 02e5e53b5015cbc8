// What Linux says of this machine's processor: identity, free memory, clock, power, temperature.
//
//   DeviceIdentity identity = ReadCpuIdentity("/", HostCpuTarget(), /*threads=*/8);
//   CpuTelemetry telemetry("/");
//   TelemetrySample s = telemetry.Sample();
//
// `root` stands before /proc and /sys; other than "/" only in tests. Whatever cannot be read is
// left empty.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/base/mutex.h"
#include "src/device/device.h"
#include "src/model/device_identity.h"

namespace whet {

DeviceIdentity ReadCpuIdentity(const std::string& root, Target target, int threads);

// Memory that can be allocated without swapping, bounded by the control group; -1 when unknown.
int64_t ReadAvailableMemory(const std::string& root);

// Thread-safe. Power is the energy counters' mean since the previous sample, so the first sample
// has none.
class CpuTelemetry {
 public:
  explicit CpuTelemetry(std::string root);
  TelemetrySample Sample();

 private:
  std::optional<double> Clock() const;
  std::optional<double> Temperature() const;
  std::optional<double> Power(int64_t now_ns);

  struct EnergyCounter {
    std::string path;
    double range_uj = 0;  // it wraps here
    double last_uj = -1;
  };
  const std::string root_;
  std::vector<std::string> temperature_paths_;
  std::vector<std::string> clock_paths_;
  Mutex mutex_;
  std::vector<EnergyCounter> energy_ ABSL_GUARDED_BY(mutex_);
  int64_t last_ns_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace whet
