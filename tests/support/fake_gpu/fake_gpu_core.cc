#include "tests/support/fake_gpu/fake_gpu_core.h"

#include <cstdlib>
#include <cstring>

namespace fake_gpu {

namespace {

const KernelEntry kKernels[] = {
    {"add_one",
     [](FakeGpuControl&, void** params) {
       float* x = *static_cast<float**>(params[0]);
       const int32_t n = *static_cast<int32_t*>(params[1]);
       for (int32_t i = 0; i < n; ++i) x[i] += 1;
     }},
    {"fault", [](FakeGpuControl& control, void**) { control.sticky_error = kIllegalAddress; }},
    {"hang", [](FakeGpuControl& control, void**) { control.hung = true; }},
};

// Calls that return when what was launched has ended, as the real drivers' do.
bool WaitsForKernels(const char* symbol) {
  if (std::strstr(symbol, "Async") != nullptr) return false;
  for (const char* part : {"StreamSynchronize", "EventSynchronize", "MemFree", "hipFree", "Unload",
                           "StreamDestroy", "CtxRelease", "Memcpy"}) {
    if (std::strstr(symbol, part) != nullptr) return true;
  }
  return false;
}

}  // namespace

State& S() {
  static State state;
  return state;
}

int Enter(const char* symbol, bool needs_device) {
  FakeGpuControl& control = S().control;
  ++control.calls;
  control.endless_waits += control.hung && WaitsForKernels(symbol);
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
  return needs_device ? control.sticky_error : 0;
}

const char* ErrorName(int error) {
  switch (error) {
    case kOutOfMemory:
      return "OUT_OF_MEMORY";
    case kIllegalAddress:
      return "ILLEGAL_ADDRESS";
    case kNoBinaryForGpu:
      return "NO_BINARY_FOR_GPU";
    default:
      return "FAKE_ERROR";
  }
}

int LoadModule(void** module, const void* image, const char* architecture) {
  const std::string text(static_cast<const char*>(image));
  const std::string prefix = "fake-object ";
  if (text.rfind(prefix, 0) != 0) return kInvalidImage;
  if (text.rfind(prefix + architecture + "\n", 0) != 0) return kNoBinaryForGpu;
  auto* loaded = new std::string(text);
  S().modules.insert(loaded);
  ++S().control.live_modules;
  *module = loaded;
  return 0;
}

int UnloadModule(void* module) {
  if (S().modules.erase(module) == 0) return kInvalidHandle;
  delete static_cast<std::string*>(module);
  --S().control.live_modules;
  return 0;
}

int FindKernel(void** function, void* module, const char* name) {
  if (S().modules.count(module) == 0) return kInvalidHandle;
  const std::string& text = *static_cast<std::string*>(module);
  for (const KernelEntry& entry : kKernels) {
    if (std::strcmp(entry.name, name) == 0 &&
        text.find("\n" + std::string(name) + "\n") != std::string::npos) {
      *function = const_cast<KernelEntry*>(&entry);
      return 0;
    }
  }
  return kNotFound;
}

int Launch(void* function, const unsigned (&grid)[3], const unsigned (&block)[3],
           const unsigned (&cluster)[3], unsigned shared_bytes, void** params) {
  const unsigned threads = block[0] * block[1] * block[2];
  if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0 || threads == 0 || threads > 1024) {
    return kInvalidValue;
  }
  if (function == nullptr) return kInvalidHandle;
  FakeGpuControl& control = S().control;
  std::memcpy(control.last_grid, grid, sizeof(grid));
  std::memcpy(control.last_block, block, sizeof(block));
  std::memcpy(control.last_cluster, cluster, sizeof(cluster));
  control.last_shared_bytes = shared_bytes;
  ++control.launches;
  static_cast<const KernelEntry*>(function)->body(control, params);
  return 0;
}

int Allocate(void** pointer, size_t bytes) {
  FakeGpuControl& control = S().control;
  if (bytes == 0) return kInvalidValue;
  if (S().used + bytes > static_cast<size_t>(control.memory_bytes)) return kOutOfMemory;
  void* memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (memory == nullptr) return kOutOfMemory;
  *pointer = memory;
  S().memory[memory] = bytes;
  S().used += bytes;
  ++control.live_allocations;
  return 0;
}

int Free(void* pointer) {
  const auto it = S().memory.find(pointer);
  if (it == S().memory.end()) return kInvalidValue;
  S().used -= it->second;
  std::free(pointer);
  S().memory.erase(it);
  --S().control.live_allocations;
  return 0;
}

void MemoryInfo(size_t* free_bytes, size_t* total_bytes) {
  *total_bytes = static_cast<size_t>(S().control.memory_bytes);
  *free_bytes = *total_bytes - S().used;
}

void CreateStream(void** stream) {
  *stream = new char;
  S().streams.insert(*stream);
  ++S().control.live_streams;
}

int DestroyStream(void* stream) {
  if (S().streams.erase(stream) == 0) return kInvalidHandle;
  delete static_cast<char*>(stream);
  --S().control.live_streams;
  return 0;
}

int CheckStream(void* stream) {
  return stream == nullptr || S().streams.count(stream) != 0 ? 0 : kInvalidHandle;
}

int IsCapturing(int* status) {
  *status = S().control.capturing;
  return S().control.capturing == kStreamCaptureImplicit ? kStreamCaptureImplicit : 0;
}

void CreateEvent(void** event) {
  *event = new Event;
  S().events.insert(*event);
  ++S().control.live_events;
}

int DestroyEvent(void* event) {
  if (S().events.erase(event) == 0) return kInvalidHandle;
  delete static_cast<Event*>(event);
  --S().control.live_events;
  return 0;
}

int RecordEvent(void* event) {
  if (S().events.count(event) == 0) return kInvalidHandle;
  *static_cast<Event*>(event) = {std::chrono::steady_clock::now(), true, S().control.hung};
  return 0;
}

int CheckEvent(void* event) { return S().events.count(event) != 0 ? 0 : kInvalidHandle; }

int QueryEvent(void* event) {
  if (int error = CheckEvent(event); error != 0) return error;
  return S().control.hung && static_cast<Event*>(event)->stuck ? kNotReady : 0;
}

int ElapsedTime(float* milliseconds, void* begin, void* end) {
  if (CheckEvent(begin) != 0 || CheckEvent(end) != 0) return kInvalidHandle;
  const Event &b = *static_cast<Event*>(begin), &e = *static_cast<Event*>(end);
  if (!b.recorded || !e.recorded) return kInvalidHandle;
  *milliseconds = std::chrono::duration<float, std::milli>(e.at - b.at).count();
  return 0;
}

}  // namespace fake_gpu

extern "C" {

FakeGpuControl* fake_gpu_control() { return &fake_gpu::S().control; }

void fake_gpu_reset() {
  fake_gpu::State& state = fake_gpu::S();
  for (const auto& [pointer, bytes] : state.memory) std::free(pointer);
  for (void* module : state.modules) delete static_cast<std::string*>(module);
  for (void* stream : state.streams) delete static_cast<char*>(stream);
  for (void* event : state.events) delete static_cast<fake_gpu::Event*>(event);
  state.memory.clear();
  state.modules.clear();
  state.streams.clear();
  state.events.clear();
  state.symbol_calls.clear();
  state.used = 0;
  state.stack.clear();
  state.current = nullptr;
  state.current_device = 0;
  state.control = FakeGpuControl();
}

}  // extern "C"
