// The device side of the emulator: HIP's words and AMD's builtins, said in plain C++ for one lane. It stands before the kernel's
// source, after hooks.h. WHET_EMULATOR is defined, so that a template can leave out inline assembly.
//
// Not offered: pointers in address space 3 (the compiler's instrumentation skips them); write WHET_LDS(T)* as common/amd.h does.
#define WHET_EMULATOR 1
#define WHET_QUIET __attribute__((no_sanitize("address")))
#define WHET_INLINE static inline __attribute__((always_inline, no_sanitize("address")))

extern "C" {
__attribute__((visibility("default"))) const WhetHooks* whet_hooks;
__attribute__((visibility("default"))) WhetLane* whet_lane;

// Calls that the compiler's address instrumentation puts before every load and store.
#define WHET_ACCESS(kind, write, size)                                             \
  WHET_QUIET void __asan_##kind##size(unsigned long at) {                          \
    whet_hooks->access((const void*)at, size, write, __builtin_return_address(0)); \
  }
WHET_ACCESS(load, 0, 1)
WHET_ACCESS(load, 0, 2)
WHET_ACCESS(load, 0, 4)
WHET_ACCESS(load, 0, 8)
WHET_ACCESS(load, 0, 16)
WHET_ACCESS(store, 1, 1)
WHET_ACCESS(store, 1, 2)
WHET_ACCESS(store, 1, 4)
WHET_ACCESS(store, 1, 8)
WHET_ACCESS(store, 1, 16)
WHET_QUIET
void __asan_loadN(unsigned long at, unsigned long size) {
  whet_hooks->access((const void*)at, size, 0, __builtin_return_address(0));
}
WHET_QUIET void __asan_storeN(unsigned long at, unsigned long size) {
  whet_hooks->access((const void*)at, size, 1, __builtin_return_address(0));
}
WHET_QUIET void* __asan_memcpy(void* to, const void* from, unsigned long size) {
  whet_hooks->access(from, size, 0, __builtin_return_address(0));
  whet_hooks->access(to, size, 1, __builtin_return_address(0));
  return __builtin_memcpy(to, from, size);
}
WHET_QUIET void* __asan_memmove(void* to, const void* from, unsigned long size) {
  whet_hooks->access(from, size, 0, __builtin_return_address(0));
  whet_hooks->access(to, size, 1, __builtin_return_address(0));
  return __builtin_memmove(to, from, size);
}
WHET_QUIET void* __asan_memset(void* to, int value, unsigned long size) {
  whet_hooks->access(to, size, 1, __builtin_return_address(0));
  return __builtin_memset(to, value, size);
}
WHET_QUIET void __asan_init() {}
WHET_QUIET void __asan_version_mismatch_check_v8() {}
WHET_QUIET void __asan_handle_no_return() {}

// What the compiler calls where the host has no instruction from f32 to BF16. Rounds to nearest even.
WHET_QUIET __bf16 __truncsfbf2(float x) {
  unsigned bits = __builtin_bit_cast(unsigned, x);
  bits = (bits & 0x7fffffffu) > 0x7f800000u ? bits | 0x400000u : bits + 0x7fffu + (bits >> 16 & 1u);
  return __builtin_bit_cast(__bf16, (unsigned short)(bits >> 16));
}
double exp2(double);
double log2(double);
double sqrt(double);
}

#define __global__ __attribute__((visibility("default")))
#define __device__
#define __host__
#define __shared__ static
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define amdgpu_flat_work_group_size(...)
#define amdgpu_waves_per_eu(...)
#define amdgpu_num_vgpr(...)
#define WHET_SHARED_MEMORY(name) unsigned char* const name = whet_lane->lds
#define WHET_LDS(type) type

typedef unsigned WhetU2 __attribute__((ext_vector_type(2)));
typedef unsigned WhetU3 __attribute__((ext_vector_type(3)));
typedef unsigned WhetU4 __attribute__((ext_vector_type(4)));
typedef int WhetI2 __attribute__((ext_vector_type(2)));
typedef int WhetI4 __attribute__((ext_vector_type(4)));
typedef int WhetI8 __attribute__((ext_vector_type(8)));
typedef short WhetS2 __attribute__((ext_vector_type(2)));
typedef short WhetS4 __attribute__((ext_vector_type(4)));
typedef short WhetS8 __attribute__((ext_vector_type(8)));
typedef unsigned short WhetUs2 __attribute__((ext_vector_type(2)));
typedef __bf16 WhetB4 __attribute__((ext_vector_type(4)));
typedef __bf16 WhetB8 __attribute__((ext_vector_type(8)));
typedef _Float16 WhetH4 __attribute__((ext_vector_type(4)));
typedef _Float16 WhetH8 __attribute__((ext_vector_type(8)));
typedef float WhetF2 __attribute__((ext_vector_type(2)));
typedef float WhetF4 __attribute__((ext_vector_type(4)));
typedef float WhetF16 __attribute__((ext_vector_type(16)));

// Never inlined, so that every operation of the wave has one address in the report; convergent, so that no pass makes lanes reach
// one operation through two copies of it.
__attribute__((convergent, noinline, no_sanitize("address"))) static void whet_wave(
    WhetWaveOp* op) {
  whet_hooks->wave(op, __builtin_return_address(0));
}
WHET_INLINE void whet_wave_simple(int op, long long immediate = 0) {
  WhetWaveOp wave = {op, {immediate}, {}};
  whet_wave(&wave);
}

// Indices.
#define __builtin_amdgcn_workitem_id_x() (whet_lane->thread[0])
#define __builtin_amdgcn_workitem_id_y() (whet_lane->thread[1])
#define __builtin_amdgcn_workitem_id_z() (whet_lane->thread[2])
#define __builtin_amdgcn_workgroup_id_x() (whet_lane->block[0])
#define __builtin_amdgcn_workgroup_id_y() (whet_lane->block[1])
#define __builtin_amdgcn_workgroup_id_z() (whet_lane->block[2])
WHET_INLINE unsigned __builtin_whet_mbcnt_lo(unsigned mask, unsigned base) {
  const unsigned below = whet_lane->lane >= 32 ? ~0u : (1u << whet_lane->lane) - 1;
  return base + __builtin_popcount(mask & below);
}
WHET_INLINE unsigned __builtin_whet_mbcnt_hi(unsigned mask, unsigned base) {
  const unsigned below = whet_lane->lane < 32 ? 0u : (1u << (whet_lane->lane - 32)) - 1;
  return base + __builtin_popcount(mask & below);
}
#define __builtin_amdgcn_mbcnt_lo __builtin_whet_mbcnt_lo
#define __builtin_amdgcn_mbcnt_hi __builtin_whet_mbcnt_hi
#define __builtin_amdgcn_wavefrontsize() WHET_EMULATED_WAVE_SIZE

// Order and waiting.
#define __builtin_amdgcn_s_barrier() whet_wave_simple(kWhetBarrier)
#define __builtin_amdgcn_fence(...) whet_wave_simple(kWhetFence)
#define __builtin_amdgcn_s_waitcnt(imm) whet_wave_simple(kWhetWaitCount, imm)
#define __builtin_amdgcn_wave_barrier() whet_wave_simple(kWhetWaveBarrier)
#define __syncthreads() (whet_wave_simple(kWhetFence), whet_wave_simple(kWhetBarrier))
#define __builtin_amdgcn_sched_barrier(...) ((void)0)
#define __builtin_amdgcn_sched_group_barrier(...) ((void)0)
#define __builtin_amdgcn_iglp_opt(...) ((void)0)
#define __builtin_amdgcn_s_setprio(...) ((void)0)
#define __builtin_amdgcn_s_sleep(...) ((void)0)

// Matrix instructions.
#if WHET_ARCH_gfx940 || WHET_ARCH_gfx941 || WHET_ARCH_gfx942
#define WHET_E4M3_FORMAT 5
#define WHET_E5M2_FORMAT 6
#else
#define WHET_E4M3_FORMAT 0
#define WHET_E5M2_FORMAT 1
#endif
template <int kRows, int kK, int kFormatA, int kFormatB, class A, class B, class C>
WHET_INLINE C whet_mfma(A a, B b, C c) {
  C d;
  WhetWaveOp op = {kWhetMfma, {kRows, kK, kFormatA, kFormatB}, {&a, &b, &c, &d, nullptr}};
  whet_wave(&op);
  return d;
}
#define __builtin_amdgcn_mfma_f32_32x32x16_bf16(a, b, c, x, y, z) \
  whet_mfma<32, 16, 7, 7>(WhetB8(a), WhetB8(b), WhetF16(c))
#define __builtin_amdgcn_mfma_f32_16x16x32_bf16(a, b, c, x, y, z) \
  whet_mfma<16, 32, 7, 7>(WhetB8(a), WhetB8(b), WhetF4(c))
#define __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(a, b, c, x, y, z) \
  whet_mfma<32, 8, 7, 7>(WhetS4(a), WhetS4(b), WhetF16(c))
#define __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, x, y, z) \
  whet_mfma<16, 16, 7, 7>(WhetS4(a), WhetS4(b), WhetF4(c))
#define __builtin_amdgcn_mfma_f32_32x32x16_f16(a, b, c, x, y, z) \
  whet_mfma<32, 16, 8, 8>(WhetH8(a), WhetH8(b), WhetF16(c))
#define __builtin_amdgcn_mfma_f32_16x16x32_f16(a, b, c, x, y, z) \
  whet_mfma<16, 32, 8, 8>(WhetH8(a), WhetH8(b), WhetF4(c))
#define __builtin_amdgcn_mfma_f32_32x32x8f16(a, b, c, x, y, z) \
  whet_mfma<32, 8, 8, 8>(WhetH4(a), WhetH4(b), WhetF16(c))
#define __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, x, y, z) \
  whet_mfma<16, 16, 8, 8>(WhetH4(a), WhetH4(b), WhetF4(c))
#define __builtin_amdgcn_mfma_f32_32x32x16_fp8_fp8(a, b, c, x, y, z) \
  whet_mfma<32, 16, WHET_E4M3_FORMAT, WHET_E4M3_FORMAT>((long long)(a), (long long)(b), WhetF16(c))
#define __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(a, b, c, x, y, z) \
  whet_mfma<16, 32, WHET_E4M3_FORMAT, WHET_E4M3_FORMAT>((long long)(a), (long long)(b), WhetF4(c))
template <int kRows, int kK, class C>
WHET_INLINE C whet_mfma_scaled(WhetI8 a, WhetI8 b, C c, int format_a, int format_b, int byte_a,
                               int scale_a, int byte_b, int scale_b, bool plain) {
  C d;
  int scales[2] = {scale_a, scale_b};
  WhetWaveOp op = {kWhetMfma,
                   {kRows, kK, format_a, format_b, byte_a, byte_b},
                   {&a, &b, &c, &d, plain ? nullptr : scales}};
  whet_wave(&op);
  return d;
}
// Literal zeros select the unscaled instruction.
#define WHET_NO_SCALES(sa, sb) \
  (__builtin_constant_p(sa) && __builtin_constant_p(sb) && (sa) == 0 && (sb) == 0)
#define __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(a, b, c, fa, fb, ba, sa, bb, sb) \
  whet_mfma_scaled<32, 64>(WhetI8(a), WhetI8(b), WhetF16(c), fa, fb, ba, sa, bb, sb,     \
                           WHET_NO_SCALES(sa, sb))
#define __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(a, b, c, fa, fb, ba, sa, bb, sb) \
  whet_mfma_scaled<16, 128>(WhetI8(a), WhetI8(b), WhetF4(c), fa, fb, ba, sa, bb, sb,      \
                            WHET_NO_SCALES(sa, sb))
WHET_INLINE WhetF4 whet_smfmac(WhetI4 a, WhetI8 b, WhetF4 c, int index) {
  WhetF4 d;
  WhetWaveOp op = {kWhetSmfmac, {16, 128, 0, 0}, {&a, &b, &c, &d, &index}};
  whet_wave(&op);
  return d;
}
#define __builtin_amdgcn_smfmac_f32_16x16x128_fp8_fp8(a, b, c, index, x, y) \
  whet_smfmac(a, b, c, index)

// LDS reads that transpose, and exchanges between lanes.
template <class T, int kBits>
WHET_INLINE T whet_read_transpose(const void* at) {
  T result;
  WhetWaveOp op = {kWhetReadTranspose, {kBits}, {const_cast<void*>(at), &result}};
  whet_wave(&op);
  return result;
}
#define __builtin_amdgcn_ds_read_tr16_b64_v4bf16(at) whet_read_transpose<WhetB4, 16>(at)
#define __builtin_amdgcn_ds_read_tr16_b64_v4i16(at) whet_read_transpose<WhetS4, 16>(at)
#define __builtin_amdgcn_ds_read_tr16_b64_v4f16(at) whet_read_transpose<WhetH4, 16>(at)
#define __builtin_amdgcn_ds_read_tr8_b64_v2i32(at) whet_read_transpose<WhetI2, 8>(at)
template <int kHalf>
WHET_INLINE WhetU2 whet_permlane_swap(unsigned a, unsigned b) {
  WhetWaveOp op = {kWhetPermlaneSwap, {kHalf}, {&a, &b}};
  whet_wave(&op);
  return WhetU2{a, b};
}
#define __builtin_amdgcn_permlane32_swap(a, b, fi, bc) whet_permlane_swap<32>(a, b)
#define __builtin_amdgcn_permlane16_swap(a, b, fi, bc) whet_permlane_swap<16>(a, b)
WHET_INLINE int whet_dpp(int old, int source, int control, int rows, int banks, int bound) {
  int result;
  WhetWaveOp op = {kWhetDpp, {control, rows, banks, bound}, {&old, &source, &result}};
  whet_wave(&op);
  return result;
}
#define __builtin_amdgcn_update_dpp whet_dpp
#define __builtin_amdgcn_mov_dpp(source, ...) whet_dpp(0, source, __VA_ARGS__)
template <int kOp>
WHET_INLINE int whet_permute(int address, int source) {
  int result;
  WhetWaveOp op = {kOp, {}, {&address, &source, &result}};
  whet_wave(&op);
  return result;
}
#define __builtin_amdgcn_ds_bpermute whet_permute<kWhetBpermute>
#define __builtin_amdgcn_ds_permute whet_permute<kWhetPermute>
WHET_INLINE int __builtin_whet_swizzle(int source, int pattern) {
  int result;
  WhetWaveOp op = {kWhetSwizzle, {pattern}, {&source, &result}};
  whet_wave(&op);
  return result;
}
#define __builtin_amdgcn_ds_swizzle __builtin_whet_swizzle
WHET_INLINE unsigned long long whet_ballot(int predicate) {
  unsigned long long mask;
  WhetWaveOp op = {kWhetBallot, {}, {&predicate, &mask}};
  whet_wave(&op);
  return mask;
}
#define __builtin_amdgcn_ballot_w64(p) whet_ballot(p)
#define __builtin_amdgcn_ballot_w32(p) ((unsigned)whet_ballot(p))
#define __builtin_amdgcn_read_exec() whet_ballot(1)
WHET_INLINE int whet_first_lane(int source) {
  int result;
  WhetWaveOp op = {kWhetReadFirstLane, {}, {&source, &result}};
  whet_wave(&op);
  return result;
}
#define __builtin_amdgcn_readfirstlane(x) whet_first_lane(x)
WHET_INLINE int whet_read_lane(int source, int lane) {
  int result;
  WhetWaveOp op = {kWhetReadLane, {}, {&source, &lane, &result}};
  whet_wave(&op);
  return result;
}
#define __builtin_amdgcn_readlane whet_read_lane

// Loads to LDS, and buffers. A buffer's loads beyond its size give zeros and its stores vanish.
typedef struct {
  char* base;
  unsigned bytes;
} __amdgpu_buffer_rsrc_t;
WHET_INLINE __amdgpu_buffer_rsrc_t whet_make_buffer(void* base, short, unsigned bytes, int) {
  return {(char*)base, bytes};
}
#define __builtin_amdgcn_make_buffer_rsrc whet_make_buffer
WHET_INLINE void whet_async(const void* from, void* to, int bytes) {
  WhetWaveOp op = {kWhetAsyncToLds, {bytes}, {const_cast<void*>(from), to}};
  whet_wave(&op);
}
#define __builtin_amdgcn_global_load_lds(from, to, size, offset, aux) \
  whet_async((const char*)(from) + (offset), (char*)(to) + (offset), size)
WHET_INLINE void whet_buffer_async(__amdgpu_buffer_rsrc_t buffer, void* to, int size,
                                   unsigned lane_offset, unsigned wave_offset, int offset) {
  // The bound does not see the wave's offset.
  const bool inside =
      (unsigned long long)lane_offset + (unsigned)offset + (unsigned)size <= buffer.bytes;
  whet_async(inside ? buffer.base + lane_offset + wave_offset + offset : nullptr,
             (char*)to + offset, size);
}
#define __builtin_amdgcn_raw_ptr_buffer_load_lds(buffer, to, size, lane_offset, wave_offset, \
                                                 offset, aux)                                \
  whet_buffer_async(buffer, to, size, lane_offset, wave_offset, offset)
template <class T>
static inline T whet_buffer_load(__amdgpu_buffer_rsrc_t buffer, unsigned lane_offset,
                                 unsigned wave_offset) {
  if ((unsigned long long)lane_offset + sizeof(T) > buffer.bytes) return T(0);
  T value;
  __builtin_memcpy(&value, buffer.base + lane_offset + wave_offset, sizeof(T));
  return value;
}
template <class T>
static inline void whet_buffer_store(T value, __amdgpu_buffer_rsrc_t buffer, unsigned lane_offset,
                                     unsigned wave_offset) {
  if ((unsigned long long)lane_offset + sizeof(T) > buffer.bytes) return;
  __builtin_memcpy(buffer.base + lane_offset + wave_offset, &value, sizeof(T));
}
#define __builtin_amdgcn_raw_buffer_load_b8(b, v, s, aux) whet_buffer_load<unsigned char>(b, v, s)
#define __builtin_amdgcn_raw_buffer_load_b16(b, v, s, aux) whet_buffer_load<unsigned short>(b, v, s)
#define __builtin_amdgcn_raw_buffer_load_b32(b, v, s, aux) whet_buffer_load<unsigned>(b, v, s)
#define __builtin_amdgcn_raw_buffer_load_b64(b, v, s, aux) whet_buffer_load<WhetU2>(b, v, s)
#define __builtin_amdgcn_raw_buffer_load_b128(b, v, s, aux) whet_buffer_load<WhetU4>(b, v, s)
#define __builtin_amdgcn_raw_buffer_store_b8(x, b, v, s, aux) \
  whet_buffer_store<unsigned char>(x, b, v, s)
#define __builtin_amdgcn_raw_buffer_store_b16(x, b, v, s, aux) \
  whet_buffer_store<unsigned short>(x, b, v, s)
#define __builtin_amdgcn_raw_buffer_store_b32(x, b, v, s, aux) \
  whet_buffer_store<unsigned>(x, b, v, s)
#define __builtin_amdgcn_raw_buffer_store_b64(x, b, v, s, aux) whet_buffer_store<WhetU2>(x, b, v, s)
#define __builtin_amdgcn_raw_buffer_store_b128(x, b, v, s, aux) \
  whet_buffer_store<WhetU4>(x, b, v, s)

// Arithmetic within a lane.
WHET_INLINE float whet_flush(float x) {
  return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0.0f, x) : x;
}
extern "C" {
WHET_INLINE float __ocml_native_exp2_f32(float x) { return whet_flush((float)exp2(whet_flush(x))); }
WHET_INLINE float __ocml_native_log2_f32(float x) { return (float)log2(whet_flush(x)); }
}
#define __builtin_amdgcn_exp2f(x) __ocml_native_exp2_f32(x)
#define __builtin_amdgcn_logf(x) __ocml_native_log2_f32(x)
WHET_INLINE float whet_rcp(float x) { return whet_flush((float)(1.0 / x)); }
WHET_INLINE float whet_rsq(float x) { return (float)(1.0 / sqrt((double)x)); }
WHET_INLINE float whet_fmed3(float a, float b, float c) {
  return __builtin_fmaxf(__builtin_fminf(a, b), __builtin_fminf(__builtin_fmaxf(a, b), c));
}
#define __builtin_amdgcn_rcpf whet_rcp
#define __builtin_amdgcn_rsqf whet_rsq
#define __builtin_amdgcn_sqrtf(x) ((float)sqrt((double)(x)))
#define __builtin_amdgcn_fmed3f whet_fmed3
WHET_INLINE unsigned whet_perm(unsigned high, unsigned low, unsigned selector) {
  const unsigned long long bytes = (unsigned long long)high << 32 | low;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned s = selector >> (8 * i) & 255;
    unsigned byte = 0;
    if (s < 8) {
      byte = (unsigned)(bytes >> (8 * s)) & 255;
    } else if (s < 12) {
      byte = bytes >> (16 * (s - 8) + 15) & 1 ? 255 : 0;
    } else if (s > 12) {
      byte = 255;
    }
    result |= byte << (8 * i);
  }
  return result;
}
#define __builtin_amdgcn_perm whet_perm
#define __builtin_amdgcn_alignbyte(a, b, s) \
  ((unsigned)(((unsigned long long)(a) << 32 | (b)) >> (8 * ((s)&3))))
#define __builtin_amdgcn_ubfe(x, o, w) ((unsigned)(x) >> (o) & ((1u << (w)) - 1))
WHET_INLINE float whet_nearest_even(float x) { return __builtin_nearbyintf(x); }
WHET_INLINE unsigned whet_cvt_pk_u8(float x, unsigned byte, unsigned old) {
  const float clamped = x >= 255.0f ? 255.0f : x > 0.0f ? x : 0.0f;
  return (old & ~(255u << (8 * (byte & 3)))) | (unsigned)whet_nearest_even(clamped)
                                                   << (8 * (byte & 3));
}
#define __builtin_amdgcn_cvt_pk_u8_f32 whet_cvt_pk_u8
WHET_INLINE unsigned short whet_norm_u16(float x) {
  const float clamped = x >= 1.0f ? 1.0f : x > 0.0f ? x : 0.0f;
  return (unsigned short)whet_nearest_even(clamped * 65535.0f);
}
#define __builtin_amdgcn_cvt_pknorm_u16(a, b) (WhetUs2{whet_norm_u16(a), whet_norm_u16(b)})
// Rounds to nearest even; what is too large becomes NaN (FP16_OVFL is not set).
WHET_QUIET static unsigned whet_encode_fp8(float x, int exponent_bits, int mantissa_bits, int bias,
                                           bool fnuz) {
  const unsigned sign = __builtin_signbit(x) ? 0x80u : 0u;
  const unsigned nan = fnuz ? 0x80u : sign | 0x7fu;
  const double magnitude = __builtin_fabs((double)x);
  if (magnitude != magnitude) return nan;
  if (magnitude == 0) return fnuz ? 0u : sign;
  int exponent = 1 - bias;
  double step = __builtin_ldexp(1.0, exponent - mantissa_bits);
  while (exponent < 32 && magnitude >= __builtin_ldexp(1.0, exponent + 1)) ++exponent, step *= 2;
  const double mantissa = __builtin_nearbyint(magnitude / step);
  const double code = mantissa + (double)((exponent + bias - 1) * (1 << mantissa_bits));
  const double largest = fnuz ? 127 : exponent_bits == 4 ? 126 : 123;
  if (code > largest) return fnuz ? 0x80u : exponent_bits == 4 ? nan : sign | 0x7cu;
  if (code == 0 && fnuz) return 0;
  return sign | (unsigned)code;
}
WHET_INLINE unsigned whet_e4m3(float x) {
  return whet_encode_fp8(x, 4, 3, WHET_E4M3_FORMAT == 0 ? 7 : 8, WHET_E4M3_FORMAT != 0);
}
WHET_INLINE unsigned whet_e5m2(float x) {
  return whet_encode_fp8(x, 5, 2, WHET_E4M3_FORMAT == 0 ? 15 : 16, WHET_E4M3_FORMAT != 0);
}
WHET_INLINE int whet_insert_half(int old, unsigned half, bool high) {
  return high ? (int)(((unsigned)old & 0xffffu) | half << 16)
              : (int)(((unsigned)old & 0xffff0000u) | half);
}
#define __builtin_amdgcn_cvt_pk_fp8_f32(a, b, old, high) \
  whet_insert_half(old, whet_e4m3(a) | whet_e4m3(b) << 8, high)
#define __builtin_amdgcn_cvt_pk_bf8_f32(a, b, old, high) \
  whet_insert_half(old, whet_e5m2(a) | whet_e5m2(b) << 8, high)
WHET_INLINE WhetS2 whet_scaled_pk_fp8(WhetS2 old, float a, float b, float scale, bool high) {
  const int exponent = (int)(__builtin_bit_cast(unsigned, scale) >> 23 & 255) - 127;
  const float factor = (float)__builtin_ldexp(1.0, -exponent);
  return __builtin_bit_cast(
      WhetS2, whet_insert_half(__builtin_bit_cast(int, old),
                               whet_e4m3(a * factor) | whet_e4m3(b * factor) << 8, high));
}
#define __builtin_amdgcn_cvt_scalef32_pk_fp8_f32 whet_scaled_pk_fp8

// The way in: unpacks the arguments as a launch does.
template <int... kIndex>
struct WhetIndices {};
template <class... Args, int... kIndex>
WHET_INLINE void whet_call_with(void (*kernel)(Args...), void* const* arguments,
                                WhetIndices<kIndex...>) {
  kernel(*static_cast<Args*>(arguments[kIndex])...);
}
template <int kCount, int... kIndex>
struct WhetCount : WhetCount<kCount - 1, kCount - 1, kIndex...> {};
template <int... kIndex>
struct WhetCount<0, kIndex...> {
  typedef WhetIndices<kIndex...> Indices;
};
template <class... Args>
WHET_INLINE void whet_call(void (*kernel)(Args...), void* const* arguments) {
  whet_call_with(kernel, arguments,
                 typename WhetCount<static_cast<int>(sizeof...(Args))>::Indices());
}
#define WHET_EMULATOR_ENTRY(entry)                                               \
  extern "C" __attribute__((visibility("default"), no_sanitize("address"))) void \
  whet_emulator_entry(void* const* a) {                                          \
    whet_call(&entry, a);                                                        \
  }
