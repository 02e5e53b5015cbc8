// Building blocks for NVIDIA Hopper (sm_90a): mbarriers, the bulk tensor copy engine, register moves between warpgroups,
// named barriers. Thin wrappers over PTX; nothing here knows an operation. Matrix products: common/sm90_product.h.
//
//   whet::sm90::load_tile(stage, &k_map, barrier, 0, row, head, batch);   // copy engine, by one thread
//   whet::sm90::wait(barrier, parity);                                                                 // every reader
#pragma once

#include "common/gpu.h"

#if !WHET_PLATFORM_CUDA || !defined(WHET_ARCH_sm_90a)
#error "common/sm90.h is for sm_90a"
#endif

namespace whet {
namespace sm90 {

typedef unsigned int Uint32;
typedef unsigned long long Uint64;

// A CUtensorMap as a kernel parameter: `const __grid_constant__ TensorMap name`.
struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

WHET_DEVICE Uint32 shared_address(const void* pointer) {
  return static_cast<Uint32>(__cvta_generic_to_shared(pointer));
}

// A value that every lane of the warp holds alike, told to the compiler so.
WHET_DEVICE int uniform(int value) { return __shfl_sync(0xffffffffu, value, 0); }

WHET_DEVICE void barrier_init(Uint32 barrier, Uint32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Makes initialised barriers visible to the copy engine; a __syncthreads() must follow for the other threads.
WHET_DEVICE void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

WHET_DEVICE void arrive(Uint32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives and tells the barrier how many bytes of copies complete its phase.
WHET_DEVICE void arrive_expect(Uint32 barrier, Uint32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
// Returns once the phase with this parity is complete.
WHET_DEVICE void wait(Uint32 barrier, Uint32 parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "retry:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra finished;\n"
      "bra retry;\n"
      "finished:\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

WHET_DEVICE void store_shared(Uint32 address, Uint32 value) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
WHET_DEVICE Uint32 load_shared(Uint32 address) {
  Uint32 value;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}

// Stores 16 bytes, aligned to 16, if `really`. One instruction: the compiler splits the store of a vector that shuffles made.
WHET_DEVICE void store_global(void* to, Uint32 a, Uint32 b, Uint32 c, Uint32 d, bool really) {
  asm volatile(
      "{\n"
      ".reg .pred really;\n"
      "setp.ne.b32 really, %5, 0;\n"
      "@really st.global.v4.b32 [%0], {%1, %2, %3, %4};\n"
      "}" ::"l"(to),
      "r"(a), "r"(b), "r"(c), "r"(d), "r"(static_cast<int>(really))
      : "memory");
}

// The least value of the warp.
WHET_DEVICE Uint32 warp_min(Uint32 value) {
  Uint32 least;
  asm volatile("redux.sync.min.u32 %0, %1, 0xffffffff;" : "=r"(least) : "r"(value));
  return least;
}

WHET_DEVICE void prefetch_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Copies the box at (d, s, h, b) of a four-dimensional tensor to shared memory; its bytes count towards `barrier`.
// Elements outside the tensor arrive as zeros. One thread calls it.
WHET_DEVICE void load_tile(Uint32 to, const TensorMap* map, Uint32 barrier, int d, int s, int h,
                           int b) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, "
      "%4, %5, %6}], [%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(d), "r"(s), "r"(h), "r"(b)
      : "memory");
}

// Copies a box from shared memory to the tensor at (d, s, h, b); what lies outside the tensor is left out. One thread calls it, after the
// threads that wrote the box called fence_for_copies(), and then store_commit().
WHET_DEVICE void store_tile(const TensorMap* map, Uint32 from, int d, int s, int h, int b) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(
          map),
      "r"(from), "r"(d), "r"(s), "r"(h), "r"(b)
      : "memory");
}
WHET_DEVICE void store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Returns when the thread's stores have read shared memory, or have been done.
WHET_DEVICE void store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
WHET_DEVICE void store_wait() {
  asm volatile("cp.async.bulk.wait_group 0;\nfence.proxy.async;" ::: "memory");
}
// Between a thread's own writes to shared memory and the copies that read them.
WHET_DEVICE void fence_for_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Raises or lowers this warpgroup's registers per thread; every warp of the warpgroup calls it.
template <int kRegisters>
WHET_DEVICE void grow_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
WHET_DEVICE void shrink_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Named barriers 1..15 (0 is __syncthreads): `threads` counts the waiting and the merely arriving ones.
WHET_DEVICE void named_wait(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
WHET_DEVICE void named_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Within 1 unit in the last place; zero for infinity.
WHET_DEVICE float reciprocal_fast(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Two floats as BF16, `low` in the lower half.
WHET_DEVICE Uint32 pack_bf16(float low, float high) {
  Uint32 packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

// sum + 0 * x for two BF16 values each: NaN where x is not finite.
WHET_DEVICE Uint32 add_zero_times_bf16(Uint32 sum, Uint32 x) {
  Uint32 result;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(x), "r"(0u), "r"(sum));
  return result;
}

// sum + x * y for two BF16 values each.
WHET_DEVICE Uint32 add_product_bf16(Uint32 sum, Uint32 x, Uint32 y) {
  Uint32 result;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(x), "r"(y), "r"(sum));
  return result;
}

// Four 8 x 8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8.
WHET_DEVICE void load_matrices(Uint32 (&to)[4], Uint32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

// The other way round.
WHET_DEVICE void store_matrices(Uint32 address, const Uint32 (&from)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
               : "memory");
}

// Keeps the compiler from moving uses of registers across a point (a wait for the products that write them).
template <int kCount>
WHET_DEVICE void pin(float (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(values[i])::"memory");
}
template <int kCount>
WHET_DEVICE void pin(Uint32 (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(values[i])::"memory");
}

}  // namespace sm90
}  // namespace whet
