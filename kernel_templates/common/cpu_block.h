// What a CPU kernel is called with: one block of the launch grid.
//
//   extern "C" void WHET_ENTRY(const WhetCpuBlock* block, void* const* args) {
//     const float* x = *static_cast<const float* const*>(args[0]);
//     ...
//   }
#pragma once
#include <stdint.h>

// The runtime calls the entry once per block, from several threads at once and in any order, though blocks with a smaller
// index (x fastest) start earlier: put heavy blocks first.
struct WhetCpuBlock {
  uint32_t index[3];  // x, y, z; less than grid
  uint32_t grid[3];
  void* shared;  // LAUNCH_SHARED_BYTES, 64-byte aligned, private to the block, contents unspecified
};
