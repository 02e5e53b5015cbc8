// What both doubles share: memory, modules, streams, events and the failing of calls. Error numbers are the same in CUDA and HIP.
//
//   int hipFree(void* p) { FAKE_GPU_ENTER(true); return fake_gpu::Free(p); }
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/support/fake_gpu/fake_gpu.h"

namespace fake_gpu {

inline constexpr int kInvalidValue = 1, kOutOfMemory = 2, kInvalidDevice = 101, kInvalidImage = 200,
                     kInvalidContext = 201, kNoBinaryForGpu = 209, kInvalidHandle = 400,
                     kNotFound = 500, kNotReady = 600, kIllegalAddress = 700,
                     kStreamCaptureImplicit = 906;

struct KernelEntry {
  const char* name;
  void (*body)(FakeGpuControl& control, void** params);
};

struct Event {
  std::chrono::steady_clock::time_point at;
  bool recorded = false;
  bool stuck = false;  // behind a kernel that does not end
};

struct State {
  std::mutex mutex;
  FakeGpuControl control;
  std::map<std::string, int64_t> symbol_calls;
  std::map<void*, size_t> memory;
  size_t used = 0;
  std::set<void*> modules, streams, events;
  void* current = nullptr;   // CUDA: the current context
  std::vector<void*> stack;  // CUDA: the contexts under it
  int current_device = 0;    // HIP
};

State& S();

// Counts the call and says what it must return before it does anything; 0: go on.
int Enter(const char* symbol, bool needs_device);

#define FAKE_GPU_ENTER(needs_device)                       \
  std::lock_guard<std::mutex> lock(::fake_gpu::S().mutex); \
  FakeGpuControl& control = ::fake_gpu::S().control;       \
  (void)control;                                           \
  if (int error = ::fake_gpu::Enter(__func__, needs_device); error != 0) return error

const char* ErrorName(int error);
int LoadModule(void** module, const void* image, const char* architecture);
int UnloadModule(void* module);
int FindKernel(void** function, void* module, const char* name);
int Launch(void* function, const unsigned (&grid)[3], const unsigned (&block)[3],
           const unsigned (&cluster)[3], unsigned shared_bytes, void** params);
int Allocate(void** pointer, size_t bytes);
int Free(void* pointer);
void MemoryInfo(size_t* free_bytes, size_t* total_bytes);
void CreateStream(void** stream);
int DestroyStream(void* stream);
int CheckStream(void* stream);
int IsCapturing(int* status);
void CreateEvent(void** event);
int DestroyEvent(void* event);
int RecordEvent(void* event);
int CheckEvent(void* event);
int QueryEvent(void* event);
int ElapsedTime(float* milliseconds, void* begin, void* end);

}  // namespace fake_gpu
