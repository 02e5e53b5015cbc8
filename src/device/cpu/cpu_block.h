// What the CPU device hands to a kernel: one block of the launch grid. The same layout as
// WhetCpuBlock in kernel_templates/common/cpu_block.h, which kernels are compiled against; a test
// compares the two.
#pragma once

#include <cstdint>

namespace whet {

struct CpuBlock {
  uint32_t index[3];  // x, y, z; less than grid
  uint32_t grid[3];
  void* shared;  // 64-byte aligned, private to the block
};

using CpuKernelFunction = void (*)(const CpuBlock* block, void* const* params);

}  // namespace whet
