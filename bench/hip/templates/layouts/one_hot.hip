// A is 1 in one element of one lane, B holds in each element a number that names it: then D shows which element of B meets that element of
// A, and where D's row lies. No order of k is assumed.
#include "common/amd.h"

constexpr int kElements = SHAPE_ELEMENTS;
constexpr int kRegisters = SHAPE_REGISTERS;
constexpr int kRows = SHAPE_SHAPE % 2 == 0 ? 32 : 16;

#if SHAPE_SHAPE == 8
extern "C" __global__ void WHET_ENTRY(float* d) {
  WHET_SHARED_MEMORY(shared);
  const int lane = whet::lane_index();
  WHET_LDS(short)* const lds = (WHET_LDS(short)*)shared;
  WHET_UNROLL
  for (int i = 0; i < 4; ++i) lds[lane * 4 + i] = static_cast<short>(lane * 4 + i);
  whet::wait_lds();
  whet::meet();
  const whet::Short4 read =
      __builtin_amdgcn_ds_read_tr16_b64_v4i16((WHET_LDS(whet::Short4)*)(lds + lane * 4));
  WHET_UNROLL
  for (int i = 0; i < 4; ++i) d[lane * 4 + i] = static_cast<float>(read[i]);
}
#else

#if SHAPE_SHAPE < 4
constexpr int kElementBytes = 2;
WHET_DEVICE unsigned encode(float x) { return whet::float_bits(x) >> 16; }
#else
constexpr int kElementBytes = 1;
// In the target's own flavour.
WHET_DEVICE unsigned encode(float x) {
  return static_cast<unsigned>(__builtin_amdgcn_cvt_pk_fp8_f32(x, x, 0, false)) & 255u;
}
#endif
constexpr int kPerWord = 4 / kElementBytes;
constexpr int kWords = kElements / kPerWord;
typedef int Words __attribute__((ext_vector_type(kWords)));

extern "C" __global__ void WHET_ENTRY(float* d) {
  const int lane = whet::lane_index();
  const int block = static_cast<int>(whet::block_index());
  Words a = {}, b = {};
  WHET_UNROLL
  for (int i = 0; i < kElements; ++i) {
    const bool hot = lane == block / kElements && i == block % kElements;
    const int name = lane / kRows * kElements + i;
    const int digit = SHAPE_DIGIT ? name / 16 : name % 16;
    const int shift = i % kPerWord * 8 * kElementBytes;
    a[i / kPerWord] |= static_cast<int>(encode(hot ? 1.0f : 0.0f) << shift);
    b[i / kPerWord] |= static_cast<int>(encode(static_cast<float>(digit)) << shift);
  }
  typedef float Result __attribute__((ext_vector_type(kRegisters)));
  Result c = {};
#if SHAPE_SHAPE == 0
  c = __builtin_amdgcn_mfma_f32_32x32x16_bf16(__builtin_bit_cast(whet::Bf16x8, a),
                                              __builtin_bit_cast(whet::Bf16x8, b), c, 0, 0, 0);
#elif SHAPE_SHAPE == 1
  c = __builtin_amdgcn_mfma_f32_16x16x32_bf16(__builtin_bit_cast(whet::Bf16x8, a),
                                              __builtin_bit_cast(whet::Bf16x8, b), c, 0, 0, 0);
#elif SHAPE_SHAPE == 2
  c = __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(__builtin_bit_cast(whet::Short4, a),
                                               __builtin_bit_cast(whet::Short4, b), c, 0, 0, 0);
#elif SHAPE_SHAPE == 3
  c = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(__builtin_bit_cast(whet::Short4, a),
                                                __builtin_bit_cast(whet::Short4, b), c, 0, 0, 0);
#elif SHAPE_SHAPE == 4
  c = __builtin_amdgcn_mfma_f32_32x32x16_fp8_fp8(__builtin_bit_cast(long, a),
                                                 __builtin_bit_cast(long, b), c, 0, 0, 0);
#elif SHAPE_SHAPE == 5
  c = __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(__builtin_bit_cast(long, a),
                                                 __builtin_bit_cast(long, b), c, 0, 0, 0);
#elif SHAPE_SHAPE == 6
  c = __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(a, b, c, 0, 0, 0, 0, 0, 0);
#else
  c = __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(a, b, c, 0, 0, 0, 0, 0, 0);
#endif
  WHET_UNROLL
  for (int r = 0; r < kRegisters; ++r) d[(block * 64 + lane) * kRegisters + r] = c[r];
}
#endif
