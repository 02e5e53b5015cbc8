// Kernels that the tests of the CPU device load.

#include <atomic>
#include <cstdint>

#include "src/device/cpu/cpu_block.h"

using whet::CpuBlock;

namespace {

template <typename T>
T Value(void* const* params, int i) {
  return *static_cast<const T*>(params[i]);
}

}  // namespace

// (in f32* x, out f32* y, i64 n, f32 factor): y = factor * x, 64 elements to a block.
extern "C" void TestScale(const CpuBlock* block, void* const* params) {
  const auto* x = Value<const float*>(params, 0);
  auto* y = Value<float*>(params, 1);
  const auto n = Value<int64_t>(params, 2);
  const auto factor = Value<float>(params, 3);
  const int64_t begin = int64_t{block->index[0]} * 64;
  for (int64_t i = begin; i < begin + 64 && i < n; ++i) y[i] = factor * x[i];
}

// (atomic<int32>* open, atomic<int32>* passed): waits until the gate is open.
extern "C" void TestGate(const CpuBlock*, void* const* params) {
  auto* open = Value<std::atomic<int32_t>*>(params, 0);
  while (open->load() == 0) open->wait(0);
  Value<std::atomic<int32_t>*>(params, 1)->fetch_add(1);
}

// (i32* count): how often this module was called.
extern "C" void TestCount(const CpuBlock*, void* const* params) {
  static int32_t calls = 0;
  *Value<int32_t*>(params, 0) = ++calls;
}

// (i64* sum): the sum over the block's shared memory after filling it with ones, per block.
extern "C" void TestShared(const CpuBlock* block, void* const* params) {
  auto* ones = static_cast<int64_t*>(block->shared);
  int64_t sum = 0;
  for (int i = 0; i < 512; ++i) ones[i] = 1;
  for (int i = 0; i < 512; ++i) sum += ones[i];
  Value<int64_t*>(params, 0)[block->index[0]] = sum;
}
