// Probabilities in e4m3 for CDNA's attention kernels: from scores to bytes, with and without an exponential.
//
// A score S arrives from the matrix instruction in the units of its route: S = kUnit (x - m) + kTop, where x is the logit in powers of
// two and m the row's reference. An exponential route takes exp2(S) and rounds it. A byte route makes the e4m3 byte itself: with a
// mantissa that is linear between powers of two, the byte of 2^t is 8 (t + bias), so it is enough to round S to an integer between 0 and
// the largest finite byte. kCentre balances the error of that line, which is never below the curve: the sums are taken from the same
// bytes, so what remains is the ripple of a few percent.
#pragma once
#include "common/amd.h"
#include "common/amd_hidden.h"

namespace whet {

typedef int Int4 __attribute__((ext_vector_type(4)));
typedef int Int8 __attribute__((ext_vector_type(8)));
typedef short Short2 __attribute__((ext_vector_type(2)));
typedef unsigned short Ushort2 __attribute__((ext_vector_type(2)));

// How a score becomes a byte.
constexpr int kExponential = 0;        // v_exp, v_cvt_pk_fp8
constexpr int kExponentialScaled = 1;  // v_exp, v_cvt_scalef32_pk_fp8 (gfx950)
constexpr int kByteU8 = 2;             // v_cvt_pk_u8
constexpr int kByteMaximum = 3;  // no conversion: a 16-bit maximum picks the byte out of the float
constexpr int kByteNorm = 4;     // v_cvt_pknorm_u16, v_perm

// What v_cvt_pk_u8_f32 does to a fraction is not documented. Nearest is assumed; where hardware truncates, this must be 0.5.
constexpr float kU8Rounding = 0.0f;
// The other byte routes take the integer part.
constexpr float kFloorRounding = 0.5f;
constexpr float kCentre = -0.344f;  // -0.043 of a power of two

template <int kRoute, bool kFnuz>
struct Weights {
  static constexpr bool kBytes = kRoute >= kByteU8;
  static constexpr int kLift = kFnuz ? 7 : 8;  // the largest weight is 2^kLift: exact in e4m3
  static constexpr int kBias = kFnuz ? 8 : 7;
  static constexpr float kLast = kFnuz ? 127.0f : 126.0f;  // the largest finite byte
  static constexpr float kShift = kRoute == kByteU8 ? kU8Rounding : kFloorRounding;
  // kByteMaximum reads the integer out of a float between 128 and 256; kByteNorm out of the upper half of a 16-bit fraction.
  static constexpr float kOffset = kRoute == kByteMaximum ? 128.0f : 0.0f;
  static constexpr float kStep = kRoute == kByteNorm ? 1.0f / 256.0f : 1.0f;  // of a byte
  static constexpr float kUnit = kBytes ? 8.0f * kStep : 1.0f;
  static constexpr float kTop =
      kBytes ? (kOffset + 8.0f * (kLift + kBias) + kCentre + kShift) * kStep : 1.0f * kLift;
  // Above this a byte would be NaN.
  static constexpr float kLimit =
      kBytes ? (kOffset + kLast + kShift + 0.4f) * kStep : (kFnuz ? 7.9f : 8.8f);
};

// Keeps a value that is the same in all lanes in a scalar register, and what is computed before it apart from what is computed after: minimum
// and maximum together would become one instruction that only the vector unit has.
#if WHET_EMULATOR
#define WHET_PIN_SCALAR(x) ((void)0)
#else
#define WHET_PIN_SCALAR(x) asm("" : "+s"(x))
#endif

// Keeps a value in accumulation registers, as WHET_PIN does in vector registers.
#if WHET_EMULATOR
#define WHET_PIN_ACCUMULATOR(x) ((void)0)
#else
#define WHET_PIN_ACCUMULATOR(x) asm volatile("" : "+a"(x))
#endif

#if !WHET_EMULATOR
#define WHET_BYTE_OF(word, score, byte)                             \
  "v_max_i16_sdwa %" #word ", %" #score ", %10 dst_sel:BYTE_" #byte \
  " dst_unused:UNUSED_PRESERVE src0_sel:WORD_1 src1_sel:WORD_0\n"
#endif

// Eight scores of a lane as eight bytes of e4m3, in order. kBehindSum: close behind the first matrix instruction of a row sum, whose addend's
// registers the words may be given; inline assembly has to keep the three wait states itself.
template <int kRoute, bool kFnuz, bool kBehindSum = false>
WHET_DEVICE Uint2 weights_of(const float (&s)[8]) {
  Uint2 word = {any_word(), any_word()};
  if constexpr (kRoute == kByteU8) {
    WHET_UNROLL
    for (int i = 0; i < 8; ++i)
      word[i / 4] = __builtin_amdgcn_cvt_pk_u8_f32(s[i], i % 4, word[i / 4]);
  } else if constexpr (kRoute == kByteMaximum) {
    // The upper half of a float from 128 to 255 is 0x4300 + its integer part; below, it is smaller.
#if WHET_EMULATOR
    word = Uint2{};
    for (int i = 0; i < 8; ++i) {
      const short half = static_cast<short>(float_bits(s[i]) >> 16);
      word[i / 4] |= static_cast<unsigned>((half > 0x4300 ? half : 0x4300) & 255) << (i % 4 * 8);
    }
#else
    unsigned low = word[0], high = word[1];
    // Alternating, because an instruction must not follow another that wrote part of the same register.
#define WHET_EIGHT_BYTES(before)                                                              \
  asm volatile(before WHET_BYTE_OF(0, 2, 0) WHET_BYTE_OF(1, 6, 0) WHET_BYTE_OF(0, 3, 1)       \
                   WHET_BYTE_OF(1, 7, 1) WHET_BYTE_OF(0, 4, 2) WHET_BYTE_OF(1, 8, 2)          \
                       WHET_BYTE_OF(0, 5, 3) WHET_BYTE_OF(1, 9, 3)                            \
               : "+&v"(low), "+&v"(high)                                                      \
               : "v"(s[0]), "v"(s[1]), "v"(s[2]), "v"(s[3]), "v"(s[4]), "v"(s[5]), "v"(s[6]), \
                 "v"(s[7]), "v"(0x4300))
    if constexpr (kBehindSum) {
      WHET_EIGHT_BYTES("s_nop 2\n");
    } else {
      WHET_EIGHT_BYTES("");
    }
#undef WHET_EIGHT_BYTES
    word = Uint2{low, high};
#endif
  } else if constexpr (kRoute == kByteNorm) {
    WHET_UNROLL
    for (int i = 0; i < 2; ++i) {
      const Ushort2 a = __builtin_amdgcn_cvt_pknorm_u16(s[4 * i], s[4 * i + 1]);
      const Ushort2 b = __builtin_amdgcn_cvt_pknorm_u16(s[4 * i + 2], s[4 * i + 3]);
      word[i] = __builtin_amdgcn_perm(__builtin_bit_cast(unsigned, b),
                                      __builtin_bit_cast(unsigned, a), 0x07050301u);
    }
  } else {
    WHET_UNROLL
    for (int i = 0; i < 2; ++i) {
      float p[4];
      WHET_UNROLL
      for (int e = 0; e < 4; ++e) p[e] = exp2_fast(s[4 * i + e]);
#if WHET_ARCH_gfx950
      if constexpr (kRoute == kExponentialScaled) {
        Short2 pair = __builtin_bit_cast(Short2, word[i]);
        pair = __builtin_amdgcn_cvt_scalef32_pk_fp8_f32(pair, p[0], p[1], 1.0f, false);
        pair = __builtin_amdgcn_cvt_scalef32_pk_fp8_f32(pair, p[2], p[3], 1.0f, true);
        word[i] = __builtin_bit_cast(unsigned, pair);
        continue;
      }
#endif
      int pair = static_cast<int>(word[i]);
      pair = __builtin_amdgcn_cvt_pk_fp8_f32(p[0], p[1], pair, false);
      pair = __builtin_amdgcn_cvt_pk_fp8_f32(p[2], p[3], pair, true);
      word[i] = static_cast<unsigned>(pair);
    }
  }
  return word;
}

// Inline assembly may have written what the next matrix instruction reads.
WHET_DEVICE void settle_weights() {
#if !WHET_EMULATOR
  asm volatile("s_nop 1");
#endif
}

// The value of a byte.
template <bool kFnuz>
WHET_DEVICE float e4m3_value(unsigned byte) {
  const int exponent = static_cast<int>(byte >> 3 & 15u);
  const int mantissa = static_cast<int>(byte & 7u) + (exponent > 0 ? 8 : 0);
  const int least = kFnuz ? -10 : -9;
  const float size =
      __builtin_ldexpf(static_cast<float>(mantissa), least + (exponent > 0 ? exponent - 1 : 0));
  const bool nan = kFnuz ? byte == 0x80u : (byte & 0x7fu) == 0x7fu;
  return nan ? float_from_bits(0x7fc00000u) : byte & 0x80u ? -size : size;
}

// A row of attention_forward_fp8 for seen_output, whose result lacks v_scale.
template <bool kFnuz>
struct SeenRowFp8 {
  const unsigned char* q;  // the row
  const unsigned char* k;  // of the head
  const unsigned char* v;  // of the head
  const float* k_scale;    // of the head
  float factor;            // of logits, in powers of two and without the key's scale; its sign too
  float reference;         // near the largest logit
  Int64 visible;           // keys, from the first; none if negative

  __device__ float weight(Int64 key) const {
    const unsigned char* const at = k + key * SHAPE_K_STRIDE_S;
    float dot = 0.0f;
    for (int d = 0; d < SHAPE_DQK; ++d) dot += e4m3_value<kFnuz>(q[d]) * e4m3_value<kFnuz>(at[d]);
    const Int64 block =
        SHAPE_K_SCALE_ROWS > 0 ? key / (SHAPE_K_SCALE_ROWS > 0 ? SHAPE_K_SCALE_ROWS : 1) : 0;
    return exp2_fast(dot * factor * k_scale[block] - reference);
  }
  __device__ float value(Int64 key, int channel) const {
    return e4m3_value<kFnuz>(v[channel * static_cast<Int64>(SHAPE_V_STRIDE_D) + key]);
  }
};

// NaN if either is.
WHET_DEVICE float max_or_nan(float a, float b) { return a != a ? a : b != b ? b : max_float(a, b); }

#if WHET_ARCH_gfx950
// The matrix instructions with a choice of registers. With more than 256 of them per lane half are accumulation registers, which only
// matrix instructions and loads can name: outputs and Q belong there, scores do not, and compilers put both or neither there. They do
// not know that these are matrix instructions: a result must not be used before two others have been started. What a vector instruction
// has written must not be used within two wait states, and compilers may move any operand just before: hence the s_nop.
#if !WHET_EMULATOR
WHET_DEVICE void multiply_into_vector(Float16& d, Int8 a, Int8 b, const Float16& c, int scale_a,
                                      int scale_b) {
  asm volatile(
      "s_nop 1\nv_mfma_scale_f32_32x32x64_f8f6f4 %0, %1, %2, %3, %4, %5 op_sel_hi:[0,0,0]\n"
      // Compilers may give the addend's registers away at once; they are read over the next 15 wait states.
      "s_nop 7\ns_nop 6"
      : "=&v"(d)
      : "v"(a), "v"(b), "v"(c), "v"(scale_a), "v"(scale_b));
}
WHET_DEVICE void multiply_more_into_vector(Float16& d, Int8 a, Int8 b, int scale_a, int scale_b) {
  asm volatile("s_nop 1\nv_mfma_scale_f32_32x32x64_f8f6f4 %0, %1, %2, %0, %3, %4 op_sel_hi:[0,0,0]"
               : "+v"(d)
               : "v"(a), "v"(b), "v"(scale_a), "v"(scale_b));
}
WHET_DEVICE void multiply_into_vector(Float16& d, Int8 a, Int8 b) {
  asm volatile("s_nop 1\nv_mfma_f32_32x32x64_f8f6f4 %0, %1, %2, 0" : "=&v"(d) : "v"(a), "v"(b));
}
WHET_DEVICE void multiply_more_into_vector(Float16& d, Int8 a, Int8 b) {
  asm volatile("s_nop 1\nv_mfma_f32_32x32x64_f8f6f4 %0, %1, %2, %0" : "+v"(d) : "v"(a), "v"(b));
}
WHET_DEVICE void multiply_into_accumulator(Float16& d, Int8 a, Int8 b, int scale_a, int scale_b) {
  asm volatile("s_nop 1\nv_mfma_scale_f32_32x32x64_f8f6f4 %0, %1, %2, %0, %3, %4 op_sel_hi:[0,0,0]"
               : "+a"(d)
               : "v"(a), "v"(b), "v"(scale_a), "v"(scale_b));
}
WHET_DEVICE void sparse_into_vector(Float4& d, Int4 a, Int8 b, int index) {
  asm volatile("s_nop 1\nv_smfmac_f32_16x16x128_fp8_fp8 %0, %1, %2, %3"
               : "+v"(d)
               : "v"(a), "v"(b), "v"(index));
}

// Waits until the result of a matrix instruction of the above can be read.
WHET_DEVICE void await_vector(Float16& x) { asm volatile("s_nop 7\ns_nop 7\ns_nop 3" : "+v"(x)); }
WHET_DEVICE void await_vector(Float4& x) { asm volatile("s_nop 7\ns_nop 7\ns_nop 3" : "+v"(x)); }
WHET_DEVICE void await_accumulator(Float16& x) {
  asm volatile("s_nop 7\ns_nop 7\ns_nop 3" : "+a"(x));
}
WHET_DEVICE void scale_accumulator(Float16& x, float factor) {
  await_accumulator(x);
  x *= factor;
  asm volatile("s_nop 3" : "+a"(x));
}
#endif

// The largest of five in two instructions, or NaN if one of them is. For its distance to matrix instructions see max5.
WHET_DEVICE float maximum5(float a, float b, float c, float d, float e) {
#if WHET_EMULATOR
  return max_or_nan(max_or_nan(max_or_nan(a, b), max_or_nan(c, d)), e);
#else
  float result;
  asm volatile("v_maximum3_f32 %0, %1, %2, %5\nv_maximum3_f32 %0, %3, %4, %0"
               : "=&v"(result)
               : "v"(a), "v"(b), "v"(c), "v"(d), "v"(e));
  return result;
#endif
}
#endif

}  // namespace whet
