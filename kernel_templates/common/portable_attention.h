// Attention forward for every GPU and dtype: plain f32 arithmetic and lane shuffles, any head dimension up to 256, any length, any stride. What
// other kernels are verified against, so it takes no short cuts.
//
// A block computes kBlockQ query rows of one head. Its 256 threads form a 16 x 16 square: thread (ty, tx) holds kRows rows by
// kKeys keys of the score tile, and the same rows by columns tx*4 + 64*c + (0..3) of the output, in registers. The score tile is
// built from slices of Q and K along the head dimension, the output from slices of V along the keys, so shared memory does not
// grow with the head dimension. A row's 16 threads are neighbouring lanes, so its maximum and sum need only lane shuffles.
//
//   const PortableBlock block = portable_block();
//   if (block.exists) portable_attention(Head{...}, block, shared);      // Head: see portable_attention
#pragma once

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

// Which rows of which head a block has. With no query row there is nothing to write, but a launch needs at least one block.
struct PortableBlock {
  bool exists;
  Int64 first_row;
  Int64 head;
  Int64 batch;
  Int64 head_kv;
};

WHET_DEVICE PortableBlock portable_block() {
  constexpr Int64 kBlocks = kBlocksPerHead > 0 ? kBlocksPerHead : 1;
  const Int64 block = whet::block_index();
  PortableBlock result;
  result.exists = kBlocksPerHead != 0 && SHAPE_BATCH != 0;
  // The last rows of a causal problem see the most keys: they start first.
  result.first_row = (kBlocks - 1 - block % kBlocks) * kBlockQ;
  result.head = block / kBlocks % kHeadsQ;
  result.batch = block / kBlocks / kHeadsQ;
  result.head_kv = result.head / (kHeadsQ / kHeadsKv);
  return result;
}

// Puts rows [row0, row0 + kCount) x columns [column0, column0 + kSlice) of a matrix into shared memory, transposed to
// to[column][row]; zeros outside the matrix.
template <int kCount, class Load>
WHET_DEVICE void load_transposed(float* to, int pitch, const Load& load, Int64 row0, Int64 rows,
                                 int column0) {
  for (int i = static_cast<int>(whet::thread_index()); i < kCount * kSlice; i += kThreads) {
    const int row = i / kSlice;
    const int column = i % kSlice;
    const bool inside = row0 + row < rows && column0 + column < kDqk;
    to[column * pitch + row] = inside ? load(row0 + row, column0 + column) : 0.0f;
  }
}

template <class Head>
WHET_DEVICE void load_values(float* to, const Head& head, Int64 key0) {
  for (int i = static_cast<int>(whet::thread_index()); i < kVFloats; i += kThreads) {
    // Neighbouring threads take what lies side by side in memory.
    const int key = Head::kKeysContiguous ? i % kKeySlice : i / kDvPadded;
    const int column = Head::kKeysContiguous ? i / kKeySlice : i % kDvPadded;
    const bool inside = key0 + key < kSeqKv && column < kDv;
    to[key * kDvPadded + column] = inside ? head.value(key0 + key, column) : 0.0f;
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

// What a Head has, all for one head and block:
//   query(row, column), key(row, column), value(key, column)   elements as floats, within the tensors
//   kKeysContiguous               values lie with their keys side by side, not their columns
//   row_factor(row)               log2 logit of a row and a key: their dot product times this times key_factor(first key of the tile)
//   value_factor()                what the values were divided by
//   lse_shift(row)                what is added to the log-sum-exp
//   write(row, column, x), write_lse(row, x)
template <class Head>
WHET_DEVICE void portable_attention(const Head& head, const PortableBlock& block,
                                    unsigned char* shared) {
  float* const q_slice = reinterpret_cast<float*>(shared);
  float* const k_slice = q_slice + kQFloats;
  float* const v_slice = q_slice;
  float* const p_tile = q_slice + kSliceFloats;

  const int ty = static_cast<int>(whet::thread_index()) / kSquare;
  const int tx = static_cast<int>(whet::thread_index()) % kSquare;
  const Int64 q0 = block.first_row;

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
  float row_factor[kRows];
  for (int i = 0; i < kRows; ++i) {
    const Int64 row = q0 + ty * kRows + i;
    row_factor[i] = head.row_factor(row < kSeqQ ? row : 0);
  }
  const auto query = [&](Int64 row, int column) { return head.query(row, column); };
  const auto key_element = [&](Int64 row, int column) { return head.key(row, column); };

  for (Int64 key0 = 0; key0 < key_end; key0 += kBlockKv) {
    float score[kRows][kKeys];
    for (int i = 0; i < kRows; ++i)
      for (int j = 0; j < kKeys; ++j) score[i][j] = 0.0f;

    for (int d0 = 0; d0 < kDqk; d0 += kSlice) {
      whet::barrier();  // the last readers of the slices are done
      load_transposed<kBlockQ>(q_slice, kQPitch, query, q0, kSeqQ, d0);
      load_transposed<kBlockKv>(k_slice, kKPitch, key_element, key0, kSeqKv, d0);
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

    const float key_factor = head.key_factor(key0);
    for (int i = 0; i < kRows; ++i) {
      const Int64 row = q0 + ty * kRows + i;
      float tile_top = whet::negative_infinity();
      for (int j = 0; j < kKeys; ++j) {
        const Int64 key = key0 + tx * kKeys + j;
        const bool visible = key < kSeqKv && (!SHAPE_CAUSAL || key <= row + kOffset);
        score[i][j] =
            visible ? score[i][j] * (row_factor[i] * key_factor) : whet::negative_infinity();
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
      load_values(v_slice, head, key0 + slice);
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
    const float inverse = sum == 0.0f ? 0.0f : head.value_factor() / sum;
    for (int c = 0; c < kColumnGroups; ++c)
      for (int e = 0; e < 4; ++e) {
        const int column = c * 64 + tx * 4 + e;
        if (column < kDv) head.write(row, column, out[i][c * 4 + e] * inverse);
      }
    if (SHAPE_LSE && tx == 0) {
      head.write_lse(row, sum == 0.0f ? whet::negative_infinity()
                                      : (top[i] + whet::log2_fast(sum)) * 0.69314718055994530942f +
                                            head.lse_shift(row));
    }
  }
}

}  // namespace
