// Attention forward for every GPU: the variant that others are verified against, so it takes no short cuts. Everything is f32
// inside, any head dimension up to 256, any length, any stride; no instruction beyond plain arithmetic and a lane shuffle.
//
// A block computes kBlockQ query rows of one head. Its 256 threads form a 16 x 16 square: thread (ty, tx) holds kRows rows by
// kKeys keys of the score tile, and the same rows by columns tx*4 + 64*c + (0..3) of the output, in registers. The score tile is
// built from slices of Q and K along the head dimension, the output from slices of V along the keys, so shared memory does not
// grow with the head dimension. A row's 16 threads are neighbouring lanes, so its maximum and sum need only lane shuffles.
#include "common/gpu.h"

namespace {

using whet::Int64;

constexpr int kSquare = 16;
constexpr int kThreads = LAUNCH_BLOCK_X;
constexpr int kBlockQ = TUNE_BLOCK_Q;
constexpr int kBlockKv = TUNE_BLOCK_KV;
constexpr int kRows = kBlockQ / kSquare;
constexpr int kKeys = kBlockKv / kSquare;
constexpr int kSlice = 32;     // head-dimension elements of Q and K in shared memory at a time
constexpr int kKeySlice = 16;  // keys of V in shared memory at a time
constexpr int kPad = 4;  // keeps float4 alignment and spreads transposed stores over the banks

constexpr int kDqk = SHAPE_DQK;
constexpr int kDv = SHAPE_DV;
constexpr int kColumnGroups = (kDv + 63) / 64;
constexpr int kDvPadded = kColumnGroups * 64;

constexpr Int64 kSeqQ = SHAPE_SEQ_Q;
constexpr Int64 kSeqKv = SHAPE_SEQ_KV;
constexpr int kHeadsQ = SHAPE_HEADS_Q;
constexpr int kHeadsKv = SHAPE_HEADS_KV;
constexpr Int64 kBlocksPerHead = (kSeqQ + kBlockQ - 1) / kBlockQ;

static_assert(kThreads == kSquare * kSquare, "the kernel is written for 16 x 16 threads");
static_assert(kBlockQ % kSquare == 0 && kBlockKv % kSquare == 0,
              "block_q and block_kv must be multiples of 16");
static_assert(kDqk >= 1 && kDqk <= 256 && kDv >= 1 && kDv <= 256,
              "head dimensions must be in 1..256");
static_assert(kHeadsKv > 0 && kHeadsQ % kHeadsKv == 0, "heads_q must be a multiple of heads_kv");
static_assert(SHAPE_WINDOW == 0 && SHAPE_SOFTCAP == 0 && SHAPE_SINK == 0,
              "window, softcap and sink are not supported");

typedef whet::Element<SHAPE_DTYPE> Element;
typedef Element::Stored Stored;

// Shared memory. The slices of Q and K are dead once the scores are known, so V's slice lies over them.
constexpr int kQPitch = kBlockQ + kPad;
constexpr int kKPitch = kBlockKv + kPad;
constexpr int kPPitch = kBlockQ + kPad;
constexpr int kQFloats = kSlice * kQPitch;
constexpr int kKFloats = kSlice * kKPitch;
constexpr int kVFloats = kKeySlice * kDvPadded;
constexpr int kSliceFloats = kQFloats + kKFloats > kVFloats ? kQFloats + kKFloats : kVFloats;
constexpr int kSharedFloats = kSliceFloats + kBlockKv * kPPitch;
static_assert(kSharedFloats * 4 <= LAUNCH_SHARED_BYTES,
              "shared_bytes of the kernel file is too small");

// Puts rows [row0, row0 + kCount) x columns [column0, column0 + kSlice) of a matrix into shared memory, transposed to
// to[column][row]; zeros outside the matrix.
template <int kCount>
WHET_DEVICE void load_transposed(float* to, int pitch, const Stored* from, Int64 stride, Int64 row0,
                                 Int64 rows, int column0) {
  for (int i = static_cast<int>(whet::thread_index()); i < kCount * kSlice; i += kThreads) {
    const int row = i / kSlice;
    const int column = i % kSlice;
    const bool inside = row0 + row < rows && column0 + column < kDqk;
    to[column * pitch + row] =
        inside ? Element::load(from + (row0 + row) * stride + column0 + column) : 0.0f;
  }
}

WHET_DEVICE void load_values(float* to, const Stored* from, Int64 key0) {
  for (int i = static_cast<int>(whet::thread_index()); i < kVFloats; i += kThreads) {
    const int key = i / kDvPadded;
    const int column = i % kDvPadded;
    const bool inside = key0 + key < kSeqKv && column < kDv;
    to[i] = inside ? Element::load(from + (key0 + key) * SHAPE_V_STRIDE_S + column) : 0.0f;
  }
}

WHET_DEVICE float row_max(float x) {
  x = whet::max_float(x, whet::shuffle_xor<1>(x));
  x = whet::max_float(x, whet::shuffle_xor<2>(x));
  x = whet::max_float(x, whet::shuffle_xor<4>(x));
  return whet::max_float(x, whet::shuffle_xor<8>(x));
}

WHET_DEVICE float row_sum(float x) {
  x += whet::shuffle_xor<1>(x);
  x += whet::shuffle_xor<2>(x);
  x += whet::shuffle_xor<4>(x);
  return x + whet::shuffle_xor<8>(x);
}

}  // namespace

extern "C" __global__ void WHET_BOUNDS(LAUNCH_BLOCK_X)
    WHET_ENTRY(const Stored* __restrict__ q, const Stored* __restrict__ k,
               const Stored* __restrict__ v, Stored* __restrict__ o, float* __restrict__ lse,
               float scale) {
  // With no query row there is nothing to write, but a launch needs at least one block.
  if (kBlocksPerHead == 0 || SHAPE_BATCH == 0) return;
  WHET_SHARED_MEMORY(shared);
  float* const q_slice = reinterpret_cast<float*>(shared);
  float* const k_slice = q_slice + kQFloats;
  float* const v_slice = q_slice;
  float* const p_tile = q_slice + kSliceFloats;

  const int ty = static_cast<int>(whet::thread_index()) / kSquare;
  const int tx = static_cast<int>(whet::thread_index()) % kSquare;
  constexpr Int64 kBlocks = kBlocksPerHead > 0 ? kBlocksPerHead : 1;
  const Int64 block = whet::block_index();
  // The last rows of a causal problem see the most keys: they start first.
  const Int64 q0 = (kBlocks - 1 - block % kBlocks) * kBlockQ;
  const Int64 head = block / kBlocks % kHeadsQ;
  const Int64 batch = block / kBlocks / kHeadsQ;
  const Int64 head_kv = head / (kHeadsQ / kHeadsKv);
  q += batch * SHAPE_Q_STRIDE_B + head * SHAPE_Q_STRIDE_H;
  k += batch * SHAPE_K_STRIDE_B + head_kv * SHAPE_K_STRIDE_H;
  v += batch * SHAPE_V_STRIDE_B + head_kv * SHAPE_V_STRIDE_H;
  o += batch * SHAPE_O_STRIDE_B + head * SHAPE_O_STRIDE_H;

  // Key j is visible to row i when j <= i + kOffset.
  constexpr Int64 kOffset = kSeqKv - kSeqQ;
  Int64 key_end = kSeqKv;
  if (SHAPE_CAUSAL && q0 + kBlockQ + kOffset < key_end) key_end = q0 + kBlockQ + kOffset;

  float out[kRows][kColumnGroups * 4];
  float top[kRows];    // largest log2 logit so far; -inf while no key was visible
  float total[kRows];  // this thread's share of the sum of 2^(logit - top)
  for (int i = 0; i < kRows; ++i) {
    top[i] = whet::negative_infinity();
    total[i] = 0.0f;
    for (int c = 0; c < kColumnGroups * 4; ++c) out[i][c] = 0.0f;
  }
  const float scale_log2 = scale * 1.44269504088896340736f;

  for (Int64 key0 = 0; key0 < key_end; key0 += kBlockKv) {
    float score[kRows][kKeys];
    for (int i = 0; i < kRows; ++i)
      for (int j = 0; j < kKeys; ++j) score[i][j] = 0.0f;

    for (int d0 = 0; d0 < kDqk; d0 += kSlice) {
      whet::barrier();  // the last readers of the slices are done
      load_transposed<kBlockQ>(q_slice, kQPitch, q, SHAPE_Q_STRIDE_S, q0, kSeqQ, d0);
      load_transposed<kBlockKv>(k_slice, kKPitch, k, SHAPE_K_STRIDE_S, key0, kSeqKv, d0);
      whet::barrier();
      constexpr int kDepth = kDqk < kSlice ? kDqk : kSlice;
#pragma unroll 4
      for (int d = 0; d < kDepth; ++d) {
        const float* const q_column = q_slice + d * kQPitch + ty * kRows;
        const float* const k_column = k_slice + d * kKPitch + tx * kKeys;
        for (int i = 0; i < kRows; ++i)
          for (int j = 0; j < kKeys; ++j) score[i][j] += q_column[i] * k_column[j];
      }
    }

    for (int i = 0; i < kRows; ++i) {
      const Int64 row = q0 + ty * kRows + i;
      float tile_top = whet::negative_infinity();
      for (int j = 0; j < kKeys; ++j) {
        const Int64 key = key0 + tx * kKeys + j;
        const bool visible = key < kSeqKv && (!SHAPE_CAUSAL || key <= row + kOffset);
        score[i][j] = visible ? score[i][j] * scale_log2 : whet::negative_infinity();
        tile_top = whet::max_float(tile_top, score[i][j]);
      }
      const float new_top = whet::max_float(top[i], row_max(tile_top));
      // While nothing is visible, -inf - -inf must not become NaN: any finite reference gives 2^-inf = 0.
      const float reference = new_top == whet::negative_infinity() ? 0.0f : new_top;
      const float shrink = whet::exp2_fast(top[i] - reference);
      top[i] = new_top;
      total[i] *= shrink;
      for (int c = 0; c < kColumnGroups * 4; ++c) out[i][c] *= shrink;
      for (int j = 0; j < kKeys; ++j) {
        const float p = whet::exp2_fast(score[i][j] - reference);
        total[i] += p;
        p_tile[(tx * kKeys + j) * kPPitch + ty * kRows + i] = p;
      }
    }

    for (int slice = 0; slice < kBlockKv; slice += kKeySlice) {
      whet::barrier();  // scores are done with the slices below V, and P is written
      load_values(v_slice, v, key0 + slice);
      whet::barrier();
      // A key that a row does not see must not touch it, whatever its value holds: 0 times NaN is NaN.
      const Int64 last_key = key0 + slice + kKeySlice - 1;
      if (SHAPE_CAUSAL && last_key > q0 + kOffset) {
        for (int key = 0; key < kKeySlice; ++key)
          for (int i = 0; i < kRows; ++i) {
            if (key0 + slice + key > q0 + ty * kRows + i + kOffset) continue;
            const float p = p_tile[(slice + key) * kPPitch + ty * kRows + i];
            const float* const values = v_slice + key * kDvPadded + tx * 4;
            for (int c = 0; c < kColumnGroups; ++c)
              for (int e = 0; e < 4; ++e) out[i][c * 4 + e] += p * values[c * 64 + e];
          }
        continue;
      }
#pragma unroll 2
      for (int key = 0; key < kKeySlice; ++key) {
        const float* const p = p_tile + (slice + key) * kPPitch + ty * kRows;
        const float* const values = v_slice + key * kDvPadded + tx * 4;
        for (int c = 0; c < kColumnGroups; ++c)
          for (int e = 0; e < 4; ++e)
            for (int i = 0; i < kRows; ++i) out[i][c * 4 + e] += p[i] * values[c * 64 + e];
      }
    }
  }

  for (int i = 0; i < kRows; ++i) {
    const Int64 row = q0 + ty * kRows + i;
    const float sum = row_sum(total[i]);
    if (row >= kSeqQ) continue;
    // A sum of exactly 0 is a row with no visible key; NaN among the scores makes it NaN and stays so.
    const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
    for (int c = 0; c < kColumnGroups; ++c)
      for (int e = 0; e < 4; ++e) {
        const int column = c * 64 + tx * 4 + e;
        if (column < kDv)
          Element::store(o + row * SHAPE_O_STRIDE_S + column, out[i][c * 4 + e] * inverse);
      }
    if (SHAPE_LSE && tx == 0) {
      const float value = sum == 0.0f ? whet::negative_infinity()
                                      : (top[i] + whet::log2_fast(sum)) * 0.69314718055994530942f;
      lse[(batch * kHeadsQ + head) * kSeqQ + row] = value;
    }
  }
}
