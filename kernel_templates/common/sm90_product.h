// Warpgroup matrix products (wgmma) of NVIDIA Hopper, sm_90a: BF16 operands, f32 accumulators.
//
//   whet::sm90::product_fence();
//   whet::sm90::Product<128>::shared_shared(acc, q_descriptor, k_descriptor, 0);
//   whet::sm90::product_commit();
//   whet::sm90::product_wait<0>();
//   whet::sm90::pin(acc);
#pragma once

#include "common/sm90.h"

namespace whet {
namespace sm90 {

WHET_DEVICE void product_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
WHET_DEVICE void product_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most kPending committed groups are unfinished.
template <int kPending>
WHET_DEVICE void product_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Describes an operand in shared memory as the copy engine writes it with 128-byte swizzle: panels 64 elements (128 bytes) wide, one row
// after the other, aligned to 1024 bytes. `panel_bytes` is the distance from panel to panel, and matters only when the panels lie along the
// dimension that is not summed over.
WHET_DEVICE Uint64 panel_descriptor(Uint32 address, Uint32 panel_bytes) {
  return (static_cast<Uint64>(1) << 62) | (static_cast<Uint64>(1024 >> 4) << 32) |
         (static_cast<Uint64>(panel_bytes >> 4) << 16) | ((address & 0x3ffffu) >> 4);
}

// d[64 x kColumns] (+)= a[64 x 16] b[16 x kColumns], BF16 with f32 accumulators, by one warpgroup. `accumulate` 0 overwrites d.
//   shared_shared     a and b in shared memory, both contiguous along the 16
//   register_shared   a in registers, b contiguous along the 16
//   register_columns  a in registers, b contiguous along its columns
template <int kColumns>
struct Product;

#define WHET_REGISTERS_8 "%0, %1, %2, %3"
#define WHET_OPERANDS_8(d) "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
#define WHET_REGISTERS_16 WHET_REGISTERS_8 ", %4, %5, %6, %7"
#define WHET_OPERANDS_16(d) WHET_OPERANDS_8(d), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
#define WHET_REGISTERS_24 WHET_REGISTERS_16 ", %8, %9, %10, %11"
#define WHET_OPERANDS_24(d) WHET_OPERANDS_16(d), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11])
#define WHET_REGISTERS_32 WHET_REGISTERS_24 ", %12, %13, %14, %15"
#define WHET_OPERANDS_32(d) WHET_OPERANDS_24(d), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
#define WHET_REGISTERS_40 WHET_REGISTERS_32 ", %16, %17, %18, %19"
#define WHET_OPERANDS_40(d) WHET_OPERANDS_32(d), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19])
#define WHET_REGISTERS_48 WHET_REGISTERS_40 ", %20, %21, %22, %23"
#define WHET_OPERANDS_48(d) WHET_OPERANDS_40(d), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23])
#define WHET_REGISTERS_56 WHET_REGISTERS_48 ", %24, %25, %26, %27"
#define WHET_OPERANDS_56(d) WHET_OPERANDS_48(d), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27])
#define WHET_REGISTERS_64 WHET_REGISTERS_56 ", %28, %29, %30, %31"
#define WHET_OPERANDS_64(d) WHET_OPERANDS_56(d), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define WHET_REGISTERS_72 WHET_REGISTERS_64 ", %32, %33, %34, %35"
#define WHET_OPERANDS_72(d) WHET_OPERANDS_64(d), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35])
#define WHET_REGISTERS_80 WHET_REGISTERS_72 ", %36, %37, %38, %39"
#define WHET_OPERANDS_80(d) WHET_OPERANDS_72(d), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39])
#define WHET_REGISTERS_88 WHET_REGISTERS_80 ", %40, %41, %42, %43"
#define WHET_OPERANDS_88(d) WHET_OPERANDS_80(d), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43])
#define WHET_REGISTERS_96 WHET_REGISTERS_88 ", %44, %45, %46, %47"
#define WHET_OPERANDS_96(d) WHET_OPERANDS_88(d), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
#define WHET_REGISTERS_104 WHET_REGISTERS_96 ", %48, %49, %50, %51"
#define WHET_OPERANDS_104(d) WHET_OPERANDS_96(d), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51])
#define WHET_REGISTERS_112 WHET_REGISTERS_104 ", %52, %53, %54, %55"
#define WHET_OPERANDS_112(d) \
  WHET_OPERANDS_104(d), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55])
#define WHET_REGISTERS_120 WHET_REGISTERS_112 ", %56, %57, %58, %59"
#define WHET_OPERANDS_120(d) \
  WHET_OPERANDS_112(d), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59])
#define WHET_REGISTERS_128 WHET_REGISTERS_120 ", %60, %61, %62, %63"
#define WHET_OPERANDS_128(d) \
  WHET_OPERANDS_120(d), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
#define WHET_REGISTERS_136 WHET_REGISTERS_128 ", %64, %65, %66, %67"
#define WHET_OPERANDS_136(d) \
  WHET_OPERANDS_128(d), "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67])
#define WHET_REGISTERS_144 WHET_REGISTERS_136 ", %68, %69, %70, %71"
#define WHET_OPERANDS_144(d) \
  WHET_OPERANDS_136(d), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71])
#define WHET_REGISTERS_152 WHET_REGISTERS_144 ", %72, %73, %74, %75"
#define WHET_OPERANDS_152(d) \
  WHET_OPERANDS_144(d), "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75])
#define WHET_REGISTERS_160 WHET_REGISTERS_152 ", %76, %77, %78, %79"
#define WHET_OPERANDS_160(d) \
  WHET_OPERANDS_152(d), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79])
#define WHET_REGISTERS_168 WHET_REGISTERS_160 ", %80, %81, %82, %83"
#define WHET_OPERANDS_168(d) \
  WHET_OPERANDS_160(d), "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83])
#define WHET_REGISTERS_176 WHET_REGISTERS_168 ", %84, %85, %86, %87"
#define WHET_OPERANDS_176(d) \
  WHET_OPERANDS_168(d), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87])
#define WHET_REGISTERS_184 WHET_REGISTERS_176 ", %88, %89, %90, %91"
#define WHET_OPERANDS_184(d) \
  WHET_OPERANDS_176(d), "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91])
#define WHET_REGISTERS_192 WHET_REGISTERS_184 ", %92, %93, %94, %95"
#define WHET_OPERANDS_192(d) \
  WHET_OPERANDS_184(d), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95])
#define WHET_REGISTERS_200 WHET_REGISTERS_192 ", %96, %97, %98, %99"
#define WHET_OPERANDS_200(d) \
  WHET_OPERANDS_192(d), "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99])
#define WHET_REGISTERS_208 WHET_REGISTERS_200 ", %100, %101, %102, %103"
#define WHET_OPERANDS_208(d) \
  WHET_OPERANDS_200(d), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103])
#define WHET_REGISTERS_216 WHET_REGISTERS_208 ", %104, %105, %106, %107"
#define WHET_OPERANDS_216(d) \
  WHET_OPERANDS_208(d), "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107])
#define WHET_REGISTERS_224 WHET_REGISTERS_216 ", %108, %109, %110, %111"
#define WHET_OPERANDS_224(d) \
  WHET_OPERANDS_216(d), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111])
#define WHET_REGISTERS_232 WHET_REGISTERS_224 ", %112, %113, %114, %115"
#define WHET_OPERANDS_232(d) \
  WHET_OPERANDS_224(d), "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115])
#define WHET_REGISTERS_240 WHET_REGISTERS_232 ", %116, %117, %118, %119"
#define WHET_OPERANDS_240(d) \
  WHET_OPERANDS_232(d), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119])
#define WHET_REGISTERS_248 WHET_REGISTERS_240 ", %120, %121, %122, %123"
#define WHET_OPERANDS_248(d) \
  WHET_OPERANDS_240(d), "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123])
#define WHET_REGISTERS_256 WHET_REGISTERS_248 ", %124, %125, %126, %127"
#define WHET_OPERANDS_256(d) \
  WHET_OPERANDS_248(d), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])

// p0... are the numbers of the operands that follow the n / 2 accumulators.
#define WHET_PRODUCT(n, p0, p1, p2, p3, p4, p5, p6)                                                \
  template <>                                                                                      \
  struct Product<n> {                                                                              \
    static __device__ __forceinline__ void shared_shared(float* d, Uint64 a, Uint64 b,             \
                                                         int accumulate) {                         \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #p2                                        \
                   ", 0;\n"                                                                        \
                   "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" WHET_REGISTERS_##n \
                   "}, %" #p0 ", %" #p1 ", p, 1, 1, 0, 0;\n}"                                      \
                   : WHET_OPERANDS_##n(d)                                                          \
                   : "l"(a), "l"(b), "r"(accumulate));                                             \
    }                                                                                              \
    template <int kColumnsContiguous>                                                              \
    static __device__ __forceinline__ void registers(float* d, const Uint32* a, Uint64 b,          \
                                                     int accumulate) {                             \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #p5                                        \
                   ", 0;\n"                                                                        \
                   "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" WHET_REGISTERS_##n \
                   "}, {%" #p0 ", %" #p1 ", %" #p2 ", %" #p3 "}, %" #p4 ", p, 1, 1, %" #p6 ";\n}"  \
                   : WHET_OPERANDS_##n(d)                                                          \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate),          \
                     "n"(kColumnsContiguous));                                                     \
    }                                                                                              \
    static __device__ __forceinline__ void register_shared(float* d, const Uint32* a, Uint64 b,    \
                                                           int accumulate) {                       \
      registers<0>(d, a, b, accumulate);                                                           \
    }                                                                                              \
    static __device__ __forceinline__ void register_columns(float* d, const Uint32* a, Uint64 b,   \
                                                            int accumulate) {                      \
      registers<1>(d, a, b, accumulate);                                                           \
    }                                                                                              \
  }

WHET_PRODUCT(8, 4, 5, 6, 7, 8, 9, 10);
WHET_PRODUCT(16, 8, 9, 10, 11, 12, 13, 14);
WHET_PRODUCT(24, 12, 13, 14, 15, 16, 17, 18);
WHET_PRODUCT(32, 16, 17, 18, 19, 20, 21, 22);
WHET_PRODUCT(40, 20, 21, 22, 23, 24, 25, 26);
WHET_PRODUCT(48, 24, 25, 26, 27, 28, 29, 30);
WHET_PRODUCT(56, 28, 29, 30, 31, 32, 33, 34);
WHET_PRODUCT(64, 32, 33, 34, 35, 36, 37, 38);
WHET_PRODUCT(72, 36, 37, 38, 39, 40, 41, 42);
WHET_PRODUCT(80, 40, 41, 42, 43, 44, 45, 46);
WHET_PRODUCT(88, 44, 45, 46, 47, 48, 49, 50);
WHET_PRODUCT(96, 48, 49, 50, 51, 52, 53, 54);
WHET_PRODUCT(104, 52, 53, 54, 55, 56, 57, 58);
WHET_PRODUCT(112, 56, 57, 58, 59, 60, 61, 62);
WHET_PRODUCT(120, 60, 61, 62, 63, 64, 65, 66);
WHET_PRODUCT(128, 64, 65, 66, 67, 68, 69, 70);
WHET_PRODUCT(136, 68, 69, 70, 71, 72, 73, 74);
WHET_PRODUCT(144, 72, 73, 74, 75, 76, 77, 78);
WHET_PRODUCT(152, 76, 77, 78, 79, 80, 81, 82);
WHET_PRODUCT(160, 80, 81, 82, 83, 84, 85, 86);
WHET_PRODUCT(168, 84, 85, 86, 87, 88, 89, 90);
WHET_PRODUCT(176, 88, 89, 90, 91, 92, 93, 94);
WHET_PRODUCT(184, 92, 93, 94, 95, 96, 97, 98);
WHET_PRODUCT(192, 96, 97, 98, 99, 100, 101, 102);
WHET_PRODUCT(200, 100, 101, 102, 103, 104, 105, 106);
WHET_PRODUCT(208, 104, 105, 106, 107, 108, 109, 110);
WHET_PRODUCT(216, 108, 109, 110, 111, 112, 113, 114);
WHET_PRODUCT(224, 112, 113, 114, 115, 116, 117, 118);
WHET_PRODUCT(232, 116, 117, 118, 119, 120, 121, 122);
WHET_PRODUCT(240, 120, 121, 122, 123, 124, 125, 126);
WHET_PRODUCT(248, 124, 125, 126, 127, 128, 129, 130);
WHET_PRODUCT(256, 128, 129, 130, 131, 132, 133, 134);

#undef WHET_PRODUCT

}  // namespace sm90
}  // namespace whet
