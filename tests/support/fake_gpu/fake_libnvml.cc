// The double of libnvidia-ml.so.1: one GPU of 700 W that is not partitioned.

#include <cstring>

extern "C" {

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device) {
  *device = const_cast<char*>(bus_id);
  return 0;
}
int nvmlDeviceGetClockInfo(void*, int, unsigned* mhz) {
  *mhz = 1980;
  return 0;
}
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
  *milliwatts = 120'000;
  return 0;
}
int nvmlDeviceGetTemperature(void*, int, unsigned* celsius) {
  *celsius = 40;
  return 0;
}
int nvmlDeviceGetEnforcedPowerLimit(void*, unsigned* milliwatts) {
  *milliwatts = 700'000;
  return 0;
}
int nvmlDeviceGetMigMode(void*, unsigned* current, unsigned* pending) {
  *current = *pending = 0;
  return 0;
}
int nvmlSystemGetDriverVersion(char* version, unsigned length) {
  std::strncpy(version, "580.1", length);
  return 0;
}

}  // extern "C"
