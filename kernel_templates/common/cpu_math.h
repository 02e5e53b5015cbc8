// exp2, ln and square root without libm: a kernel may be loaded where no libm is in scope, and libm's are not
// SIMD.
#ifndef WHET_COMMON_CPU_MATH_H_
#define WHET_COMMON_CPU_MATH_H_

#include "common/cpu_block.h"
#include "common/cpu_vec.h"

// 2^x for x <= 127, lane by lane: relative error below 2e-7; 0 below -126 (so no denormals, which
// are slow to multiply); NaN for NaN. Least-maximum-error polynomial of 2^f on [-1/2, 1/2] with
// p(0) = 1.
WHET_CPU_FN VecF Exp2(VecF x) {
#if defined(WHET_CPU_AVX512)
  const VecF whole = (VecF)_mm512_maskz_roundscale_ps(kAllLanes, (__m512)x, 0);
#elif defined(WHET_CPU_AVX2)
  const VecF clamped = MaxVec(Broadcast(-127.0f), x);
  const VecF whole = (VecF)_mm256_round_ps((__m256)clamped, 0);
#else
  // Adding 1.5 * 2^23 leaves the nearest integer in the low bits of the sum.
  const VecF clamped = MaxVec(Broadcast(-127.0f), x);
  const VecF whole = (clamped + Broadcast(12582912.0f)) - Broadcast(12582912.0f);
#endif
#if defined(WHET_CPU_AVX512)
  const VecF f = x - whole;
#else
  const VecF f = clamped - whole;
#endif
  VecF p = Broadcast(1.326472731e-3f);
  p = FusedMultiplyAdd(p, f, Broadcast(9.671512991e-3f));
  p = FusedMultiplyAdd(p, f, Broadcast(5.550733581e-2f));
  p = FusedMultiplyAdd(p, f, Broadcast(2.402224243e-1f));
  p = FusedMultiplyAdd(p, f, Broadcast(6.931470037e-1f));
  p = FusedMultiplyAdd(p, f, Broadcast(1.0f));
#if defined(WHET_CPU_AVX512)
  const __mmask16 keep = _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ);
  return (VecF)_mm512_maskz_scalef_ps(keep, (__m512)p, (__m512)whole);
#else
  // The clamp makes the smallest exponent field 0, that is a factor of exactly 0.
  const VecI exponent = (__builtin_convertvector(whole, VecI) + 127) << 23;
  return p * (VecF)exponent;
#endif
}

// Natural logarithm of a positive finite x: relative error below 1e-8. Infinity and NaN come back.
WHET_CPU_FN double NaturalLog(double x) {
  if (!(x < __builtin_inf())) return x;
  uint64_t bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  int64_t exponent = static_cast<int64_t>(bits >> 52) - 1023;
  bits = (bits & 0xfffffffffffffull) | 0x3ff0000000000000ull;
  double mantissa;
  __builtin_memcpy(&mantissa, &bits, sizeof(mantissa));
  if (mantissa > 1.4142135623730951) {
    mantissa *= 0.5;
    exponent += 1;
  }
  const double s = (mantissa - 1.0) / (mantissa + 1.0);
  const double z = s * s;
  const double series =
      1.0 + z * (1.0 / 3 + z * (1.0 / 5 + z * (1.0 / 7 + z * (1.0 / 9 + z * (1.0 / 11 + z / 13)))));
  return 2.0 * s * series + static_cast<double>(exponent) * 0.6931471805599453;
}

WHET_CPU_FN float SquareRoot(float x) {
#if defined(__SSE__)
  // The builtin would also call libm, for errno.
  return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x)));
#else
  return __builtin_sqrtf(x);
#endif
}

#endif  // WHET_COMMON_CPU_MATH_H_
