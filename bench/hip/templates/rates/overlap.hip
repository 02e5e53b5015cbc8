// Two waves of a SIMD: one issues matrix instructions, sixteen an iteration, the other vector instructions, of which as many follow each
// other as an attention kernel has between two products. How much longer does the first take than alone?
#include "rates/product.h"

#if TUNE_WHAT == 1
#define INSTRUCTION "v_fma_f32 %0, %0, %1, %0"
#elif TUNE_WHAT == 2
#define INSTRUCTION "v_pk_fma_f32 %0, %0, %1, %0"
#elif TUNE_WHAT == 3
#define INSTRUCTION "v_exp_f32 %0, %0"
#elif TUNE_WHAT == 4
#define INSTRUCTION "v_cvt_pk_u8_f32 %0, %1, 1, %0"
#endif

#if TUNE_WHAT == 2
typedef whet::Float2 Value;
#else
typedef float Value;
#endif

extern "C" __global__ void
    __attribute__((amdgpu_flat_work_group_size(LAUNCH_BLOCK_X, LAUNCH_BLOCK_X)))
    WHET_ENTRY(long long* clocks, float* sink) {
  // Waves w and w + 4 share a SIMD.
  if (TUNE_WHAT == 0 || whet::wave_index() < 4) {
    whet::Float16 c[4] = {};
    const unsigned bits = 0x3f803f40u + static_cast<unsigned>(whet::lane_index()) * 0x10001u;
    const whet::Uint4 a = {bits, bits + 1, bits + 2, bits + 3};
    timed(
        clocks, [&]() __attribute__((always_inline)) { sixteen_products(c, a, a); });
    sink[whet::thread_index()] = total(c);
  } else {
#if TUNE_WHAT != 0
    Value x[16];
    Value y = Value(1.0f);
    WHET_UNROLL
    for (int i = 0; i < 16; ++i) {
      x[i] = Value(static_cast<float>(whet::lane_index() + i) * 0.01f);
      WHET_PIN(x[i]);
    }
    // 96 in the time of sixteen products.
    timed(
        clocks, [&]() __attribute__((always_inline)) {
          WHET_UNROLL
          for (int i = 0; i < 96; ++i) asm volatile(INSTRUCTION : "+v"(x[i % 16]) : "v"(y));
        });
    Value sum = Value(0.0f);
    WHET_UNROLL
    for (int i = 0; i < 16; ++i) sum += x[i];
#if TUNE_WHAT == 2
    sink[whet::thread_index()] = sum[0] + sum[1];
#else
    sink[whet::thread_index()] = sum;
#endif
#endif
  }
}
