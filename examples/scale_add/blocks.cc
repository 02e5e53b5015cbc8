#include "common/cpu_block.h"

extern "C" void WHET_ENTRY(const WhetCpuBlock* block, void* const* args) {
  const float* x = *static_cast<const float* const*>(args[0]);
  float* y = *static_cast<float* const*>(args[1]);
  const float factor = *static_cast<const float*>(args[2]);
  const long begin = static_cast<long>(block->index[0]) * TUNE_BLOCK;
  const long end = begin + TUNE_BLOCK < SHAPE_N ? begin + TUNE_BLOCK : SHAPE_N;
  for (long i = begin; i < end; ++i) y[i] = factor * x[i] + y[i];
}
