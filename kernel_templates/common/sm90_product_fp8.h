// Warpgroup matrix products (wgmma) of NVIDIA Hopper, sm_90a: e4m3 operands, f32 accumulators. Both operands are contiguous along the
// dimension that is summed over; the rest is as in common/sm90_product.h.
//
//   whet::sm90::ByteProduct<128>::shared_shared(acc, q_descriptor, k_descriptor, 0);
//
// The tensor cores keep about 14 bits of a running sum, so long sums of numbers of one sign lose their tail.
#pragma once

#include "common/sm90_product.h"

namespace whet {
namespace sm90 {

// As panel_descriptor, for panels of kSwizzle = 128, 64 or 32 bytes in a row. Groups of 8 rows follow each other.
template <int kSwizzle>
WHET_DEVICE Uint64 byte_panel_descriptor(Uint32 address) {
  static_assert(kSwizzle == 128 || kSwizzle == 64 || kSwizzle == 32, "rows of 128, 64 or 32 bytes");
  constexpr Uint64 kKind = kSwizzle == 128 ? 1 : kSwizzle == 64 ? 2 : 3;
  return (kKind << 62) | (static_cast<Uint64>(8 * kSwizzle >> 4) << 32) |
         (static_cast<Uint64>(1) << 16) | ((address & 0x3ffffu) >> 4);
}

// d[64 x kColumns] (+)= a[64 x 32] b[32 x kColumns] by one warpgroup. `accumulate` 0 overwrites d.
//   shared_shared     a and b in shared memory
//   register_shared   a in registers: a[0] and a[2] are 4 bytes of row lane / 4 at 4 (lane % 4) and 16 further, a[1] and a[3] of the row 8 below
template <int kColumns>
struct ByteProduct;

// p0... are the numbers of the operands that follow the n / 2 accumulators.
#define WHET_BYTE_PRODUCT(n, p0, p1, p2, p3, p4, p5)                                               \
  template <>                                                                                      \
  struct ByteProduct<n> {                                                                          \
    static __device__ __forceinline__ void shared_shared(float* d, Uint64 a, Uint64 b,             \
                                                         int accumulate) {                         \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #p2                                        \
                   ", 0;\n"                                                                        \
                   "wgmma.mma_async.sync.aligned.m64n" #n "k32.f32.e4m3.e4m3 {" WHET_REGISTERS_##n \
                   "}, %" #p0 ", %" #p1 ", p, 1, 1;\n}"                                            \
                   : WHET_OPERANDS_##n(d)                                                          \
                   : "l"(a), "l"(b), "r"(accumulate));                                             \
    }                                                                                              \
    static __device__ __forceinline__ void register_shared(float* d, const Uint32* a, Uint64 b,    \
                                                           int accumulate) {                       \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #p5                                        \
                   ", 0;\n"                                                                        \
                   "wgmma.mma_async.sync.aligned.m64n" #n "k32.f32.e4m3.e4m3 {" WHET_REGISTERS_##n \
                   "}, {%" #p0 ", %" #p1 ", %" #p2 ", %" #p3 "}, %" #p4 ", p, 1, 1;\n}"            \
                   : WHET_OPERANDS_##n(d)                                                          \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));         \
    }                                                                                              \
  }

WHET_BYTE_PRODUCT(8, 4, 5, 6, 7, 8, 9);
WHET_BYTE_PRODUCT(16, 8, 9, 10, 11, 12, 13);
WHET_BYTE_PRODUCT(24, 12, 13, 14, 15, 16, 17);
WHET_BYTE_PRODUCT(32, 16, 17, 18, 19, 20, 21);
WHET_BYTE_PRODUCT(40, 20, 21, 22, 23, 24, 25);
WHET_BYTE_PRODUCT(48, 24, 25, 26, 27, 28, 29);
WHET_BYTE_PRODUCT(56, 28, 29, 30, 31, 32, 33);
WHET_BYTE_PRODUCT(64, 32, 33, 34, 35, 36, 37);
WHET_BYTE_PRODUCT(72, 36, 37, 38, 39, 40, 41);
WHET_BYTE_PRODUCT(80, 40, 41, 42, 43, 44, 45);
WHET_BYTE_PRODUCT(88, 44, 45, 46, 47, 48, 49);
WHET_BYTE_PRODUCT(96, 48, 49, 50, 51, 52, 53);
WHET_BYTE_PRODUCT(104, 52, 53, 54, 55, 56, 57);
WHET_BYTE_PRODUCT(112, 56, 57, 58, 59, 60, 61);
WHET_BYTE_PRODUCT(120, 60, 61, 62, 63, 64, 65);
WHET_BYTE_PRODUCT(128, 64, 65, 66, 67, 68, 69);
WHET_BYTE_PRODUCT(136, 68, 69, 70, 71, 72, 73);
WHET_BYTE_PRODUCT(144, 72, 73, 74, 75, 76, 77);
WHET_BYTE_PRODUCT(152, 76, 77, 78, 79, 80, 81);
WHET_BYTE_PRODUCT(160, 80, 81, 82, 83, 84, 85);
WHET_BYTE_PRODUCT(168, 84, 85, 86, 87, 88, 89);
WHET_BYTE_PRODUCT(176, 88, 89, 90, 91, 92, 93);
WHET_BYTE_PRODUCT(184, 92, 93, 94, 95, 96, 97);
WHET_BYTE_PRODUCT(192, 96, 97, 98, 99, 100, 101);
WHET_BYTE_PRODUCT(200, 100, 101, 102, 103, 104, 105);
WHET_BYTE_PRODUCT(208, 104, 105, 106, 107, 108, 109);
WHET_BYTE_PRODUCT(216, 108, 109, 110, 111, 112, 113);
WHET_BYTE_PRODUCT(224, 112, 113, 114, 115, 116, 117);
WHET_BYTE_PRODUCT(232, 116, 117, 118, 119, 120, 121);
WHET_BYTE_PRODUCT(240, 120, 121, 122, 123, 124, 125);
WHET_BYTE_PRODUCT(248, 124, 125, 126, 127, 128, 129);
WHET_BYTE_PRODUCT(256, 128, 129, 130, 131, 132, 133);

#undef WHET_BYTE_PRODUCT

}  // namespace sm90
}  // namespace whet
