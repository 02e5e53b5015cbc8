#include "src/device/cuda/nvml.h"

#include <dlfcn.h>

#include <utility>

#include "src/base/clock.h"

namespace whet {

#define WHET_NVML_SYMBOLS(X)                                                    \
  X(nvmlInit_v2, ())                                                            \
  X(nvmlShutdown, ())                                                           \
  X(nvmlDeviceGetHandleByPciBusId_v2, (const char* bus_id, void** device))      \
  X(nvmlDeviceGetClockInfo, (void* device, int type, unsigned* mhz))            \
  X(nvmlDeviceGetPowerUsage, (void* device, unsigned* milliwatts))              \
  X(nvmlDeviceGetTemperature, (void* device, int sensor, unsigned* celsius))    \
  X(nvmlDeviceGetEnforcedPowerLimit, (void* device, unsigned* milliwatts))      \
  X(nvmlDeviceGetMigMode, (void* device, unsigned* current, unsigned* pending)) \
  X(nvmlSystemGetDriverVersion, (char* version, unsigned length))

struct Nvml::Symbols {
  void* handle = nullptr;
#define WHET_NVML_DECLARE(symbol, parameters) int(*symbol) parameters = nullptr;
  WHET_NVML_SYMBOLS(WHET_NVML_DECLARE)
#undef WHET_NVML_DECLARE
};

std::unique_ptr<Nvml> Nvml::Open(const std::string& pci_bus_id, const std::string& library) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return nullptr;
  auto symbols = std::make_unique<Symbols>();
  symbols->handle = handle;
  bool complete = true;
#define WHET_NVML_RESOLVE(symbol, parameters)                                    \
  symbols->symbol = reinterpret_cast<int(*) parameters>(dlsym(handle, #symbol)); \
  complete = complete && symbols->symbol != nullptr;
  WHET_NVML_SYMBOLS(WHET_NVML_RESOLVE)
#undef WHET_NVML_RESOLVE
  // About 10 ms, and the handle 6 more. NVML_INIT_FLAG_NO_ATTACH is no way round: no handle can be had after it.
  if (!complete || symbols->nvmlInit_v2() != 0) {
    dlclose(handle);
    return nullptr;
  }
  void* device = nullptr;
  if (symbols->nvmlDeviceGetHandleByPciBusId_v2(pci_bus_id.c_str(), &device) != 0) {
    symbols->nvmlShutdown();
    dlclose(handle);
    return nullptr;
  }
  return std::unique_ptr<Nvml>(new Nvml(std::move(symbols), device));
}

Nvml::Nvml(std::unique_ptr<Symbols> symbols, void* device)
    : symbols_(std::move(symbols)), device_(device) {}

Nvml::~Nvml() {
  symbols_->nvmlShutdown();
  dlclose(symbols_->handle);
}

TelemetrySample Nvml::Sample() const {
  constexpr int kSmClock = 1;
  constexpr int kGpuSensor = 0;
  TelemetrySample sample;
  sample.monotonic_ns = Clock::Real()->MonotonicNanoseconds();
  unsigned value = 0;
  if (symbols_->nvmlDeviceGetClockInfo(device_, kSmClock, &value) == 0) sample.clock_mhz = value;
  if (symbols_->nvmlDeviceGetPowerUsage(device_, &value) == 0) sample.power_watts = value / 1000.0;
  if (symbols_->nvmlDeviceGetTemperature(device_, kGpuSensor, &value) == 0) {
    sample.temperature_celsius = value;
  }
  return sample;
}

int64_t Nvml::PowerLimitWatts() const {
  unsigned milliwatts = 0;
  return symbols_->nvmlDeviceGetEnforcedPowerLimit(device_, &milliwatts) == 0 ? milliwatts / 1000
                                                                              : 0;
}

std::string Nvml::DriverVersion() const {
  char version[96] = {};
  return symbols_->nvmlSystemGetDriverVersion(version, sizeof(version)) == 0 ? version : "";
}

std::string Nvml::MigMode() const {
  unsigned current = 0, pending = 0;
  return symbols_->nvmlDeviceGetMigMode(device_, &current, &pending) == 0 && current != 0
             ? kMigPartition
             : "";
}

}  // namespace whet
