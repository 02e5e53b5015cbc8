// Clock, power and temperature of an NVIDIA GPU through NVML, opened at run time.
//
//   std::unique_ptr<Nvml> nvml = Nvml::Open("0000:17:00.0");    // null when there is no NVML or no such device
//   TelemetrySample s = nvml->Sample();
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "src/device/device.h"

namespace whet {

// DeviceIdentity::partition of a GPU that is partitioned.
inline constexpr char kMigPartition[] = "MIG";

class Nvml {
 public:
  // `library` is for tests. Never an error: telemetry is optional.
  static std::unique_ptr<Nvml> Open(const std::string& pci_bus_id,
                                    const std::string& library = "libnvidia-ml.so.1");
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // About 0.1 ms; asks the driver, not the device's queue.
  TelemetrySample Sample() const;
  int64_t PowerLimitWatts() const;    // 0 when unknown
  std::string DriverVersion() const;  // empty when unknown
  std::string MigMode() const;        // kMigPartition when partitioned, else empty

 private:
  struct Symbols;
  Nvml(std::unique_ptr<Symbols> symbols, void* device);
  std::unique_ptr<Symbols> symbols_;
  void* device_;
};

}  // namespace whet
