// What the CPU device lets a kernel have.
#pragma once

#include <cstdint>

namespace whet {

// Shared memory of one block; every worker holds as much.
inline constexpr int64_t kCpuSharedBytesMax = 64 << 20;

}  // namespace whet
