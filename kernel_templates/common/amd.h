// CDNA's wave-level instructions under short names. Lane layouts, with h = lane / 32 and c = lane % 32, of a 32 x 32 product:
// D holds row 8 (r / 4) + 4 h + r % 4 of column c in register r; A holds row c, B column c, k = 8 h + 0..7 of 16 (4 h + 0..3 of 8).
#pragma once
#include "common/gpu.h"

// A pointer into LDS as the instructions take it. An emulator has its own definition.
#ifndef WHET_LDS
#define WHET_LDS(type) __attribute__((address_space(3))) type
#endif

// Keeps a value in vector registers, and computed, at this place of the instruction stream.
#if WHET_EMULATOR
#define WHET_PIN(x) ((void)0)
#else
#define WHET_PIN(x) asm volatile("" : "+v"(x))
#endif

// Full unrolling: arrays indexed by the loop become registers.
#define WHET_UNROLL _Pragma("unroll")

namespace whet {

typedef float Float2 __attribute__((ext_vector_type(2)));
typedef float Float4 __attribute__((ext_vector_type(4)));
typedef float Float16 __attribute__((ext_vector_type(16)));
typedef short Short4 __attribute__((ext_vector_type(4)));
typedef short Short8 __attribute__((ext_vector_type(8)));
#if __clang_major__ >= 17
typedef __bf16 Bf16x2 __attribute__((ext_vector_type(2)));
typedef __bf16 Bf16x8 __attribute__((ext_vector_type(8)));
#endif
typedef unsigned Uint2 __attribute__((ext_vector_type(2)));
typedef unsigned Uint4 __attribute__((ext_vector_type(4)));

// The number of this wave in its block, known to the compiler to be the same in all lanes.
WHET_DEVICE int wave_index() {
  return __builtin_amdgcn_readfirstlane(static_cast<int>(thread_index()) / 64);
}
WHET_DEVICE int lane_index() { return static_cast<int>(thread_index()) % 64; }

// One bit per lane.
WHET_DEVICE unsigned long long ballot(bool predicate) {
#if WHET_EMULATOR || __has_builtin(__builtin_amdgcn_ballot_w64)
  return __builtin_amdgcn_ballot_w64(predicate);
#else
  constexpr int kNotEqual = 33;
  return __builtin_amdgcn_uicmp(predicate ? 1u : 0u, 0u, kNotEqual);
#endif
}

// The value of the lane whose number differs by 32.
WHET_DEVICE float other_half(float x) {
  const int at = (lane_index() ^ 32) * 4;
  return float_from_bits(
      static_cast<unsigned>(__builtin_amdgcn_ds_bpermute(at, static_cast<int>(float_bits(x)))));
}

// Two floats as two BF16 words, rounded to nearest even; for targets without an instruction for it. Right for every number and for the
// NaN that arithmetic makes.
WHET_DEVICE unsigned pack_bf16(float low, float high) {
  const unsigned a = float_bits(low), b = float_bits(high);
  return __builtin_amdgcn_perm(b + 0x7fffu + (b >> 16 & 1u), a + 0x7fffu + (a >> 16 & 1u),
                               0x07060302u);
}

// The same for numbers of which none is a NaN, halves rounded away from zero: two instructions fewer.
WHET_DEVICE unsigned pack_bf16_away(float low, float high) {
  return __builtin_amdgcn_perm(float_bits(high) + 0x8000u, float_bits(low) + 0x8000u, 0x07060302u);
}

// The same rounded toward zero: one instruction.
WHET_DEVICE unsigned pack_bf16_down(float low, float high) {
  return __builtin_amdgcn_perm(float_bits(high), float_bits(low), 0x07060302u);
}

// a * b - c for both elements in one instruction, which compilers may not take apart. Nothing that has just been made by a matrix or a
// transcendental instruction may be an operand: compilers do not keep the distance.
WHET_DEVICE Float2 multiply_subtract_packed(Float2 a, Float2 b, Float2 c) {
#if WHET_EMULATOR
  return a * b - c;
#else
  Float2 result;
  asm("v_pk_fma_f32 %0, %1, %2, %3 neg_lo:[0,0,1] neg_hi:[0,0,1]"
      : "=v"(result)
      : "v"(a), "v"(b), "v"(c));
  return result;
#endif
}

// Row sums of P: either two partial sums of a lane's own keys, or whole sums from a 16 x 16 product whose first operand sum_operand gives
// and whose second is P as a 32 x 32 product takes it.
template <bool kMatrix>
struct RowSum {
  Float2 value;
  __device__ __attribute__((always_inline)) void add(Float2 weights) { value += weights; }
  // As multiply_subtract_packed. It stays behind the pins before it, so behind what was made of the same weights there.
  __device__ __attribute__((always_inline)) void add_packed(Float2 weights) {
#if WHET_EMULATOR
    value += weights;
#else
    asm volatile("v_pk_add_f32 %0, %0, %1" : "+v"(value) : "v"(weights));
#endif
  }
};
template <>
struct RowSum<true> {
  Float4 value;  // all the same
  __device__ __attribute__((always_inline)) void add(Float2) {}
  __device__ __attribute__((always_inline)) void add_packed(Float2) {}
};
// Two BF16 ones or zeros. The 16-column product takes a lane's row c as column c % 16 in the k group lane / 16; a row i of ones adds up the
// groups of those 16 query rows that its result is for: lane / 16 even, the lower.
WHET_DEVICE unsigned sum_operand(int lane) {
  return lane / 4 % 2 == lane / 16 % 2 ? 0x3f803f80u : 0u;
}

// Waits until at most kOutstanding of this wave's vector memory operations are in flight. Says nothing about LDS accesses.
template <int kOutstanding>
WHET_DEVICE void wait_memory() {
  static_assert(kOutstanding >= 0 && kOutstanding < 64, "vmcnt has six bits");
  __builtin_amdgcn_s_waitcnt((kOutstanding & 15) | (kOutstanding >> 4) << 14 | 0x0f70);
}
// Waits for this wave's LDS accesses.
WHET_DEVICE void wait_lds() { __builtin_amdgcn_s_waitcnt(0xc07f); }

// Before inline assembly that reads what matrix instructions have made, or is given a register that one has yet to write or read although
// nobody wants that any more: compilers keep the distance for their own instructions only. bench/amd/hazards.h checks it.
WHET_DEVICE void wait_matrix() {
#if !WHET_EMULATOR
  asm volatile("s_nop 7\ns_nop 7\ns_nop 3");
#endif
}

// The largest of five in two instructions. Written as such because IEEE mode makes compilers quieten each operand first. The compiler
// does not know that it must keep its distance to a matrix instruction whose result it reads: place it well behind, or behind plain
// arithmetic on the same registers.
WHET_DEVICE float max5(float a, float b, float c, float d, float e) {
#if WHET_EMULATOR
  return max_float(max_float(max_float(a, b), max_float(c, d)), e);
#else
  float result;
  asm volatile("v_max3_f32 %0, %1, %2, %5\nv_max3_f32 %0, %3, %4, %0"
               : "=&v"(result)
               : "v"(a), "v"(b), "v"(c), "v"(d), "v"(e));
  return result;
#endif
}

// A word whose contents do not matter.
WHET_DEVICE unsigned any_word() {
#if WHET_EMULATOR
  return 0;
#else
  unsigned word;
  // Volatile, so that each is a register of its own that may be overwritten.
  asm volatile("" : "=v"(word));
  return word;
#endif
}

// v[first] ... v[first + 15] times the first of a pair of registers.
#define WHET_SCALE_PAIR(first, second) \
  "v_pk_mul_f32 v[" #first ":" #second "], v[" #first ":" #second "], %[factor] op_sel_hi:[1,0]\n"
#define WHET_SCALE_16(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p) \
  WHET_SCALE_PAIR(a, b)                                               \
  WHET_SCALE_PAIR(c, d)                                               \
  WHET_SCALE_PAIR(e, f)                                               \
  WHET_SCALE_PAIR(g, h)                                               \
  WHET_SCALE_PAIR(i, j) WHET_SCALE_PAIR(k, l) WHET_SCALE_PAIR(m, n) WHET_SCALE_PAIR(o, p)
#define WHET_SCALE_0 WHET_SCALE_16(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
#define WHET_SCALE_1 WHET_SCALE_16(16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31)
#define WHET_SCALE_2 WHET_SCALE_16(32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47)
#define WHET_SCALE_3 WHET_SCALE_16(48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63)
#define WHET_SCALE_IF(instructions, ...)        \
  asm volatile(                                 \
      "s_cmp_eq_u64 %[mask], 0\n"               \
      "s_cbranch_scc1 .Lwhet_keep%=\n"          \
      "s_nop 7\n"                               \
      "s_nop 7\n"                               \
      "s_nop 3\n" instructions                  \
      "s_nop 3\n"                               \
      ".Lwhet_keep%=:"                          \
      : __VA_ARGS__                             \
      : [factor] "v"(factors), [mask] "s"(mask) \
      : "scc")

// Each of up to four accumulators *= factor where mask, the same in all lanes, is not zero. The branch is hidden from compilers, which
// otherwise keep the accumulators in two places and copy them on the path that does nothing; and the registers are named, or hipRTC 7.14
// takes them apart into pairs in other registers and copies those. The wait states are those between a matrix instruction and a reader
// of its result (20 at most), and between a vector instruction and a matrix instruction that reads its result.
template <int kCount>
WHET_DEVICE void scale_if(Float16 (&x)[kCount], float factor, unsigned long long mask) {
  static_assert(kCount >= 1 && kCount <= 4, "registers are named for four accumulators");
#if WHET_EMULATOR
  WHET_UNROLL
  for (int i = 0; i < kCount; ++i)
    if (mask != 0) x[i] *= factor;
#else
  const Float2 factors = {factor, float_from_bits(any_word())};
  if constexpr (kCount == 1) {
    WHET_SCALE_IF(WHET_SCALE_0, "+{v[0:15]}"(x[0]));
  } else if constexpr (kCount == 2) {
    WHET_SCALE_IF(WHET_SCALE_0 WHET_SCALE_1, "+{v[0:15]}"(x[0]), "+{v[16:31]}"(x[1]));
  } else if constexpr (kCount == 3) {
    WHET_SCALE_IF(WHET_SCALE_0 WHET_SCALE_1 WHET_SCALE_2, "+{v[0:15]}"(x[0]), "+{v[16:31]}"(x[1]),
                  "+{v[32:47]}"(x[2]));
  } else {
    WHET_SCALE_IF(WHET_SCALE_0 WHET_SCALE_1 WHET_SCALE_2 WHET_SCALE_3, "+{v[0:15]}"(x[0]),
                  "+{v[16:31]}"(x[1]), "+{v[32:47]}"(x[2]), "+{v[48:63]}"(x[3]));
  }
#endif
}

// An integer as a type, and f(Constant<kBegin>()) ... f(Constant<kEnd - 1>()): unrolling that does not depend on an optimiser's limits.
template <int kNumber>
struct Constant {
  static constexpr int kValue = kNumber;
};
template <int kBegin, int kEnd, class Function>
WHET_DEVICE void for_each(Function&& function) {
  if constexpr (kBegin < kEnd) {
    function(Constant<kBegin>());
    for_each<kBegin + 1, kEnd>(function);
  }
}

// A stretch of global memory that loads may overrun: what lies beyond gives zeros in registers; in LDS, zeros or what was there before. The
// same in all lanes.
struct Buffer {
#if WHET_EMULATOR
  __amdgpu_buffer_rsrc_t words;
#else
  Uint4 words;
#endif
};
WHET_DEVICE Buffer make_buffer(const void* base, unsigned bytes) {
#if WHET_EMULATOR
  return {__builtin_amdgcn_make_buffer_rsrc(const_cast<void*>(base), 0, bytes, 0)};
#else
  const unsigned long long at = reinterpret_cast<unsigned long long>(base);
  return {Uint4{static_cast<unsigned>(at), static_cast<unsigned>(at >> 32) & 0xffffu, bytes,
                0x00020000u}};
#endif
}

// What is left of a matrix, from the row that `at` points to, for kernels that go through it tile by tile: advancing costs less than
// computing a tile's place anew. Bytes is int where the whole fits: scalar units compare no 64-bit numbers.
template <class Bytes>
struct Rest {
  const char* at;
  Bytes bytes;  // to the last element's end; not positive behind it

  __device__ __attribute__((always_inline)) Buffer buffer() const {
    constexpr Bytes kMost = 0x7fffffff;
    return make_buffer(at, static_cast<unsigned>(bytes < 0 ? 0 : bytes > kMost ? kMost : bytes));
  }
  __device__ __attribute__((always_inline)) void advance(Bytes tile_bytes) {
    at += tile_bytes;
    bytes -= tile_bytes;
  }
};

// 16 or 4 bytes at `offset`, each lane's own, into registers; zeros where they lie beyond the buffer. The compiler waits for them, and
// counts. The builtins of the same name are younger than the compilers that must be served.
#if WHET_EMULATOR
WHET_DEVICE Uint4 load_16(const Buffer& from, unsigned offset) {
  return __builtin_amdgcn_raw_buffer_load_b128(from.words, offset, 0, 0);
}
WHET_DEVICE unsigned load_4(const Buffer& from, unsigned offset) {
  return __builtin_amdgcn_raw_buffer_load_b32(from.words, offset, 0, 0);
}
#else
extern "C" __device__ Uint4
whet_raw_buffer_load_16(Uint4 words, unsigned offset, unsigned wave_offset,
                        unsigned policy) __asm("llvm.amdgcn.raw.buffer.load.v4i32");
extern "C" __device__ unsigned whet_raw_buffer_load_4(
    Uint4 words, unsigned offset, unsigned wave_offset,
    unsigned policy) __asm("llvm.amdgcn.raw.buffer.load.i32");
WHET_DEVICE Uint4 load_16(const Buffer& from, unsigned offset) {
  return whet_raw_buffer_load_16(from.words, offset, 0, 0);
}
WHET_DEVICE unsigned load_4(const Buffer& from, unsigned offset) {
  return whet_raw_buffer_load_4(from.words, offset, 0, 0);
}
#endif

// Starts a load of 16 bytes per lane from `offset`, each lane's own, to LDS, where lane l's bytes lie 16 l behind `to`. It is complete
// once wait_memory has covered it. Written as such because compilers wait for every such load of their own before the next read of LDS,
// which may be meant for quite another place. M0 is not named as overwritten, since compilers reserve it and warn; nothing else here uses it.
WHET_DEVICE void load_to_lds_16(const Buffer& from, unsigned offset, WHET_LDS(char) * to) {
#if WHET_EMULATOR
  __builtin_amdgcn_raw_ptr_buffer_load_lds(from.words, to, 16, offset, 0, 0, 0);
#else
  asm volatile("s_mov_b32 m0, %0\ns_nop 0\nbuffer_load_dwordx4 %1, %2, 0 offen lds"
               :
               : "s"((unsigned)to), "v"(offset), "s"(from.words)
               : "memory");
#endif
}

// Waits for the block's other waves; says nothing about memory. Accesses to memory keep their side of it in the program. Written as such
// for compilers that put a wait for everything in flight before their own (hipRTC 5.2 does).
WHET_DEVICE void meet() {
#if WHET_EMULATOR
  __builtin_amdgcn_s_barrier();
#elif __clang_major__ < 16
  asm volatile("s_barrier" : : : "memory");
#else
  asm volatile("" : : : "memory");
  __builtin_amdgcn_s_barrier();
  asm volatile("" : : : "memory");
#endif
}

// Nothing is scheduled across it.
WHET_DEVICE void schedule_fence() { __builtin_amdgcn_sched_barrier(0); }

}  // namespace whet
