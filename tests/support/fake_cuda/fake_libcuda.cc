#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "src/device/cuda/cuda_driver.h"
#include "tests/support/fake_cuda/fake_cuda.h"

namespace {

using whet::CuDevicePointer;
using whet::CuLaunchConfig;
using whet::CuResult;

constexpr CuResult kInvalidValue = 1, kOutOfMemory = 2, kInvalidDevice = 101, kInvalidImage = 200,
                   kInvalidContext = 201, kNoBinaryForGpu = 209, kInvalidHandle = 400,
                   kNotFound = 500, kIllegalAddress = 700;

using KernelBody = void (*)(FakeCudaControl& control, void** params);

struct KernelEntry {
  const char* name;
  KernelBody body;
};

const KernelEntry kFakeKernels[] = {
    {"add_one",
     [](FakeCudaControl&, void** params) {
       float* x = *static_cast<float**>(params[0]);
       const int32_t n = *static_cast<int32_t*>(params[1]);
       for (int32_t i = 0; i < n; ++i) x[i] += 1;
     }},
    {"fault", [](FakeCudaControl& control, void**) { control.sticky_error = kIllegalAddress; }},
};

struct Event {
  std::chrono::steady_clock::time_point at;
  bool recorded = false;
};

struct State {
  std::mutex mutex;
  FakeCudaControl control;
  std::map<std::string, int64_t> symbol_calls;
  std::map<CuDevicePointer, size_t> memory;
  size_t used = 0;
  std::set<void*> modules, streams, events;
  void* current = nullptr;
  std::vector<void*> stack;
};

State& S() {
  static State state;
  return state;
}

void* const kPrimaryContext = &S();

// Counts the call and says what it must return before it does anything.
CuResult Enter(const char* symbol, bool needs_context) {
  FakeCudaControl& control = S().control;
  ++control.calls;
  const int64_t nth = ++S().symbol_calls[symbol];
  if (control.fail_symbol != nullptr && control.fail_at_call > 0) {
    const bool any = std::strcmp(control.fail_symbol, "*") == 0;
    const int64_t at = any ? control.calls : nth;
    if ((any || std::strcmp(control.fail_symbol, symbol) == 0) &&
        (at == control.fail_at_call || (control.fail_persistently && at > control.fail_at_call))) {
      control.failed_symbol = symbol;
      return control.fail_with;
    }
  }
  if (needs_context) {
    if (control.sticky_error != 0) return control.sticky_error;
    if (S().current != kPrimaryContext) return kInvalidContext;
  }
  return 0;
}

#define ENTER(needs_context)                   \
  std::lock_guard<std::mutex> lock(S().mutex); \
  FakeCudaControl& control = S().control;      \
  (void)control;                               \
  if (CuResult error = Enter(__func__, needs_context); error != 0) return error

}  // namespace

extern "C" {

FakeCudaControl* fake_cuda_control() { return &S().control; }

void fake_cuda_reset() {
  State& state = S();
  for (const auto& [pointer, bytes] : state.memory) std::free(reinterpret_cast<void*>(pointer));
  for (void* module : state.modules) delete static_cast<std::string*>(module);
  for (void* stream : state.streams) delete static_cast<char*>(stream);
  for (void* event : state.events) delete static_cast<Event*>(event);
  state.memory.clear();
  state.modules.clear();
  state.streams.clear();
  state.events.clear();
  state.symbol_calls.clear();
  state.stack.clear();
  state.current = nullptr;
  state.used = 0;
  state.control = FakeCudaControl();
}

CuResult cuInit(unsigned) {
  ENTER(false);
  return control.device_count > 0 ? 0 : 100;
}
CuResult cuDriverGetVersion(int* version) {
  ENTER(false);
  *version = 13000;
  return 0;
}
CuResult cuGetErrorName(CuResult error, const char** name) {
  switch (error) {
    case kOutOfMemory:
      *name = "CUDA_ERROR_OUT_OF_MEMORY";
      return 0;
    case kIllegalAddress:
      *name = "CUDA_ERROR_ILLEGAL_ADDRESS";
      return 0;
    case kNoBinaryForGpu:
      *name = "CUDA_ERROR_NO_BINARY_FOR_GPU";
      return 0;
    default:
      *name = "CUDA_ERROR_FAKE";
      return 0;
  }
}
CuResult cuDeviceGetCount(int* count) {
  ENTER(false);
  *count = control.device_count;
  return 0;
}
CuResult cuDeviceGet(int* device, int ordinal) {
  ENTER(false);
  if (ordinal < 0 || ordinal >= control.device_count) return kInvalidDevice;
  *device = ordinal;
  return 0;
}
CuResult cuDeviceGetName(char* name, int length, int) {
  ENTER(false);
  std::strncpy(name, "Fake H200", static_cast<size_t>(length));
  return 0;
}
CuResult cuDeviceTotalMem_v2(size_t* bytes, int) {
  ENTER(false);
  *bytes = static_cast<size_t>(control.memory_bytes);
  return 0;
}
CuResult cuDeviceGetAttribute(int* value, int attribute, int) {
  ENTER(false);
  static const std::map<int, int> values = {{16, 132}, {33, 0x17}, {34, 0}, {38, 50 << 20},
                                            {50, 0},   {75, 9},    {76, 0}, {97, 232448}};
  const auto it = values.find(attribute);
  if (it == values.end()) return kInvalidValue;
  *value = it->second;
  return 0;
}
CuResult cuDevicePrimaryCtxRetain(void** context, int) {
  ENTER(false);
  ++control.primary_context_references;
  *context = kPrimaryContext;
  return 0;
}
CuResult cuDevicePrimaryCtxRelease_v2(int) {
  ENTER(false);
  --control.primary_context_references;
  return 0;
}
CuResult cuCtxGetCurrent(void** context) {
  ENTER(false);
  *context = S().current;
  return 0;
}
CuResult cuCtxPushCurrent_v2(void* context) {
  ENTER(false);
  S().stack.push_back(S().current);
  S().current = context;
  return 0;
}
CuResult cuCtxPopCurrent_v2(void** context) {
  ENTER(false);
  if (S().stack.empty()) return kInvalidContext;
  *context = S().current;
  S().current = S().stack.back();
  S().stack.pop_back();
  return 0;
}
CuResult cuModuleLoadDataEx(void** module, const void* image, unsigned, int*, void**) {
  ENTER(true);
  const std::string text(static_cast<const char*>(image));
  if (text.rfind("fake-cubin ", 0) != 0) return kInvalidImage;
  if (text.rfind("fake-cubin sm_90a\n", 0) != 0) return kNoBinaryForGpu;
  auto* loaded = new std::string(text);
  S().modules.insert(loaded);
  ++control.live_modules;
  *module = loaded;
  return 0;
}
CuResult cuModuleUnload(void* module) {
  ENTER(true);
  if (S().modules.erase(module) == 0) return kInvalidHandle;
  delete static_cast<std::string*>(module);
  --control.live_modules;
  return 0;
}
CuResult cuModuleGetFunction(void** function, void* module, const char* name) {
  ENTER(true);
  if (S().modules.count(module) == 0) return kInvalidHandle;
  const std::string& text = *static_cast<std::string*>(module);
  for (const KernelEntry& entry : kFakeKernels) {
    if (std::strcmp(entry.name, name) == 0 &&
        text.find("\n" + std::string(name) + "\n") != std::string::npos) {
      *function = const_cast<KernelEntry*>(&entry);
      return 0;
    }
  }
  return kNotFound;
}
CuResult cuFuncSetAttribute(void* function, int attribute, int value) {
  ENTER(true);
  if (function == nullptr) return kInvalidHandle;
  if (attribute == 8 && value > 232448) return kInvalidValue;
  return 0;
}
CuResult cuFuncLoad(void* function) {
  ENTER(true);
  return function == nullptr ? kInvalidHandle : 0;
}
static CuResult Run(const KernelEntry* kernel, void** params) {
  if (kernel == nullptr) return kInvalidHandle;
  ++S().control.launches;
  kernel->body(S().control, params);
  return 0;
}
CuResult cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned shared_bytes, void*, void** params,
                        void**) {
  ENTER(true);
  if (gx == 0 || gy == 0 || gz == 0 || bx * by * bz == 0 || bx * by * bz > 1024)
    return kInvalidValue;
  const unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz}, cluster[3] = {1, 1, 1};
  std::memcpy(control.last_grid, grid, sizeof(grid));
  std::memcpy(control.last_block, block, sizeof(block));
  std::memcpy(control.last_cluster, cluster, sizeof(cluster));
  control.last_shared_bytes = shared_bytes;
  return Run(static_cast<const KernelEntry*>(function), params);
}
CuResult cuLaunchKernelEx(const CuLaunchConfig* config, void* function, void** params, void**) {
  ENTER(true);
  const unsigned grid[3] = {config->grid_x, config->grid_y, config->grid_z};
  const unsigned block[3] = {config->block_x, config->block_y, config->block_z};
  std::memcpy(control.last_grid, grid, sizeof(grid));
  std::memcpy(control.last_block, block, sizeof(block));
  for (unsigned i = 0; i < config->attribute_count; ++i) {
    if (config->attributes[i].id != whet::kCuLaunchAttributeClusterDimension) continue;
    const auto& c = config->attributes[i].value.cluster;
    const unsigned cluster[3] = {c.x, c.y, c.z};
    std::memcpy(control.last_cluster, cluster, sizeof(cluster));
    if (grid[0] % c.x != 0 || grid[1] % c.y != 0 || grid[2] % c.z != 0) return 912;
  }
  control.last_shared_bytes = config->shared_bytes;
  return Run(static_cast<const KernelEntry*>(function), params);
}
CuResult cuMemAlloc_v2(CuDevicePointer* pointer, size_t bytes) {
  ENTER(true);
  if (bytes == 0) return kInvalidValue;
  if (S().used + bytes > static_cast<size_t>(control.memory_bytes)) return kOutOfMemory;
  void* memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (memory == nullptr) return kOutOfMemory;
  *pointer = reinterpret_cast<uintptr_t>(memory);
  S().memory[*pointer] = bytes;
  S().used += bytes;
  ++control.live_allocations;
  return 0;
}
CuResult cuMemFree_v2(CuDevicePointer pointer) {
  ENTER(true);
  const auto it = S().memory.find(pointer);
  if (it == S().memory.end()) return kInvalidValue;
  S().used -= it->second;
  std::free(reinterpret_cast<void*>(pointer));
  S().memory.erase(it);
  --control.live_allocations;
  return 0;
}
CuResult cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  ENTER(true);
  *total_bytes = static_cast<size_t>(control.memory_bytes);
  *free_bytes = *total_bytes - S().used;
  return 0;
}
CuResult cuMemcpyAsync(CuDevicePointer to, CuDevicePointer from, size_t bytes, void*) {
  ENTER(true);
  std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  return 0;
}
CuResult cuMemsetD8Async(CuDevicePointer to, unsigned char value, size_t bytes, void*) {
  ENTER(true);
  std::memset(reinterpret_cast<void*>(to), value, bytes);
  return 0;
}
CuResult cuStreamCreate(void** stream, unsigned) {
  ENTER(true);
  *stream = new char;
  S().streams.insert(*stream);
  ++control.live_streams;
  return 0;
}
CuResult cuStreamDestroy_v2(void* stream) {
  ENTER(true);
  if (S().streams.erase(stream) == 0) return kInvalidHandle;
  delete static_cast<char*>(stream);
  --control.live_streams;
  return 0;
}
CuResult cuStreamSynchronize(void* stream) {
  ENTER(true);
  return stream == nullptr || S().streams.count(stream) != 0 ? 0 : kInvalidHandle;
}
CuResult cuStreamIsCapturing(void*, int* status) {
  ENTER(true);
  *status = control.capturing;
  return control.capturing == 906 ? 906 : 0;
}
CuResult cuEventCreate(void** event, unsigned) {
  ENTER(true);
  *event = new Event;
  S().events.insert(*event);
  ++control.live_events;
  return 0;
}
CuResult cuEventDestroy_v2(void* event) {
  ENTER(true);
  if (S().events.erase(event) == 0) return kInvalidHandle;
  delete static_cast<Event*>(event);
  --control.live_events;
  return 0;
}
CuResult cuEventRecord(void* event, void*) {
  ENTER(true);
  if (S().events.count(event) == 0) return kInvalidHandle;
  *static_cast<Event*>(event) = {std::chrono::steady_clock::now(), true};
  return 0;
}
CuResult cuEventSynchronize(void* event) {
  ENTER(true);
  return S().events.count(event) != 0 ? 0 : kInvalidHandle;
}
CuResult cuEventElapsedTime(float* milliseconds, void* begin, void* end) {
  ENTER(true);
  if (S().events.count(begin) == 0 || S().events.count(end) == 0) return kInvalidHandle;
  const Event &b = *static_cast<Event*>(begin), &e = *static_cast<Event*>(end);
  if (!b.recorded || !e.recorded) return kInvalidHandle;
  *milliseconds = std::chrono::duration<float, std::milli>(e.at - b.at).count();
  return 0;
}
// The layout is the double's own, but as in the real one the address comes first and touches nothing else.
CuResult cuTensorMapEncodeTiled(void* map, int data_type, unsigned rank, void* address,
                                const uint64_t* dims, const uint64_t* strides, const unsigned* box,
                                const unsigned*, int, int swizzle, int, int) {
  ENTER(false);
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
    words[7 + i] = box[i];
  }
  return 0;
}

}  // extern "C"
