// Sixteen times the same matrix instruction in a loop, in four chains.
#include "rates/product.h"

extern "C" __global__ void
    __attribute__((amdgpu_flat_work_group_size(LAUNCH_BLOCK_X, LAUNCH_BLOCK_X)))
    WHET_ENTRY(long long* clocks, float* sink) {
  // Not zeros: the power of zeros is not that of numbers.
  const unsigned bits = 0x3f803f40u + static_cast<unsigned>(whet::lane_index()) * 0x10001u;
#if TUNE_WHAT == 0
  whet::Float16 c[4] = {};
  const whet::Uint4 a = {bits, bits + 1, bits + 2, bits + 3};
  timed(
      clocks, [&]() __attribute__((always_inline)) { sixteen_products(c, a, a); });
  sink[whet::thread_index()] = total(c);
#elif TUNE_WHAT == 1
  whet::Float16 c[4] = {};
#if WHET_ARCH_gfx950
  const int word = static_cast<int>(bits);
  const Int8 a = {word, word + 1, word + 2, word + 3, word + 4, word + 5, word + 6, word + 7};
#else
  const long a = static_cast<long>(bits) << 32 | bits;
#endif
  timed(
      clocks, [&]() __attribute__((always_inline)) {
        WHET_UNROLL
        for (int i = 0; i < 16; ++i) {
#if WHET_ARCH_gfx950
          c[i % 4] =
              __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(a, a, c[i % 4], 0, 0, 0, 0, 0, 0);
#else
      c[i % 4] = __builtin_amdgcn_mfma_f32_32x32x16_fp8_fp8(a, a, c[i % 4], 0, 0, 0);
#endif
          WHET_PIN(c[i % 4]);
        }
      });
  sink[whet::thread_index()] = total(c);
#else
  whet::Float4 c[4] = {};
  const int word = static_cast<int>(bits);
  timed(
      clocks, [&]() __attribute__((always_inline)) {
        WHET_UNROLL
        for (int i = 0; i < 16; ++i) {
#if WHET_ARCH_gfx950
          c[i % 4] = __builtin_amdgcn_smfmac_f32_16x16x128_fp8_fp8(
              Int4{word, word, word, word}, Int8{word, word, word, word, word, word, word, word},
              c[i % 4], 0, 0, 0);
#else
      typedef int Int2 __attribute__((ext_vector_type(2)));
      c[i % 4] = __builtin_amdgcn_smfmac_f32_16x16x64_fp8_fp8(
          Int2{word, word}, Int4{word, word, word, word}, c[i % 4], 0, 0, 0);
#endif
          WHET_PIN(c[i % 4]);
        }
      });
  sink[whet::thread_index()] = c[0][0] + c[1][1] + c[2][2] + c[3][3];
#endif
}
