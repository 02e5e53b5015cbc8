// The double of libamdhip64.so: thin names over fake_gpu_core. Built twice: as HIP 6 and later, and (FAKE_HIP5) as HIP 5, whose properties
// structure is another and whose function for it has another name.

#include <cstring>

#include "src/device/hip/hip_runtime.h"
#include "tests/support/fake_gpu/fake_gpu_core.h"

using namespace fake_gpu;
using whet::HipResult;

#ifdef FAKE_HIP5
#define FAKE_PROPERTIES hipGetDeviceProperties
constexpr size_t kArchitectureOffset = 396;
#else
#define FAKE_PROPERTIES hipGetDevicePropertiesR0600
constexpr size_t kArchitectureOffset = 1160;
#endif

extern "C" {

HipResult hipInit(unsigned) {
  FAKE_GPU_ENTER(false);
  return control.device_count > 0 ? 0 : 100;
}
const char* hipGetErrorName(HipResult error) { return ErrorName(error); }
HipResult hipRuntimeGetVersion(int* version) {
  FAKE_GPU_ENTER(false);
  *version = 70051831;
  return 0;
}
HipResult hipGetDeviceCount(int* count) {
  FAKE_GPU_ENTER(false);
  *count = control.device_count;
  return control.device_count > 0 ? 0 : 100;
}
HipResult hipGetDevice(int* device) {
  FAKE_GPU_ENTER(false);
  *device = S().current_device;
  return 0;
}
HipResult hipSetDevice(int device) {
  FAKE_GPU_ENTER(false);
  if (device < 0 || device >= control.device_count) return kInvalidDevice;
  S().current_device = device;
  return 0;
}
HipResult hipDeviceGetName(char* name, int length, int) {
  FAKE_GPU_ENTER(false);
  // A name that looks like an architecture must not be taken for one.
  std::strncpy(name, "gfx Fake MI355X", static_cast<size_t>(length));
  return 0;
}
HipResult hipDeviceTotalMem(size_t* bytes, int) {
  FAKE_GPU_ENTER(false);
  *bytes = static_cast<size_t>(control.memory_bytes);
  return 0;
}
HipResult hipDeviceGetAttribute(int* value, int attribute, int) {
  FAKE_GPU_ENTER(false);
  static const std::map<int, int> values = {{19, 4 << 20}, {63, 256}, {67, 3},
                                            {68, 0},       {69, 0},   {74, 163840}};
  const auto it = values.find(attribute);
  if (it == values.end()) return kInvalidValue;
  *value = it->second;
  return 0;
}
HipResult FAKE_PROPERTIES(void* properties, int device) {
  FAKE_GPU_ENTER(false);
  if (device < 0 || device >= control.device_count) return kInvalidDevice;
  auto* bytes = static_cast<char*>(properties);
  std::strcpy(bytes, "gfx Fake MI355X");
  std::strcpy(bytes + kArchitectureOffset, "gfx950:sramecc+:xnack-");
  return 0;
}
HipResult hipModuleLoadData(void** module, const void* image) {
  FAKE_GPU_ENTER(true);
  return LoadModule(module, image, "gfx950");
}
HipResult hipModuleUnload(void* module) {
  FAKE_GPU_ENTER(true);
  return UnloadModule(module);
}
HipResult hipModuleGetFunction(void** function, void* module, const char* name) {
  FAKE_GPU_ENTER(true);
  return FindKernel(function, module, name);
}
HipResult hipModuleLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                unsigned by, unsigned bz, unsigned shared_bytes, void*,
                                void** params, void**) {
  FAKE_GPU_ENTER(true);
  if (shared_bytes > 163840) return kInvalidValue;
  return Launch(function, {gx, gy, gz}, {bx, by, bz}, {1, 1, 1}, shared_bytes, params);
}
HipResult hipMalloc(void** pointer, size_t bytes) {
  FAKE_GPU_ENTER(true);
  if (bytes == 0) {
    *pointer = nullptr;
    return 0;
  }
  return Allocate(pointer, bytes);
}
HipResult hipFree(void* pointer) {
  FAKE_GPU_ENTER(true);
  return pointer == nullptr ? 0 : Free(pointer);
}
HipResult hipMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  FAKE_GPU_ENTER(true);
  MemoryInfo(free_bytes, total_bytes);
  return 0;
}
HipResult hipMemcpyAsync(void* to, const void* from, size_t bytes, int kind, void* stream) {
  FAKE_GPU_ENTER(true);
  if (kind != 4) return kInvalidValue;
  std::memmove(to, from, bytes);
  return CheckStream(stream);
}
HipResult hipMemsetAsync(void* to, int value, size_t bytes, void* stream) {
  FAKE_GPU_ENTER(true);
  std::memset(to, value, bytes);
  return CheckStream(stream);
}
HipResult hipStreamCreateWithFlags(void** stream, unsigned) {
  FAKE_GPU_ENTER(true);
  CreateStream(stream);
  return 0;
}
HipResult hipStreamDestroy(void* stream) {
  FAKE_GPU_ENTER(true);
  return DestroyStream(stream);
}
HipResult hipStreamSynchronize(void* stream) {
  FAKE_GPU_ENTER(true);
  return CheckStream(stream);
}
HipResult hipStreamIsCapturing(void*, int* status) {
  FAKE_GPU_ENTER(true);
  return IsCapturing(status);
}
HipResult hipEventCreateWithFlags(void** event, unsigned) {
  FAKE_GPU_ENTER(true);
  CreateEvent(event);
  return 0;
}
HipResult hipEventDestroy(void* event) {
  FAKE_GPU_ENTER(true);
  return DestroyEvent(event);
}
HipResult hipEventRecord(void* event, void*) {
  FAKE_GPU_ENTER(true);
  return RecordEvent(event);
}
HipResult hipEventSynchronize(void* event) {
  FAKE_GPU_ENTER(true);
  return CheckEvent(event);
}
HipResult hipEventQuery(void* event) {
  FAKE_GPU_ENTER(true);
  return QueryEvent(event);
}
HipResult hipEventElapsedTime(float* milliseconds, void* begin, void* end) {
  FAKE_GPU_ENTER(true);
  return ElapsedTime(milliseconds, begin, end);
}

}  // extern "C"
