// Sixteen times the same vector instruction in a loop, each on registers of its own: its issue rate.
#include "rates/timed.h"

#if TUNE_WHAT == 0
#define INSTRUCTION "v_fma_f32 %0, %0, %1, %0"
#elif TUNE_WHAT == 1
#define INSTRUCTION "v_pk_fma_f32 %0, %0, %1, %0"
#elif TUNE_WHAT == 2
#define INSTRUCTION "v_max3_f32 %0, %0, %1, %0"
#elif TUNE_WHAT == 3
#define INSTRUCTION "v_exp_f32 %0, %0"
#elif TUNE_WHAT == 4
#define INSTRUCTION "v_cvt_u32_f32 %0, %0"
#elif TUNE_WHAT == 5
#define INSTRUCTION "v_cvt_pk_u8_f32 %0, %1, 1, %0"
#elif TUNE_WHAT == 6
#define INSTRUCTION "v_cvt_pk_fp8_f32 %0, %1, %1"
#elif TUNE_WHAT == 7
#define INSTRUCTION "v_cvt_pk_bf16_f32 %0, %0, %1"
#elif TUNE_WHAT == 8
#define INSTRUCTION "v_cvt_scalef32_pk_fp8_f32 %0, %1, %1, %1"
#else
#define INSTRUCTION "v_permlane32_swap_b32 %0, %1"
#endif

#if TUNE_WHAT == 1
typedef whet::Float2 Value;
#else
typedef float Value;
#endif

extern "C" __global__ void
    __attribute__((amdgpu_flat_work_group_size(LAUNCH_BLOCK_X, LAUNCH_BLOCK_X)))
    WHET_ENTRY(long long* clocks, float* sink) {
  Value x[16];
  Value y[16];
  WHET_UNROLL
  for (int i = 0; i < 16; ++i) {
    x[i] = Value(static_cast<float>(whet::lane_index() + i) * 0.01f);
    y[i] = Value(1.0f);
    WHET_PIN(x[i]);
    WHET_PIN(y[i]);
  }
  timed(
      clocks, [&]() __attribute__((always_inline)) {
        WHET_UNROLL
        for (int i = 0; i < 16; ++i) asm volatile(INSTRUCTION : "+v"(x[i]), "+v"(y[i]));
      });
  Value sum = Value(0.0f);
  WHET_UNROLL
  for (int i = 0; i < 16; ++i) sum += x[i] + y[i];
#if TUNE_WHAT == 1
  sink[whet::thread_index()] = sum[0] + sum[1];
#else
  sink[whet::thread_index()] = sum;
#endif
}
