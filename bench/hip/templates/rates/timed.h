// One loop, timed by the shader's own clock, wave by wave.
#pragma once
#include "common/amd.h"

#define REPEAT_4(x) x x x x
#define REPEAT_16(x) REPEAT_4(x) REPEAT_4(x) REPEAT_4(x) REPEAT_4(x)

// Runs `body` SHAPE_ITERATIONS times and stores the clocks that this wave took.
template <class Body>
WHET_DEVICE void timed(long long* clocks, Body body) {
  whet::meet();
  const unsigned long long begin = __builtin_amdgcn_s_memtime();
#pragma clang loop unroll(disable)
  for (int i = 0; i < SHAPE_ITERATIONS; ++i) body();
  const unsigned long long end = __builtin_amdgcn_s_memtime();
  if (whet::lane_index() == 0) clocks[whet::wave_index()] = static_cast<long long>(end - begin);
}
