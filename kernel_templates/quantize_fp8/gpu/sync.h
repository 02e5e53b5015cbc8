// What blocks of one launch say to each other through device memory: counters and flags.
//
//   whet::barrier();  // thread 0 speaks for its block
//   whet::publish();                              // what the block wrote is seen by whoever sees what comes next
//   if (whet::add(&done, 1) == last) ...
//   while (whet::seen(&done) < last) {}           // what was written before those adds may be read from here on
#pragma once

#include "common/gpu.h"

namespace whet {

#if defined(WHET_EMULATOR)
// Blocks run one after the other there, and a launch has one.
WHET_DEVICE void publish() {}
WHET_DEVICE int add(int* at, int value) {
  const int before = *at;
  *at = before + value;
  return before;
}
WHET_DEVICE void raise_to(int* at, int value) { *at = *at < value ? value : *at; }
WHET_DEVICE int seen(int* at) { return *at; }
WHET_DEVICE void rest() {}
WHET_DEVICE unsigned block_count() { return 1; }
#elif WHET_PLATFORM_HIP
constexpr int kAgentScope = 4;  // __HIP_MEMORY_SCOPE_AGENT

WHET_DEVICE void publish() { __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent"); }
WHET_DEVICE int add(int* at, int value) {
  return __hip_atomic_fetch_add(at, value, __ATOMIC_RELAXED, kAgentScope);
}
// For values that are not negative.
WHET_DEVICE void raise_to(int* at, int value) {
  __hip_atomic_fetch_max(at, value, __ATOMIC_RELAXED, kAgentScope);
}
WHET_DEVICE int seen(int* at) {
  const int value = __hip_atomic_load(at, __ATOMIC_RELAXED, kAgentScope);
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
  return value;
}
WHET_DEVICE void rest() { __builtin_amdgcn_s_sleep(2); }
WHET_DEVICE unsigned block_count() { return __builtin_amdgcn_grid_size_x() / LAUNCH_BLOCK_X; }
#else
WHET_DEVICE void publish() { __threadfence(); }
WHET_DEVICE int add(int* at, int value) { return atomicAdd(at, value); }
// For values that are not negative.
WHET_DEVICE void raise_to(int* at, int value) { atomicMax(at, value); }
WHET_DEVICE int seen(int* at) {
  int value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}
WHET_DEVICE void rest() { __nanosleep(100); }
WHET_DEVICE unsigned block_count() { return gridDim.x; }
#endif

}  // namespace whet
