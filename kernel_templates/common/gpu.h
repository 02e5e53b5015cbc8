// One spelling for what HIP and CUDA device code say differently, through every compiler a template meets: hipRTC 5 to 7,
// an offline clang without HIP's headers, and NVRTC.
//
//   extern "C" __global__ void WHET_ENTRY(const float* x, float* y) {
//     WHET_SHARED_MEMORY(shared);
//     float* row = reinterpret_cast<float*>(shared);
//     row[whet::thread_index()] = x[whet::block_index() * LAUNCH_BLOCK_X + whet::thread_index()];
//     whet::barrier();
//     ...
//   }
//
// Only builtins of the compilers are used: no vendor header is needed, and none may be included here.
#pragma once

#if WHET_PLATFORM_HIP
// An offline clang run with -nogpuinc knows the attributes but not HIP's names for them; hipRTC defines these itself.
#ifndef __global__
#define __global__ __attribute__((global))
#endif
#ifndef __device__
#define __device__ __attribute__((device))
#endif
#ifndef __shared__
#define __shared__ __attribute__((shared))
#endif
#define WHET_DEVICE static inline __device__ __attribute__((always_inline))
#define WHET_BOUNDS(threads) __attribute__((amdgpu_flat_work_group_size(threads, threads)))
// AMD's dynamic LDS starts at address 0 of the block, so an alignment of 16 holds. An emulator has its own definition.
#ifndef WHET_SHARED_MEMORY
#define WHET_SHARED_MEMORY(name) extern __shared__ __attribute__((aligned(16))) unsigned char name[]
#endif
#elif WHET_PLATFORM_CUDA
#define WHET_DEVICE static __device__ __forceinline__
#define WHET_BOUNDS(threads) __launch_bounds__(threads)
#define WHET_SHARED_MEMORY(name) extern __shared__ __align__(16) unsigned char name[]
#else
#error "common/gpu.h is for WHET_PLATFORM_HIP and WHET_PLATFORM_CUDA"
#endif

#if WHET_PLATFORM_HIP && !__has_builtin(__builtin_amdgcn_exp2f)
// Before clang 17 the only way to a bare v_exp_f32 is through the device library that hipRTC links.
extern "C" __device__ float __ocml_native_exp2_f32(float);
extern "C" __device__ float __ocml_native_log2_f32(float);
#endif

namespace whet {

typedef long long Int64;
static_assert(sizeof(Int64) == 8, "offsets need 64 bits: tensors may have more than 2^31 elements");

#if WHET_PLATFORM_HIP
// GCN and CDNA run waves of 64; RDNA runs waves of 32 unless told otherwise.
#if defined(__GFX9__) || defined(__GFX8__)
constexpr int kWaveSize = 64;
#else
constexpr int kWaveSize = 32;
#endif

WHET_DEVICE unsigned thread_index() { return __builtin_amdgcn_workitem_id_x(); }
WHET_DEVICE unsigned block_index() { return __builtin_amdgcn_workgroup_id_x(); }
WHET_DEVICE unsigned block_index_y() { return __builtin_amdgcn_workgroup_id_y(); }
WHET_DEVICE unsigned block_index_z() { return __builtin_amdgcn_workgroup_id_z(); }

// Waits for every thread of the block; shared memory written before it is seen after it.
WHET_DEVICE void barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

#if __has_builtin(__builtin_amdgcn_exp2f)
WHET_DEVICE float exp2_fast(float x) { return __builtin_amdgcn_exp2f(x); }
WHET_DEVICE float log2_fast(float x) { return __builtin_amdgcn_logf(x); }
#else
WHET_DEVICE float exp2_fast(float x) { return __ocml_native_exp2_f32(x); }
WHET_DEVICE float log2_fast(float x) { return __ocml_native_log2_f32(x); }
#endif

// The value held by the lane whose number differs in the bits of kMask. kMask < 32; every lane of the wave takes part.
template <int kMask>
WHET_DEVICE float shuffle_xor(float value) {
  static_assert(kMask > 0 && kMask < 32, "a swizzle stays within 32 lanes");
  return __builtin_bit_cast(
      float, __builtin_amdgcn_ds_swizzle(__builtin_bit_cast(int, value), (kMask << 10) | 0x1f));
}

#else  // CUDA

constexpr int kWaveSize = 32;

WHET_DEVICE unsigned thread_index() { return threadIdx.x; }
WHET_DEVICE unsigned block_index() { return blockIdx.x; }
WHET_DEVICE unsigned block_index_y() { return blockIdx.y; }
WHET_DEVICE unsigned block_index_z() { return blockIdx.z; }

WHET_DEVICE void barrier() { __syncthreads(); }

WHET_DEVICE float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
WHET_DEVICE float log2_fast(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

template <int kMask>
WHET_DEVICE float shuffle_xor(float value) {
  static_assert(kMask > 0 && kMask < 32, "a warp has 32 lanes");
  return __shfl_xor_sync(0xffffffffu, value, kMask);
}
#endif

WHET_DEVICE unsigned float_bits(float x) {
#if WHET_PLATFORM_HIP
  return __builtin_bit_cast(unsigned, x);
#else
  return __float_as_uint(x);
#endif
}

WHET_DEVICE float float_from_bits(unsigned bits) {
#if WHET_PLATFORM_HIP
  return __builtin_bit_cast(float, bits);
#else
  return __uint_as_float(bits);
#endif
}

WHET_DEVICE float square_root(float x) {
#if WHET_PLATFORM_HIP
  return __builtin_sqrtf(x);
#else
  return sqrtf(x);
#endif
}

// As C's fmaxf: a NaN loses against a number.
WHET_DEVICE float max_float(float a, float b) {
#if WHET_PLATFORM_HIP
  return __builtin_fmaxf(a, b);
#else
  return fmaxf(a, b);
#endif
}

WHET_DEVICE float negative_infinity() { return float_from_bits(0xff800000u); }

// BF16 is the upper half of an f32. Rounds to nearest, ties to even; every NaN becomes a quiet one.
WHET_DEVICE float float_from_bf16(unsigned short bits) {
  return float_from_bits(static_cast<unsigned>(bits) << 16);
}
WHET_DEVICE unsigned short bf16_from_float(float x) {
  const unsigned bits = float_bits(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<unsigned short>((bits >> 16) | 0x40u);
  return static_cast<unsigned short>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// How a dtype lies in memory and how it becomes an f32 and back. Element<WHET_BF16>::Stored is a 16-bit word.
template <int kDtype>
struct Element;

template <>
struct Element<WHET_F32> {
  typedef float Stored;
  static __device__ float load(const Stored* at) { return *at; }
  static __device__ void store(Stored* at, float x) { *at = x; }
};

template <>
struct Element<WHET_BF16> {
  typedef unsigned short Stored;
  static __device__ float load(const Stored* at) { return float_from_bf16(*at); }
  static __device__ void store(Stored* at, float x) { *at = bf16_from_float(x); }
};

}  // namespace whet
