// One SIMD register of f32, as wide as the target allows: 16, 8 or 4 lanes.
//
//   VecF x = LoadVec(p);                        // 4-byte alignment is enough
//   x = FusedMultiplyAdd(x, Broadcast(2.0f), LoadVec(q));
//   StoreVec(out, x);
//
// Built on the vector extension that GCC and Clang share, so + - * and comparisons work as they
// are; intrinsics only where the compilers would not find the one right instruction. The width
// follows the -m options, which follow the target's features.
#ifndef WHET_COMMON_CPU_VEC_H_
#define WHET_COMMON_CPU_VEC_H_

#include <stdint.h>

#include "common/cpu_block.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define WHET_CPU_AVX512 1
[[maybe_unused]] constexpr int kLanes = 16;
[[maybe_unused]] constexpr int kVectorRegisters = 32;
// The unmasked forms of many AVX-512 intrinsics make GCC 12 warn of its own uninitialised value;
// with this constant mask the same instruction comes out.
[[maybe_unused]] constexpr __mmask16 kAllLanes = 0xffff;
#elif defined(__AVX2__) && defined(__FMA__)
#define WHET_CPU_AVX2 1
[[maybe_unused]] constexpr int kLanes = 8;
[[maybe_unused]] constexpr int kVectorRegisters = 16;
#else
[[maybe_unused]] constexpr int kLanes = 4;
[[maybe_unused]] constexpr int kVectorRegisters = 16;
#endif

typedef float VecF __attribute__((vector_size(kLanes * 4)));
typedef int32_t VecI __attribute__((vector_size(kLanes * 4)));
typedef uint32_t VecU __attribute__((vector_size(kLanes * 4)));
typedef uint16_t VecU16 __attribute__((vector_size(kLanes * 2)));

WHET_CPU_FN VecF LoadVec(const float* p) {
  VecF v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}

WHET_CPU_FN void StoreVec(float* p, VecF v) { __builtin_memcpy(p, &v, sizeof(v)); }

WHET_CPU_FN VecF Broadcast(float x) {
#if defined(WHET_CPU_AVX512)
  return (VecF)_mm512_set1_ps(x);
#elif defined(WHET_CPU_AVX2)
  return (VecF)_mm256_set1_ps(x);
#else
  return VecF{x, x, x, x};
#endif
}

WHET_CPU_FN VecF ZeroVec() { return VecF{}; }

// a * b + c, rounded once where the target has the instruction.
WHET_CPU_FN VecF FusedMultiplyAdd(VecF a, VecF b, VecF c) {
#if defined(WHET_CPU_AVX512)
  return (VecF)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(WHET_CPU_AVX2)
  return (VecF)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
  return a * b + c;
#endif
}

// Lane by lane the larger; b where either is NaN.
WHET_CPU_FN VecF MaxVec(VecF a, VecF b) {
#if defined(WHET_CPU_AVX512)
  return (VecF)_mm512_maskz_max_ps(kAllLanes, (__m512)a, (__m512)b);
#elif defined(WHET_CPU_AVX2)
  return (VecF)_mm256_max_ps((__m256)a, (__m256)b);
#else
  return a > b ? a : b;
#endif
}

WHET_CPU_FN VecI LaneIndex() {
  VecI index = {};
  for (int i = 0; i < kLanes; ++i) index[i] = i;
  return index;
}

// v in the first count lanes, fill in the others.
WHET_CPU_FN VecF KeepFirst(VecF v, int count, VecF fill) {
  VecI limit = VecI{} + count;
  return LaneIndex() < limit ? v : fill;
}

WHET_CPU_FN float HorizontalMax(VecF v) {
  float part[kLanes];
  StoreVec(part, v);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) part[i] = part[i] > part[i + width] ? part[i] : part[i + width];
  }
  return part[0];
}

WHET_CPU_FN float HorizontalSum(VecF v) {
  float part[kLanes];
  StoreVec(part, v);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) part[i] += part[i + width];
  }
  return part[0];
}

#endif  // WHET_COMMON_CPU_VEC_H_
