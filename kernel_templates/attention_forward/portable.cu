// Attention forward for every GPU: see common/portable_attention.h.
#include "common/portable_attention.h"

namespace {

static_assert(SHAPE_WINDOW == 0 && SHAPE_SOFTCAP == 0 && SHAPE_SINK == 0,
              "window, softcap and sink are not supported");

typedef whet::Element<SHAPE_DTYPE> Element;
typedef Element::Stored Stored;

struct Head {
  const Stored* q;
  const Stored* k;
  const Stored* v;
  Stored* o;
  float* lse;
  float scale_log2;

  static constexpr bool kKeysContiguous = false;
  __device__ float query(Int64 row, int column) const {
    return Element::load(q + row * SHAPE_Q_STRIDE_S + column);
  }
  __device__ float key(Int64 row, int column) const {
    return Element::load(k + row * SHAPE_K_STRIDE_S + column);
  }
  __device__ float value(Int64 key, int column) const {
    return Element::load(v + key * SHAPE_V_STRIDE_S + column);
  }
  __device__ float row_factor(Int64) const { return scale_log2; }
  __device__ float key_factor(Int64) const { return 1.0f; }
  __device__ float value_factor() const { return 1.0f; }
  __device__ float lse_shift(Int64) const { return 0.0f; }
  __device__ void write(Int64 row, int column, float x) const {
    Element::store(o + row * SHAPE_O_STRIDE_S + column, x);
  }
  __device__ void write_lse(Int64 row, float x) const { lse[row] = x; }
};

}  // namespace

extern "C" __global__ void WHET_BOUNDS(LAUNCH_BLOCK_X)
    WHET_ENTRY(const Stored* __restrict__ q, const Stored* __restrict__ k,
               const Stored* __restrict__ v, Stored* __restrict__ o, float* __restrict__ lse,
               float scale) {
  const PortableBlock block = portable_block();
  if (!block.exists) return;
  WHET_SHARED_MEMORY(shared);
  const Head head = {q + block.batch * SHAPE_Q_STRIDE_B + block.head * SHAPE_Q_STRIDE_H,
                     k + block.batch * SHAPE_K_STRIDE_B + block.head_kv * SHAPE_K_STRIDE_H,
                     v + block.batch * SHAPE_V_STRIDE_B + block.head_kv * SHAPE_V_STRIDE_H,
                     o + block.batch * SHAPE_O_STRIDE_B + block.head * SHAPE_O_STRIDE_H,
                     lse + (block.batch * kHeadsQ + block.head) * kSeqQ,
                     scale * 1.44269504088896340736f};
  portable_attention(head, block, shared);
}
