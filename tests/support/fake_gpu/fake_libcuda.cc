// The double of libcuda.so.1: thin names over fake_gpu_core.

#include <cstring>

#include "src/device/cuda/cuda_driver.h"
#include "tests/support/fake_gpu/fake_gpu_core.h"

namespace {

using namespace fake_gpu;
using whet::CuDevicePointer;
using whet::CuLaunchConfig;
using whet::CuResult;

void* const kPrimaryContext = &S();

void* Pointer(CuDevicePointer address) { return reinterpret_cast<void*>(address); }

}  // namespace

// As in the driver, a call that touches a context fails when none is current.
#define ENTER_CONTEXT   \
  FAKE_GPU_ENTER(true); \
  if (S().current != kPrimaryContext) return kInvalidContext

extern "C" {

CuResult cuInit(unsigned) {
  FAKE_GPU_ENTER(false);
  return control.device_count > 0 ? 0 : 100;
}
CuResult cuDriverGetVersion(int* version) {
  FAKE_GPU_ENTER(false);
  *version = 13000;
  return 0;
}
CuResult cuGetErrorName(CuResult error, const char** name) {
  *name = ErrorName(error);
  return 0;
}
CuResult cuDeviceGetCount(int* count) {
  FAKE_GPU_ENTER(false);
  *count = control.device_count;
  return 0;
}
CuResult cuDeviceGet(int* device, int ordinal) {
  FAKE_GPU_ENTER(false);
  if (ordinal < 0 || ordinal >= control.device_count) return kInvalidDevice;
  *device = ordinal;
  return 0;
}
CuResult cuDeviceGetName(char* name, int length, int) {
  FAKE_GPU_ENTER(false);
  std::strncpy(name, "Fake H200", static_cast<size_t>(length));
  return 0;
}
CuResult cuDeviceTotalMem_v2(size_t* bytes, int) {
  FAKE_GPU_ENTER(false);
  *bytes = static_cast<size_t>(control.memory_bytes);
  return 0;
}
CuResult cuDeviceGetAttribute(int* value, int attribute, int) {
  FAKE_GPU_ENTER(false);
  static const std::map<int, int> values = {{16, 132}, {33, 0x17}, {34, 0}, {38, 50 << 20},
                                            {50, 0},   {75, 9},    {76, 0}, {97, 232448}};
  const auto it = values.find(attribute);
  if (it == values.end()) return kInvalidValue;
  *value = it->second;
  return 0;
}
CuResult cuDevicePrimaryCtxRetain(void** context, int) {
  FAKE_GPU_ENTER(false);
  ++control.primary_context_references;
  *context = kPrimaryContext;
  return 0;
}
CuResult cuDevicePrimaryCtxRelease_v2(int) {
  FAKE_GPU_ENTER(false);
  --control.primary_context_references;
  return 0;
}
CuResult cuCtxGetCurrent(void** context) {
  FAKE_GPU_ENTER(false);
  *context = S().current;
  return 0;
}
CuResult cuCtxPushCurrent_v2(void* context) {
  FAKE_GPU_ENTER(false);
  S().stack.push_back(S().current);
  S().current = context;
  return 0;
}
CuResult cuCtxPopCurrent_v2(void** context) {
  FAKE_GPU_ENTER(false);
  if (S().stack.empty()) return kInvalidContext;
  *context = S().current;
  S().current = S().stack.back();
  S().stack.pop_back();
  return 0;
}
CuResult cuModuleLoadDataEx(void** module, const void* image, unsigned, int*, void**) {
  ENTER_CONTEXT;
  return LoadModule(module, image, "sm_90a");
}
CuResult cuModuleUnload(void* module) {
  ENTER_CONTEXT;
  return UnloadModule(module);
}
CuResult cuModuleGetFunction(void** function, void* module, const char* name) {
  ENTER_CONTEXT;
  return FindKernel(function, module, name);
}
CuResult cuFuncSetAttribute(void* function, int attribute, int value) {
  ENTER_CONTEXT;
  if (function == nullptr) return kInvalidHandle;
  if (attribute == 8 && value > 232448) return kInvalidValue;
  return 0;
}
CuResult cuFuncLoad(void* function) {
  ENTER_CONTEXT;
  return function == nullptr ? kInvalidHandle : 0;
}
CuResult cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned shared_bytes, void*, void** params,
                        void**) {
  ENTER_CONTEXT;
  return Launch(function, {gx, gy, gz}, {bx, by, bz}, {1, 1, 1}, shared_bytes, params);
}
CuResult cuLaunchKernelEx(const CuLaunchConfig* c, void* function, void** params, void**) {
  ENTER_CONTEXT;
  unsigned cluster[3] = {1, 1, 1};
  for (unsigned i = 0; i < c->attribute_count; ++i) {
    if (c->attributes[i].id != whet::kCuLaunchAttributeClusterDimension) continue;
    const auto& value = c->attributes[i].value.cluster;
    cluster[0] = value.x;
    cluster[1] = value.y;
    cluster[2] = value.z;
    if (c->grid_x % value.x != 0 || c->grid_y % value.y != 0 || c->grid_z % value.z != 0)
      return 912;
  }
  return Launch(function, {c->grid_x, c->grid_y, c->grid_z}, {c->block_x, c->block_y, c->block_z},
                cluster, c->shared_bytes, params);
}
CuResult cuMemAlloc_v2(CuDevicePointer* pointer, size_t bytes) {
  ENTER_CONTEXT;
  void* memory = nullptr;
  const int error = Allocate(&memory, bytes);
  *pointer = reinterpret_cast<uintptr_t>(memory);
  return error;
}
CuResult cuMemFree_v2(CuDevicePointer pointer) {
  ENTER_CONTEXT;
  return Free(Pointer(pointer));
}
CuResult cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  ENTER_CONTEXT;
  MemoryInfo(free_bytes, total_bytes);
  return 0;
}
CuResult cuMemcpyAsync(CuDevicePointer to, CuDevicePointer from, size_t bytes, void* stream) {
  ENTER_CONTEXT;
  std::memmove(Pointer(to), Pointer(from), bytes);
  return CheckStream(stream);
}
CuResult cuMemsetD8Async(CuDevicePointer to, unsigned char value, size_t bytes, void* stream) {
  ENTER_CONTEXT;
  std::memset(Pointer(to), value, bytes);
  return CheckStream(stream);
}
CuResult cuStreamCreate(void** stream, unsigned) {
  ENTER_CONTEXT;
  CreateStream(stream);
  return 0;
}
CuResult cuStreamDestroy_v2(void* stream) {
  ENTER_CONTEXT;
  return DestroyStream(stream);
}
CuResult cuStreamSynchronize(void* stream) {
  ENTER_CONTEXT;
  return CheckStream(stream);
}
CuResult cuStreamIsCapturing(void*, int* status) {
  ENTER_CONTEXT;
  return IsCapturing(status);
}
CuResult cuEventCreate(void** event, unsigned) {
  ENTER_CONTEXT;
  CreateEvent(event);
  return 0;
}
CuResult cuEventDestroy_v2(void* event) {
  ENTER_CONTEXT;
  return DestroyEvent(event);
}
CuResult cuEventRecord(void* event, void*) {
  ENTER_CONTEXT;
  return RecordEvent(event);
}
CuResult cuEventSynchronize(void* event) {
  ENTER_CONTEXT;
  return CheckEvent(event);
}
CuResult cuEventQuery(void* event) {
  ENTER_CONTEXT;
  return QueryEvent(event);
}
CuResult cuEventElapsedTime(float* milliseconds, void* begin, void* end) {
  ENTER_CONTEXT;
  return ElapsedTime(milliseconds, begin, end);
}
// The layout is the double's own, but as in the real one the address comes first and touches nothing else.
CuResult cuTensorMapEncodeTiled(void* map, int data_type, unsigned rank, void* address,
                                const uint64_t* dims, const uint64_t* strides, const unsigned* box,
                                const unsigned* steps, int, int swizzle, int, int) {
  ENTER_CONTEXT;
  if (rank < 1 || rank > 5 || reinterpret_cast<uintptr_t>(address) % 16 != 0) return kInvalidValue;
  for (unsigned i = 0; i + 1 < rank; ++i) {
    if (strides[i] % 16 != 0 || strides[i] == 0) return kInvalidValue;
  }
  auto* words = static_cast<uint64_t*>(map);
  std::memset(map, 0, 128);
  words[0] = reinterpret_cast<uintptr_t>(address);
  words[1] = static_cast<uint64_t>(data_type) << 8 | static_cast<uint64_t>(swizzle);
  for (unsigned i = 0; i < rank; ++i) {
    if (dims[i] == 0 || box[i] == 0 || box[i] > 256) return kInvalidValue;
    words[2 + i] = dims[i];
    words[7 + i] = box[i] | static_cast<uint64_t>(steps[i]) << 32;
  }
  return 0;
}

}  // extern "C"
