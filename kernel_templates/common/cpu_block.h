// What a CPU kernel is called with: one block of the launch grid.
//
//   extern "C" void WHET_ENTRY(const WhetCpuBlock* block, void* const* args) {
//     const float* x = *static_cast<const float* const*>(args[0]);
//     ...
//   }
//
// Headers of kernels use guards instead of #pragma once: their text is put in place, and compilers
// warn about the pragma in a main file.
#ifndef WHET_COMMON_CPU_BLOCK_H_
#define WHET_COMMON_CPU_BLOCK_H_

#include <stdint.h>

// The entry is called once per block, from several threads at once. Blocks with a smaller index
// (x fastest) start earlier, so heavy blocks belong first.
struct WhetCpuBlock {
  uint32_t index[3];  // x, y, z; each less than grid
  uint32_t grid[3];
  void* shared;  // LAUNCH_SHARED_BYTES, 64-byte aligned, private to the block, any contents
};

// Every function of a kernel is local to its shared object (two kernels define the same names), and
// not every kernel uses all of a shared header.
#define WHET_CPU_FN [[maybe_unused]] static inline __attribute__((always_inline))

// Before a loop of constant length over registers.
#if defined(__clang__)
#define WHET_CPU_UNROLL _Pragma("unroll")
#else
#define WHET_CPU_UNROLL _Pragma("GCC unroll 32")
#endif

#endif  // WHET_COMMON_CPU_BLOCK_H_
