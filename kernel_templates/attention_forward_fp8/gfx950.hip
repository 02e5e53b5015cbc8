// FP8 (e4m3) attention forward for CDNA4 (gfx950), BF16 output.
//
// A block computes 256 query rows of one head. Scores are computed transposed, S^T = K Q^T, so that a lane owns one query row and the
// registers of a lane run over keys. Which key lies in which row of that product is free: rows of K are read in the order
// 16 (i / 4 % 2) + 4 (i / 8) + i % 4, so that a lane's sixteen scores belong to sixteen consecutive keys (lane half h: 16 h + 0..15). Packed
// to bytes they are, as they lie, the second operand of O^T += V^T P^T, whose first operand is sixteen consecutive bytes of a row of V^T:
// nothing is ever transposed or exchanged. The same order of rows in V^T gives a lane sixteen consecutive channels of the output.
//
// Scores come out of the matrix instruction ready to be rounded (see common/amd_fp8.h): the reference is its third operand, and where
// the logits' factor is a power of two, so are all scalings, as E8M0 bytes. The row sums are taken from the rounded weights by a sparse
// matrix instruction with ones, so they belong to exactly what multiplies V.
//
// Weights are relative to a reference per row that follows the tiles by powers of two: it rises when a weight would not fit, and falls
// when a tile's weights are all so small that e4m3 would lose them. What it has moved by since the output's own
// reference is undone exactly by the E8M0 byte of P.
//
// One step works on two tiles of 64 keys at once: S(t+1), then O += V(t)^T P(t); P(t) is rounded beside the former, the maxima of t+1
// are taken beside the latter. With TUNE_PINGPONG matrix and vector work are phases of their own, and the waves of one half of the block
// are one phase behind those of the other.
#include "attention_forward_fp8/gfx950/step.h"

namespace {

struct Yes {
  static constexpr bool kValue = true;
};
struct No {
  static constexpr bool kValue = false;
};

WHET_DEVICE int next_stage(int stage) { return stage + 1 == kStages ? 0 : stage + 1; }

}  // namespace

extern "C" __global__ void
    __attribute__((amdgpu_flat_work_group_size(LAUNCH_BLOCK_X, LAUNCH_BLOCK_X),
                   amdgpu_waves_per_eu(kWaves / 4, kWaves / 4)))
    WHET_ENTRY(const unsigned char* __restrict__ q, const unsigned char* __restrict__ k,
               const unsigned char* __restrict__ v, const float* __restrict__ q_scale,
               const float* __restrict__ k_scale, const float* __restrict__ v_scale,
               const float* __restrict__ lse_shift, unsigned short* __restrict__ o,
               float* __restrict__ lse, float scale) {
  if (kBlocksPerHead == 0 || kBatchHeads == 0) return;
  WHET_SHARED_MEMORY(shared);
  WHET_LDS(char)* const lds = (WHET_LDS(char)*)shared;
  const int wave = whet::wave_index();
  const int lane = whet::lane_index();

  // Blocks go round-robin to the eight dies, each with its own second-level cache: heads are dealt so that a die works on few heads of
  // K and V at a time. Within a head the last rows, which see the most keys, start first.
  constexpr Int64 kBlocks = kBlocksPerHead > 0 ? kBlocksPerHead : 1;
  constexpr Int64 kPerDie = kBatchHeads % 8 == 0 ? kBatchHeads / 8 : 0;
  const Int64 id = whet::block_index();
  const Int64 batch_head = kPerDie > 0 ? id % 8 * kPerDie + id / 8 / kBlocks : id / kBlocks;
  const Int64 row_block = kBlocks - 1 - (kPerDie > 0 ? id / 8 % kBlocks : id % kBlocks);
  const Int64 head = batch_head % kHeadsQ;
  const Int64 batch = batch_head / kHeadsQ;
  const Int64 head_kv = head / (kHeadsQ / SHAPE_HEADS_KV);

  Problem problem;
  problem.half = lane / 32;
  problem.lane_row = static_cast<int>(row_block * kBlockRows) + wave * TUNE_ROWS + lane % 32;

  Int64 key_end = kSeqKv;
  // The first key that some row of the block may not see.
  Int64 clear_keys = kSeqKv;
  if (SHAPE_CAUSAL) {
    const Int64 last = (row_block + 1) * kBlockRows + kSeqKv - kSeqQ;
    key_end = last < 0 ? 0 : last < key_end ? last : key_end;
    const Int64 first = row_block * kBlockRows + 1 + kSeqKv - kSeqQ;
    clear_keys = first < 0 ? 0 : first < clear_keys ? first : clear_keys;
  }
  // Comparisons of 64 bits are the vector unit's; what follows is to stay in scalar registers.
  const auto scalar = [](Int64 x) __attribute__((always_inline)) {
    return __builtin_amdgcn_readfirstlane(static_cast<int>(x));
  };
  const int tiles = scalar((key_end + kTileKeys - 1) / kTileKeys);
  const int clear_tiles = scalar(clear_keys / kTileKeys);
  // Of these, the ones that this wave's rows see some key of; it takes part in loading the others.
  int wave_tiles = tiles;
  if (SHAPE_CAUSAL) {
    const Int64 last = row_block * kBlockRows + (wave + 1) * TUNE_ROWS + kSeqKv - kSeqQ;
    const int seen = scalar(last < 0 ? 0 : (last + kTileKeys - 1) / kTileKeys);
    wave_tiles = seen < 1 ? 1 : seen < tiles ? seen : tiles;
  }

  Rows w[kGroups];
  WHET_UNROLL
  for (int g = 0; g < kGroups; ++g) {
    w[g].total = Float4{};
    w[g].block_scale = 127;
    WHET_PIN(w[g].block_scale);  // in a vector register: see kUnitScale
    w[g].unit_scale = 127;
    w[g].low = kLow;
    w[g].start = W::kTop;
    WHET_UNROLL
    for (int r = 0; r < 16; ++r) w[g].origin[r] = W::kTop;
    WHET_UNROLL
    for (int c = 0; c < kColumns; ++c) w[g].output[c] = Float16{};
  }

  if (tiles > 0) {
    Loader loader;
    loader.k =
        reinterpret_cast<const char*>(k + batch * SHAPE_K_STRIDE_B + head_kv * SHAPE_K_STRIDE_H);
    loader.v =
        reinterpret_cast<const char*>(v + batch * SHAPE_V_STRIDE_B + head_kv * SHAPE_V_STRIDE_H);
    loader.lds = lds;
    loader.wave = wave;
    constexpr int kLastKey = static_cast<int>(kSeqKv);
    loader.key_end = tiles * kTileKeys < kLastKey ? tiles * kTileKeys : kLastKey;
    panel_offsets(loader.k_offset, kKeyPanel, SHAPE_K_STRIDE_S, kTileKeys, kDqk, wave, lane);
    panel_offsets(loader.k_offset2, kKeyPanel2, SHAPE_K_STRIDE_S, kTileKeys, kDqk - 128, wave, lane);
    panel_offsets(loader.v_offset, kValuePanel, SHAPE_V_STRIDE_D, kDv, kTileKeys, wave, lane);

    clear_tail(lds, tiles);
    WHET_UNROLL
    for (int t = 0; t < 2; ++t) {
      loader.aim(t, t);
      loader.load_some<0, kLoadsOfTile>();
    }

    // A negative scale becomes a sign of Q, exactly; a zero one the smallest that keeps hidden keys hidden.
    const bool negative = scale < 0.0f;
    const float magnitude = negative ? -scale : scale;
    const unsigned sign = negative ? 0x80808080u : 0u;
    WHET_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      // Rows past the end repeat the last one; they are not stored.
      const Int64 mine = problem.lane_row + 32 * g;
      const Int64 row = mine < kSeqQ ? mine : kSeqQ - 1;
      const unsigned char* const from =
          q + batch * SHAPE_Q_STRIDE_B + head * SHAPE_Q_STRIDE_H + row * SHAPE_Q_STRIDE_S;
      WHET_UNROLL
      for (int d = 0; d < 2 * kDepth; ++d) {
        const int column = 32 * d + 16 * problem.half;
        Uint4 four = {};
        if (column < kDqk) four = *reinterpret_cast<const Uint4*>(from + column) ^ sign;
        WHET_UNROLL
        for (int i = 0; i < 4; ++i) w[g].query[d / 2][d % 2 * 4 + i] = static_cast<int>(four[i]);
      }
      const Int64 q_block =
          SHAPE_Q_SCALE_ROWS > 0 ? row / (SHAPE_Q_SCALE_ROWS > 0 ? SHAPE_Q_SCALE_ROWS : 1) : 0;
      w[g].factor = magnitude * 1.44269504088896340736f * W::kUnit *
                    q_scale[batch_head * SHAPE_Q_SCALE_BLOCKS + q_block];
    }
    const float* const key_scales =
        k_scale + (batch * SHAPE_HEADS_KV + head_kv) * SHAPE_K_SCALE_BLOCKS;
    // Sets what multiplies the scores of the 64 keys from key0.
    const auto set_factor = [&](Rows & rows, Scores & s, int key0) __attribute__((always_inline)) {
      Int64 block =
          SHAPE_K_SCALE_ROWS > 0 ? key0 / (SHAPE_K_SCALE_ROWS > 0 ? SHAPE_K_SCALE_ROWS : 1) : 0;
      if (block > SHAPE_K_SCALE_BLOCKS - 1) block = SHAPE_K_SCALE_BLOCKS - 1;
      float factor = rows.factor * key_scales[block];
      // NaN stays.
      factor = factor < 1e-37f ? 1e-37f : factor;
      s.factor = factor;
      if (kExact) {
        rows.exponent = nearest_exponent(factor);
        WHET_PIN(rows.exponent);
      }
    };

    // See Ones: published constants, of which lane l's are those of row l % 16 of a 16 x 128 matrix.
    Ones ones;
    {
      const int one = lane % 4 < 2 ? 0x38383838 : 0;
      const bool even = (lane & 4) == 0;
      ones.values = Int4{even ? one : 0, even ? one : 0, even ? 0 : one, even ? 0 : one};
      ones.index = static_cast<int>(lane % 4 == 1 ? 0xeeeeeeeeu : 0x44444444u);
    }

    // The order of rows that the head of this file speaks of.
    const int order = 16 * (lane / 4 % 2) + 4 * (lane % 32 / 8) + lane % 4;
    const int place = kKeyPanel.row_at(order) + 16 * problem.half;
    const int place2 = kPanel2At + kKeyPanel2.row_at(order) + 16 * problem.half;
    const int value_place =
        kKeyPanel.width == 128 ? place : kValuePanel.row_at(order) + 16 * problem.half;
    const auto stage_of = [&](int stage) __attribute__((always_inline)) {
      const WHET_LDS(char)* const at = lds + stage * kStageBytes;
      return Places{at + place, at + place2, at + value_place};
    };
    Scores even[kGroups], odd[kGroups];
    WHET_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      set_factor(w[g], even[g], 0);
      odd[g].factor = even[g].factor;
    }
    // Before scores of 64 keys are computed.
    const auto prepare = [&](Scores(&s)[kGroups], int key0) __attribute__((always_inline)) {
      if (SHAPE_K_SCALE_ROWS == 0) return;
      WHET_UNROLL
      for (int g = 0; g < kGroups; ++g) set_factor(w[g], s[g], key0);
    };
    Int8 ahead[kLead];
    const auto read_ahead = [&](const Places& at, int half_tile) __attribute__((always_inline)) {
      WHET_UNROLL
      for (int f = 0; f < kLead; ++f)
        ahead[f] = read_keys(at, f / kDepth + 2 * half_tile, f % kDepth);
    };
    int tile = 0, stage = 0;

    if constexpr (TUNE_PINGPONG == 0) {
      whet::wait_memory<kLoadsOfTile + kValueLoads>();
      whet::meet();
      WHET_UNROLL
      for (int b = 0; b < 2; ++b) {
        whet::for_each<0, kDepth>([&](auto depth) __attribute__((always_inline)) {
          const Int8 keys = read_keys(stage_of(0), b, decltype(depth)::kValue);
          WHET_UNROLL
          for (int g = 0; g < kGroups; ++g) {
            multiply_scores<decltype(depth)::kValue>(even[g].block[b], keys, w[g]);
          }
          whet::schedule_fence();
        });
      }
      WHET_UNROLL
      for (int g = 0; g < kGroups; ++g) {
        await_scores(even[g]);
        mask(w[g], even[g], problem, g, 0);
        move_references<true>(w[g], even[g]);
      }
      read_ahead(stage_of(0), 1);

      // Once in an iteration, between the last read of K(t) and the first of V(t).
      const auto exchange = [&](int t, int stage_free) __attribute__((always_inline)) {
        // K(t+1) and V(t) must have landed, V(t+1) may be on its way. After the barrier nobody reads K(t-1) and V(t-1) any more.
        whet::wait_memory<kValueLoads>();
        whet::meet();
        whet::schedule_fence();
        loader.aim(t + 2, stage_free);
      };
      // The tile's loads, evenly over the slots of an iteration from there on.
      constexpr int kMiddle = kScoreSlots - kLead;
      constexpr int kPlaces = 2 * kSlots - kMiddle;
      const auto load_beside = [&](auto place) __attribute__((always_inline)) {
        constexpr int kPlace = decltype(place)::kValue;
        if constexpr (kPlace >= 0)
          loader
              .load_some<kPlace * kLoadsOfTile / kPlaces, (kPlace + 1) * kLoadsOfTile / kPlaces>();
      };
      const auto nothing = []() __attribute__((always_inline)){};
      const auto nothing_beside = [](auto) __attribute__((always_inline)){};
      Places here = stage_of(0);
      const auto iterate = [&](auto last) __attribute__((always_inline)) {
        constexpr bool kLast = decltype(last)::kValue;
        constexpr bool kTail = kLast && kSeqKv % kTileKeys != 0;
        const int stage_after = next_stage(stage);
        const Places after = stage_of(stage_after);
        const auto middle = [&]() __attribute__((always_inline)) {
          exchange(tile, next_stage(stage_after));
          if (kLast) loader.load_some<0, kLoadsOfTile>();
        };
        const auto first_loads = [&](auto slot) __attribute__((always_inline)) {
          if constexpr (!kLast) load_beside(whet::Constant<decltype(slot)::kValue - kMiddle>());
        };
        const auto last_loads = [&](auto slot) __attribute__((always_inline)) {
          load_beside(whet::Constant<kSlots - kMiddle + decltype(slot)::kValue>());
        };
        const int key0 = tile * kTileKeys;
        prepare(odd, key0 + kKeys);
        step<true, !kLast, kTail>(w, ahead, ones, even, odd, problem, key0, tile >= clear_tiles,
                                  here, 1, after, 0, here, 0, middle, first_loads);
        if constexpr (kLast) {
          step<false, false, kTail>(w, ahead, ones, odd, even, problem, key0 + kKeys, false, after,
                                    0, after, 1, here, 1, nothing, nothing_beside);
        } else {
          prepare(even, key0 + kTileKeys);
          step<true, true, false>(w, ahead, ones, odd, even, problem, key0 + kKeys,
                                  tile + 1 >= clear_tiles, after, 0, after, 1, here, 1, nothing,
                                  last_loads);
        }
        here = after;
        stage = stage_after;
        ++tile;
      };
      while (tile + 1 < wave_tiles) iterate(No());
      iterate(Yes());
      WHET_UNROLL
      for (int g = 0; g < kGroups; ++g) await_outputs(w[g]);
      for (; tile < tiles; ++tile) {
        exchange(tile, next_stage(next_stage(stage)));
        loader.load_some<0, kLoadsOfTile>();
        stage = next_stage(stage);
      }
    } else {
      // Barriers end every phase. Waves of the second half of the block pass one more before the loop, those of the first one more after
      // it: so what follows holds for a wave that is a phase ahead of those it must not overtake.
      const bool behind = wave >= kWaves / 2;
      const auto meet = [&]() __attribute__((always_inline)) {
        whet::schedule_fence();
        whet::meet();
        whet::schedule_fence();
      };
      // Ends the matrix phase that began with the scores of tile t: K(t+1) and V(t) have landed. V(t-2) and K(t-1) are not read any more.
      const auto exchange = [&](int t, int stage_now) __attribute__((always_inline)) {
        whet::wait_memory<0>();
        meet();
        const int stage_next = next_stage(stage_now);
        loader.aim(t + 2, next_stage(stage_next));
        loader.load_some<0, kKeyLoads + kKeyLoads2>();
        loader.aim(t + 1, stage_next);
        loader.load_some<kKeyLoads + kKeyLoads2, kLoadsOfTile>();
      };
      Packed weights[kGroups] = {};
      whet::wait_memory<0>();
      whet::meet();
      if (behind) whet::meet();
      read_ahead(stage_of(0), 0);
      matrix_phase<true, false, false>(w, ahead, ones, even, weights, problem, stage_of(0), 0,
                                       stage_of(0), 0, 0);
      exchange(0, 0);
      vector_phase<true>(w, even, weights, problem, 0, true);
      Places here = stage_of(0);
      read_ahead(here, 1);
      meet();
      const auto iterate = [&](auto last) __attribute__((always_inline)) {
        constexpr bool kLast = decltype(last)::kValue;
        constexpr bool kTail = kLast && kSeqKv % kTileKeys != 0;
        const int key0 = tile * kTileKeys;
        prepare(even, key0 + kKeys);
        __builtin_amdgcn_s_setprio(1);
        matrix_phase<true, true, kTail>(w, ahead, ones, even, weights, problem, here, 1, here, 0,
                                        key0);
        __builtin_amdgcn_s_setprio(0);
        meet();
        vector_phase<false>(w, even, weights, problem, key0 + kKeys, tile >= clear_tiles);
        if constexpr (kLast) {
          meet();
          matrix_phase<false, true, kTail>(w, ahead, ones, even, weights, problem, here, 1, here, 1,
                                           key0 + kKeys);
          ++tile;
        } else {
          const Places after = stage_of(next_stage(stage));
          read_ahead(after, 0);
          meet();
          prepare(even, key0 + kTileKeys);
          __builtin_amdgcn_s_setprio(1);
          matrix_phase<true, true, false>(w, ahead, ones, even, weights, problem, after, 0, here, 1,
                                          key0 + kKeys);
          __builtin_amdgcn_s_setprio(0);
          stage = next_stage(stage);
          ++tile;
          exchange(tile, stage);
          vector_phase<false>(w, even, weights, problem, key0 + kTileKeys, tile >= clear_tiles);
          here = after;
          read_ahead(here, 1);
          meet();
        }
      };
      while (tile + 1 < wave_tiles) iterate(No());
      iterate(Yes());
      WHET_UNROLL
      for (int g = 0; g < kGroups; ++g) await_outputs(w[g]);
      for (; tile < tiles; ++tile) {
        stage = next_stage(stage);
        exchange(tile, stage);
        meet();
        meet();
        meet();
      }
      if (!behind) whet::meet();
    }
    whet::wait_memory<0>();
  }

  WHET_UNROLL
  for (int g = 0; g < kGroups; ++g) {
    const Int64 row = problem.lane_row + 32 * g;
    if (row >= kSeqQ) continue;
    const float sum = w[g].total[0] + w[g].total[1];
    // What the output is relative to lies block_scale powers of two from what the sums are relative to.
    const float total = sum * power_of_two(w[g].block_scale - 127);
    const float inverse = sum == 0.0f ? 0.0f : v_scale[batch * SHAPE_HEADS_KV + head_kv] / total;
    unsigned long long suspects = 0;  // outputs that are NaN though the sum is not
    unsigned short* const to =
        o + batch * SHAPE_O_STRIDE_B + head * SHAPE_O_STRIDE_H + row * SHAPE_O_STRIDE_S;
    WHET_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      WHET_UNROLL
      for (int r = 0; r < 16; r += 8) {
        WHET_UNROLL
        for (int e = 0; e < 8; ++e) {
          const float x = w[g].output[c][r + e];
          if (SHAPE_CAUSAL && x != x && sum == sum) suspects |= 1ull << (16 * c + r + e);
        }
        Uint4 eight;
        WHET_UNROLL
        for (int e = 0; e < 4; ++e) {
          const Float2 pair = {w[g].output[c][r + 2 * e] * inverse,
                               w[g].output[c][r + 2 * e + 1] * inverse};
          eight[e] = __builtin_bit_cast(unsigned, __builtin_convertvector(pair, whet::Bf16x2));
        }
        const int column = 32 * c + 16 * problem.half + r;
        if (column < kDv) *reinterpret_cast<Uint4*>(to + column) = eight;
      }
    }
    // The sum is relative to 2^(m - lift), and m is where a score is kTop.
    const float start = kExact ? w[g].origin[0] : w[g].start;
    const float reference = (W::kTop - start) * (1.0f / W::kUnit) - W::kLift;
    if (SHAPE_CAUSAL && __builtin_expect(suspects != 0, 0)) {
      whet::SeenRowFp8<false> hidden;
      hidden.q = q + batch * SHAPE_Q_STRIDE_B + head * SHAPE_Q_STRIDE_H + row * SHAPE_Q_STRIDE_S;
      hidden.k = k + batch * SHAPE_K_STRIDE_B + head_kv * SHAPE_K_STRIDE_H;
      hidden.v = v + batch * SHAPE_V_STRIDE_B + head_kv * SHAPE_V_STRIDE_H;
      hidden.k_scale = k_scale + (batch * SHAPE_HEADS_KV + head_kv) * SHAPE_K_SCALE_BLOCKS;
      hidden.factor = (scale < 0.0f ? -1.0f : 1.0f) * w[g].factor * (1.0f / W::kUnit);
      hidden.reference = reference + W::kLift;
      const Int64 seen = row + 1 + kSeqKv - kSeqQ;
      hidden.visible = seen < kSeqKv ? seen : kSeqKv;
      for (int i = 0; i < 16 * kColumns; ++i) {
        const int column = 32 * (i / 16) + 16 * problem.half + i % 16;
        if ((suspects >> i & 1) != 0 && column < kDv)
          to[column] = whet::bf16_from_float(whet::seen_output(hidden, column) *
                                             v_scale[batch * SHAPE_HEADS_KV + head_kv]);
      }
    }
    if (SHAPE_LSE && problem.half == 0) {
      const Int64 at = batch_head * kSeqQ + row;
      float value = sum == 0.0f ? whet::negative_infinity()
                                : (reference + whet::log2_fast(sum)) * 0.69314718055994530942f;
      if (SHAPE_LSE_SHIFT) value += lse_shift[at];
      lse[at] = value;
    }
  }
}
