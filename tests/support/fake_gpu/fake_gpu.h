// Test doubles of GPU drivers for machines without a GPU: shared objects with the entry points of libcuda.so.1 and of
// libamdhip64.so, which keep device memory in host memory, run host functions as kernels at launch, and fail any call
// on demand. As documented for the real ones: handles are checked, events time what was recorded between them, and after a fault every later
// call fails.
//
//   FakeGpuControl* control = fake_gpu_control();       // by dlsym, from the shared object that was opened
//   control->fail_symbol = "cuMemAlloc_v2";  control->fail_at_call = 3;  control->fail_with = 2;
//
// A "code object" is the text "fake-object <architecture>\n<kernel>\n<kernel>\n"; kernels are those of fake_gpu.cc:
//   add_one(float* x, int32 n)      x[i] += 1
//   fault(...)                      breaks the device with error 700 (illegal address)
//   hang(...)                       does not end: events recorded after it stay open
#pragma once

#include <cstdint>

// Shared by the double and the tests through the exported fake_gpu_control(); fake_gpu_reset() forgets everything.
struct FakeGpuControl {
  const char* fail_symbol = nullptr;  // entry point to fail; "*": every one
  int64_t fail_at_call = 0;           // which call of it, from 1; 0: none
  bool fail_persistently = false;     // and all later ones
  int fail_with = 999;

  int device_count = 1;
  int capturing = 0;  // what cuStreamIsCapturing says
  int64_t memory_bytes = int64_t{1} << 30;

  // Counted by the double.
  const char* failed_symbol = "";  // the last call that was made to fail
  int64_t calls = 0;
  int64_t launches = 0;
  int64_t live_allocations = 0, live_modules = 0, live_streams = 0, live_events = 0;
  int64_t primary_context_references = 0;
  unsigned last_grid[3] = {}, last_block[3] = {}, last_cluster[3] = {}, last_shared_bytes = 0;
  int sticky_error = 0;       // the context is broken
  bool hung = false;          // a kernel does not end
  int64_t endless_waits = 0;  // calls since then that would not return from the real driver
};
