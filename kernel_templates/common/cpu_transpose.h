// Transposes a square of kLanes x kLanes 32-bit words held in registers.
#ifndef WHET_COMMON_CPU_TRANSPOSE_H_
#define WHET_COMMON_CPU_TRANSPOSE_H_

#include "common/cpu_block.h"
#include "common/cpu_vec.h"

#if defined(WHET_CPU_AVX512)

// Lane j of row i becomes lane i of row j.
WHET_CPU_FN void TransposeSquare(VecF (&rows)[kLanes]) {
  __m512 a[16];
  __m512 b[16];
  // Within 128-bit quarters: 2x2 blocks, then 4x4 blocks of each quarter.
  for (int i = 0; i < 8; ++i) {
    a[2 * i] = _mm512_maskz_unpacklo_ps(kAllLanes, (__m512)rows[2 * i], (__m512)rows[2 * i + 1]);
    a[2 * i + 1] =
        _mm512_maskz_unpackhi_ps(kAllLanes, (__m512)rows[2 * i], (__m512)rows[2 * i + 1]);
  }
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 2; ++j) {
      const __m512d low = _mm512_castps_pd(a[4 * i + j]);
      const __m512d high = _mm512_castps_pd(a[4 * i + 2 + j]);
      b[4 * i + 2 * j] = _mm512_castpd_ps(_mm512_maskz_unpacklo_pd(0xff, low, high));
      b[4 * i + 2 * j + 1] = _mm512_castpd_ps(_mm512_maskz_unpackhi_pd(0xff, low, high));
    }
  }
  // Then the quarters change places: b[4 * i + j] holds column 4 * quarter + j of rows 4 * i ...
  for (int j = 0; j < 4; ++j) {
    const __m512 even01 = _mm512_maskz_shuffle_f32x4(kAllLanes, b[j], b[4 + j], 0x88);
    const __m512 odd01 = _mm512_maskz_shuffle_f32x4(kAllLanes, b[j], b[4 + j], 0xdd);
    const __m512 even23 = _mm512_maskz_shuffle_f32x4(kAllLanes, b[8 + j], b[12 + j], 0x88);
    const __m512 odd23 = _mm512_maskz_shuffle_f32x4(kAllLanes, b[8 + j], b[12 + j], 0xdd);
    rows[j] = (VecF)_mm512_maskz_shuffle_f32x4(kAllLanes, even01, even23, 0x88);
    rows[4 + j] = (VecF)_mm512_maskz_shuffle_f32x4(kAllLanes, odd01, odd23, 0x88);
    rows[8 + j] = (VecF)_mm512_maskz_shuffle_f32x4(kAllLanes, even01, even23, 0xdd);
    rows[12 + j] = (VecF)_mm512_maskz_shuffle_f32x4(kAllLanes, odd01, odd23, 0xdd);
  }
}

#elif defined(WHET_CPU_AVX2)

// Lane j of row i becomes lane i of row j.
WHET_CPU_FN void TransposeSquare(VecF (&rows)[kLanes]) {
  __m256 a[8];
  __m256 b[8];
  for (int i = 0; i < 4; ++i) {
    a[2 * i] = _mm256_unpacklo_ps((__m256)rows[2 * i], (__m256)rows[2 * i + 1]);
    a[2 * i + 1] = _mm256_unpackhi_ps((__m256)rows[2 * i], (__m256)rows[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) {
      const __m256d low = _mm256_castps_pd(a[4 * i + j]);
      const __m256d high = _mm256_castps_pd(a[4 * i + 2 + j]);
      b[4 * i + 2 * j] = _mm256_castpd_ps(_mm256_unpacklo_pd(low, high));
      b[4 * i + 2 * j + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(low, high));
    }
  }
  for (int j = 0; j < 4; ++j) {
    rows[j] = (VecF)_mm256_permute2f128_ps(b[j], b[4 + j], 0x20);
    rows[4 + j] = (VecF)_mm256_permute2f128_ps(b[j], b[4 + j], 0x31);
  }
}

#elif defined(__SSE__)

// Lane j of row i becomes lane i of row j.
WHET_CPU_FN void TransposeSquare(VecF (&rows)[kLanes]) {
  const __m128 low01 = _mm_unpacklo_ps((__m128)rows[0], (__m128)rows[1]);
  const __m128 low23 = _mm_unpacklo_ps((__m128)rows[2], (__m128)rows[3]);
  const __m128 high01 = _mm_unpackhi_ps((__m128)rows[0], (__m128)rows[1]);
  const __m128 high23 = _mm_unpackhi_ps((__m128)rows[2], (__m128)rows[3]);
  rows[0] = (VecF)_mm_movelh_ps(low01, low23);
  rows[1] = (VecF)_mm_movehl_ps(low23, low01);
  rows[2] = (VecF)_mm_movelh_ps(high01, high23);
  rows[3] = (VecF)_mm_movehl_ps(high23, high01);
}

#else

// Lane j of row i becomes lane i of row j.
WHET_CPU_FN void TransposeSquare(VecF (&rows)[kLanes]) {
  float words[kLanes][kLanes];
  for (int i = 0; i < kLanes; ++i) StoreVec(words[i], rows[i]);
  for (int i = 0; i < kLanes; ++i) {
    for (int j = 0; j < kLanes; ++j) rows[j][i] = words[i][j];
  }
}

#endif

#endif  // WHET_COMMON_CPU_TRANSPOSE_H_
