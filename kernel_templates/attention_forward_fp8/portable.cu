// FP8 attention forward for every GPU: see common/portable_attention.h. The bytes are decoded by arithmetic; probabilities are not rounded.
#include "common/gpu_fp8.h"
#include "common/portable_attention.h"

namespace {

typedef unsigned char Byte;

// Rows that share a scale; a head with one scale is one block of rows that never ends.
constexpr Int64 kQScaleRows = SHAPE_Q_SCALE_ROWS > 0 ? SHAPE_Q_SCALE_ROWS : (1ll << 62);
constexpr Int64 kKScaleRows = SHAPE_K_SCALE_ROWS > 0 ? SHAPE_K_SCALE_ROWS : (1ll << 62);
static_assert(SHAPE_K_SCALE_ROWS % kBlockKv == 0, "a tile's keys must share their scale");

struct Head {
  const Byte* q;
  const Byte* k;
  const Byte* v;
  const float* q_scale;
  const float* k_scale;
  const float* v_scale;
  const float* shifts;
  unsigned short* o;
  float* lse;
  float scale_log2;

  static constexpr bool kKeysContiguous = true;
  __device__ float query(Int64 row, int column) const {
    return whet::float_from_fp8<SHAPE_DTYPE>(q[row * SHAPE_Q_STRIDE_S + column]);
  }
  __device__ float key(Int64 row, int column) const {
    return whet::float_from_fp8<SHAPE_DTYPE>(k[row * SHAPE_K_STRIDE_S + column]);
  }
  __device__ float value(Int64 key, int column) const {
    return whet::float_from_fp8<SHAPE_DTYPE>(
        v[column * static_cast<Int64>(SHAPE_V_STRIDE_D) + key]);
  }
  __device__ float row_factor(Int64 row) const { return scale_log2 * q_scale[row / kQScaleRows]; }
  __device__ float key_factor(Int64 key0) const { return k_scale[key0 / kKScaleRows]; }
  __device__ float value_factor() const { return *v_scale; }
  __device__ float lse_shift(Int64 row) const { return SHAPE_LSE_SHIFT ? shifts[row] : 0.0f; }
  __device__ void write(Int64 row, int column, float x) const {
    o[row * SHAPE_O_STRIDE_S + column] = whet::bf16_from_float(x);
  }
  __device__ void write_lse(Int64 row, float x) const { lse[row] = x; }
};

}  // namespace

extern "C" __global__ void WHET_BOUNDS(LAUNCH_BLOCK_X)
    WHET_ENTRY(const Byte* __restrict__ q, const Byte* __restrict__ k, const Byte* __restrict__ v,
               const float* __restrict__ q_scale, const float* __restrict__ k_scale,
               const float* __restrict__ v_scale, const float* __restrict__ lse_shift,
               unsigned short* __restrict__ o, float* __restrict__ lse, float scale) {
  const PortableBlock block = portable_block();
  if (!block.exists) return;
  WHET_SHARED_MEMORY(shared);
  const Int64 row_q = block.batch * kHeadsQ + block.head;
  const Int64 row_kv = block.batch * kHeadsKv + block.head_kv;
  const Head head = {q + block.batch * SHAPE_Q_STRIDE_B + block.head * SHAPE_Q_STRIDE_H,
                     k + block.batch * SHAPE_K_STRIDE_B + block.head_kv * SHAPE_K_STRIDE_H,
                     v + block.batch * SHAPE_V_STRIDE_B + block.head_kv * SHAPE_V_STRIDE_H,
                     q_scale + row_q * SHAPE_Q_SCALE_BLOCKS,
                     k_scale + row_kv * SHAPE_K_SCALE_BLOCKS,
                     v_scale + row_kv,
                     lse_shift + row_q * kSeqQ,
                     o + block.batch * SHAPE_O_STRIDE_B + block.head * SHAPE_O_STRIDE_H,
                     lse + row_q * kSeqQ,
                     scale * 1.44269504088896340736f};
  portable_attention(head, block, shared);
}
