// Sixteen reads of LDS in a loop, neighbouring lanes from neighbouring places, or sixteen barriers.
#include "rates/timed.h"

#if TUNE_WHAT == 0
typedef whet::Float4 Value;
#define READ "ds_read_b128 %0, %1 offset:%2"
#elif TUNE_WHAT == 1
typedef whet::Float2 Value;
#define READ "ds_read_b64 %0, %1 offset:%2"
#elif TUNE_WHAT == 3
typedef whet::Float2 Value;
#define READ "ds_read_b64_tr_b16 %0, %1 offset:%2"
#endif

extern "C" __global__ void
    __attribute__((amdgpu_flat_work_group_size(LAUNCH_BLOCK_X, LAUNCH_BLOCK_X)))
    WHET_ENTRY(long long* clocks, float* sink) {
  WHET_SHARED_MEMORY(shared);
  WHET_LDS(float)* const lds = (WHET_LDS(float)*)shared;
  for (int i = static_cast<int>(whet::thread_index()); i < LAUNCH_SHARED_BYTES / 4;
       i += LAUNCH_BLOCK_X) {
    lds[i] = static_cast<float>(i);
  }
  whet::wait_lds();
  whet::meet();
#if TUNE_WHAT == 2
  timed(
      clocks, [&]() __attribute__((always_inline)) {
        WHET_UNROLL
        for (int i = 0; i < 16; ++i) whet::meet();
      });
  sink[whet::thread_index()] = lds[whet::thread_index()];
#else
  const unsigned from = static_cast<unsigned>(whet::lane_index()) * sizeof(Value);
  Value x[16];
  timed(
      clocks, [&]() __attribute__((always_inline)) {
        whet::for_each<0, 16>([&](auto number) __attribute__((always_inline)) {
          constexpr int i = decltype(number)::kValue;
          // Named outside the assembly: what only it names is not captured.
          Value& to = x[i];
          const unsigned at = from;
          asm volatile(READ : "=v"(to) : "v"(at), "n"(i * 512));
        });
        asm volatile("s_waitcnt lgkmcnt(0)" : : : "memory");
        WHET_UNROLL
        for (int i = 0; i < 16; ++i) WHET_PIN(x[i]);
      });
  float sum = 0.0f;
  WHET_UNROLL
  for (int i = 0; i < 16; ++i) sum += x[i][0] + x[i][1];
  sink[whet::thread_index()] = sum;
#endif
}
