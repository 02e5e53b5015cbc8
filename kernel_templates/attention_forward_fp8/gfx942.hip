// FP8 (e4m3fnuz) attention forward for CDNA3 (gfx942), BF16 output.
//
// The scheme of gfx950.hip, with what this target lacks done otherwise. A block computes 256 query rows of one head, 32 per wave. S^T =
// K Q^T, so that a lane owns a query row, and O^T += V^T P^T takes P from the registers it was computed in: rows of K and of V^T are placed
// in LDS so that a lane half's sixteen scores belong to sixteen consecutive keys, and its sixteen outputs to consecutive channels.
//
// There is no scaled matrix instruction. The reference is the third operand of the scores' product, divided by the factor that they are
// multiplied by afterwards, and a reference that moves takes the output with it: by powers of two, which is exact. Row sums are taken
// from the rounded weights by a matrix instruction with ones.
//
// One step works on two tiles of 64 keys: S(t+1), then O += V(t)^T P(t). Fragments of 16 bytes feed two instructions and are read kLead
// slots ahead. K and V come through registers, loaded a step before they are written to LDS, which holds two tiles of each.
#include "common/amd_fp8.h"

namespace {

using whet::Float16;
using whet::Float2;
using whet::Float4;
using whet::Int64;
using whet::Uint2;
using whet::Uint4;

constexpr int kThreads = LAUNCH_BLOCK_X;
constexpr int kWaves = kThreads / 64;
constexpr int kRows = 32;
constexpr int kBlockRows = kRows * kWaves;
constexpr int kKeys = 64;
constexpr int kStages = 2;

constexpr int kDqk = SHAPE_DQK;
constexpr int kDv = SHAPE_DV;
constexpr Int64 kSeqQ = SHAPE_SEQ_Q;
constexpr Int64 kSeqKv = SHAPE_SEQ_KV;
constexpr int kHeadsQ = SHAPE_HEADS_Q;
constexpr Int64 kBatchHeads = static_cast<Int64>(SHAPE_BATCH) * kHeadsQ;
constexpr Int64 kBlocksPerHead = (kSeqQ + kBlockRows - 1) / kBlockRows;

static_assert(SHAPE_DTYPE == WHET_E4M3FNUZ, "gfx942 multiplies e4m3fnuz");
static_assert(kDqk % 16 == 0 && kDqk <= 192 && kDv % 8 == 0 && kDv <= 128,
              "dqk must be a multiple of 16 up to 192, dv of 8 up to 128");
static_assert(SHAPE_ALIGNMENT >= 16, "16-byte loads need tensors aligned to 16 bytes");
static_assert(SHAPE_Q_STRIDE_S % 16 == 0 && SHAPE_K_STRIDE_S % 16 == 0 &&
                  SHAPE_V_STRIDE_D % 16 == 0 && SHAPE_O_STRIDE_S % 8 == 0,
              "rows must start at multiples of 16 bytes");

constexpr int kRoute = TUNE_WEIGHTS;
typedef whet::Weights<kRoute, true> W;
constexpr bool kLazy = TUNE_LAZY != 0;
// Where the largest score of a row lies once its reference has moved. A lazy reference leaves room above, or with usual data it would have
// to move again in a third of the tiles.
constexpr float kRest = kLazy ? W::kTop - 2 * W::kUnit : W::kTop;
// A tile's scores may reach this before the reference rises ...
constexpr float kHigh = kLazy ? W::kLimit : W::kTop + W::kUnit / 64;
// ... and stay below this before it falls. Nothing is lost until far below: e4m3 has 18 powers of two.
constexpr float kLow = kRest - 10 * W::kUnit;
// How far a reference may lie below the highest one that a row has had, in powers of two: the output is as much larger.
constexpr int kDeepest = -80;
// A factor of scores below this is taken for it, so that the reference can be divided by it.
constexpr float kLeastFactor = 1e-30f;

constexpr int kDepth = (kDqk + 31) / 32;   // fragments of K along the head dimension
constexpr int kColumns = (kDv + 31) / 32;  // 32-wide blocks of channels
constexpr int kScoreSlots = 2 * kDepth;
constexpr int kOutputSlots = 2 * kColumns;
constexpr int kSlots = kScoreSlots + kOutputSlots;
constexpr int kHalfOutput = kScoreSlots + kColumns;
constexpr int kEights = 4;  // of scores of a lane
constexpr int kFours = 8;
constexpr int smallest(int a, int b, int c) { return a < b ? (a < c ? a : c) : (b < c ? b : c); }
constexpr int kLead = smallest(TUNE_LEAD, kScoreSlots, kOutputSlots);

// Rows are 16 bytes apart, an odd multiple of 16 in all: consecutive ones meet different banks.
constexpr int kKeyPitch = kDepth * 32 + 16;
constexpr int kKeyBytes = kKeys * kKeyPitch;
constexpr int kValuePitch = kKeys + 16;
constexpr int kValueBytes = kColumns * 32 * kValuePitch;
constexpr int kStageBytes = kKeyBytes + kValueBytes;
static_assert(kStages * kStageBytes <= LAUNCH_SHARED_BYTES,
              "shared_bytes of the kernel file is too small");

constexpr int kKeyChunks = kKeys * kDepth * 2;  // 16-byte pieces of a tile
constexpr int kKeyLoads = (kKeyChunks + kThreads - 1) / kThreads;
constexpr int kValueChunks = kColumns * 32 * (kKeys / 16);
static_assert(kValueChunks <= kThreads, "a thread has at most one piece of V");

struct Problem {
  int lane_row;
  int half;  // lane / 32
};

// Where row `row` of K or V lies among the rows of LDS: row i of a product is row 16 (i / 4 % 2) + 4 (i / 8) + i % 4 of its 32.
WHET_DEVICE int place_of(int row) {
  return row / 32 * 32 + 8 * (row / 4 % 4) + 4 * (row / 16 % 2) + row % 4;
}

// One thread's share of a tile on its way from global memory to LDS.
struct Loader {
  const char* k;
  const char* v;
  WHET_LDS(char) * lds;
  int wave;
  int tiles;  // those behind are not loaded
  int key_row[kKeyLoads];
  int key_chunk[kKeyLoads];
  int key_place[kKeyLoads];
  int value_row;  // the channel
  int value_chunk;
  int value_place;
  Uint4 keys[kKeyLoads] = {};
  Uint4 values = {};

  __device__ __attribute__((always_inline)) bool has_keys(int i) const {
    return (i + 1) * kThreads <= kKeyChunks || wave * 64 + i * kThreads < kKeyChunks;
  }
  __device__ __attribute__((always_inline)) bool has_values() const {
    return kValueChunks == kThreads || wave * 64 < kValueChunks;
  }

  __device__ __attribute__((always_inline)) void start(int wave_index, int lane) {
    wave = wave_index;
    const int thread = wave * 64 + lane;
    WHET_UNROLL
    for (int i = 0; i < kKeyLoads; ++i) {
      key_row[i] = (thread + i * kThreads) / (2 * kDepth);
      key_chunk[i] = (thread + i * kThreads) % (2 * kDepth);
      key_place[i] = place_of(key_row[i]) * kKeyPitch + key_chunk[i] * 16;
    }
    value_row = thread / (kKeys / 16);
    value_chunk = thread % (kKeys / 16);
    value_place = kKeyBytes + place_of(value_row) * kValuePitch + value_chunk * 16;
  }

  __device__ __attribute__((always_inline)) void load_keys(int tile) {
    if (tile >= tiles) return;
    const int key0 = tile * kKeys;
    constexpr int kLast = static_cast<int>(kSeqKv) - 1;
    const bool whole = key0 + kKeys <= static_cast<int>(kSeqKv);
    WHET_UNROLL
    for (int i = 0; i < kKeyLoads; ++i) {
      if (!has_keys(i)) continue;
      const char* const base = k + static_cast<Int64>(key0) * SHAPE_K_STRIDE_S;
      const unsigned near =
          static_cast<unsigned>(key_row[i]) * static_cast<unsigned>(SHAPE_K_STRIDE_S) +
          static_cast<unsigned>(key_chunk[i]) * 16u;
      // Rows past the last key repeat it: their scores are hidden.
      const int row = key0 + key_row[i] < kLast ? key0 + key_row[i] : kLast;
      const char* const at =
          whole ? base + near : k + static_cast<Int64>(row) * SHAPE_K_STRIDE_S + key_chunk[i] * 16;
      if (kDqk % 32 == 0 || key_chunk[i] * 16 < kDqk) {
        keys[i] = *reinterpret_cast<const Uint4*>(at);
      } else {
        keys[i] = Uint4{};
      }
    }
  }
  // Bytes behind the last key are made zeros: hidden keys weigh nothing, but that is no help against NaN. The 16 bytes that hold the last
  // key are read whole.
  __device__ __attribute__((always_inline)) void load_values(int tile) {
    if (tile >= tiles || !has_values()) return;
    const int key0 = tile * kKeys;
    const int row = kDv % 32 == 0 || value_row < kDv ? value_row : kDv - 1;
    const char* const base = v + key0;
    const unsigned near = static_cast<unsigned>(row) * static_cast<unsigned>(SHAPE_V_STRIDE_D) +
                          static_cast<unsigned>(value_chunk) * 16u;
    // The last of an even number of tiles may lie behind all keys.
    if (kSeqKv % (2 * kKeys) == 0 || key0 + kKeys <= static_cast<int>(kSeqKv)) {
      values = *reinterpret_cast<const Uint4*>(base + near);
      return;
    }
    values = Uint4{};
    const int left = static_cast<int>(kSeqKv) - key0 - value_chunk * 16;
    if (left <= 0) return;
    values = *reinterpret_cast<const Uint4*>(base + near);
    WHET_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int few = left - 4 * i;
      values[i] &= few >= 4 ? 0xffffffffu : few > 0 ? (1u << (8 * few)) - 1u : 0u;
    }
  }
  __device__ __attribute__((always_inline)) void store_keys(int stage) const {
    WHET_UNROLL
    for (int i = 0; i < kKeyLoads; ++i) {
      if (has_keys(i)) *(WHET_LDS(Uint4)*)(lds + stage * kStageBytes + key_place[i]) = keys[i];
    }
  }
  __device__ __attribute__((always_inline)) void store_values(int stage) const {
    if (has_values()) *(WHET_LDS(Uint4)*)(lds + stage * kStageBytes + value_place) = values;
  }
};

struct Scores {
  Float16 block[2];  // 32 keys each
  float factor;      // what remains to multiply them by
};

// What a wave keeps from step to step.
struct Rows {
  Uint4 query[kDepth];
  Float16 output[kColumns];
  Float4 total;  // row sums: each element is that of this lane's row
  Float16
      origin;  // the same in all elements: score of a logit of zero, before it is multiplied by its factor
  float start;   // the same, after
  float factor;  // of this lane's row: scale log2(e) q_scale in units of scores
  int depth;     // of the reference below the highest one, in powers of two: 0 or negative
  float low;     // a tile whose maximum lies below moves the reference
  int top;       // bits of this lane's maximum of the tile at hand, see max_four
  Uint4 ahead[kLead];
};

WHET_DEVICE long long low_half(Uint4 x) { return __builtin_bit_cast(long long, Uint2{x[0], x[1]}); }
WHET_DEVICE long long high_half(Uint4 x) {
  return __builtin_bit_cast(long long, Uint2{x[2], x[3]});
}
// Both products that a fragment of 16 bytes feeds.
WHET_DEVICE Float16 multiply(Uint4 a, Uint4 b, Float16 c) {
  c = __builtin_amdgcn_mfma_f32_32x32x16_fp8_fp8(low_half(a), low_half(b), c, 0, 0, 0);
  return __builtin_amdgcn_mfma_f32_32x32x16_fp8_fp8(high_half(a), high_half(b), c, 0, 0, 0);
}

WHET_DEVICE int larger(int a, int b) { return a > b ? a : b; }

// Four scores join the maximum. As integers positive numbers keep their order and NaN is above them, which no instruction of this target
// offers for floats; the maximum of negative numbers comes out as any of them, and such a tile lies low enough to be looked at again.
WHET_DEVICE void max_four(Rows& w, const Scores& s, int four) {
  const int r = four % 4 * 4;
  const Float16& x = s.block[four / 4];
  const auto bits = [&](int i) __attribute__((always_inline)) {
    return static_cast<int>(whet::float_bits(x[r + i]));
  };
  const int before = four == 0 ? bits(0) : w.top;
  w.top = larger(larger(before, bits(0)), bits(1));
  w.top = larger(larger(w.top, bits(2)), bits(3));
}

// Hides the keys of a tile that a row may not see, also from the maximum.
WHET_DEVICE void mask(Rows& w, Scores& s, const Problem& p, int key0) {
  // Key j is visible to row i when j <= i + Skv - Sq, and when it exists.
  Int64 last = SHAPE_CAUSAL ? p.lane_row + kSeqKv - kSeqQ : kSeqKv - 1;
  if (last > kSeqKv - 1) last = kSeqKv - 1;
  const Int64 distance = last - key0 - 16 * p.half;
  const int relative = distance < -1 ? -1 : distance > kKeys ? kKeys : static_cast<int>(distance);
  // Keys that no row ever sees are known when this is compiled: their scores' registers must not be given away while the product writes them.
  WHET_UNROLL
  for (int b = 0; b < 2; ++b) {
    WHET_PIN(s.block[b]);
    WHET_UNROLL
    for (int r = 0; r < 16; ++r)
      s.block[b][r] = 32 * b + r <= relative ? s.block[b][r] : whet::negative_infinity();
  }
  whet::wait_matrix();
  WHET_UNROLL
  for (int i = 0; i < kFours; ++i) max_four(w, s, i);
}

// The weights of 64 keys by 32 rows.
struct Packed {
  unsigned word[8];
  __device__ __attribute__((always_inline)) Uint4 operand(int block) const {
    return Uint4{word[4 * block], word[4 * block + 1], word[4 * block + 2], word[4 * block + 3]};
  }
};

// Eight scores become eight weights.
template <bool kBehindSum>
WHET_DEVICE void round_eight(Packed& weights, const Scores& s, int eight) {
  float y[8];
  WHET_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int r = eight % 2 * 8 + 2 * i;
    const Float2 pair =
        Float2{s.block[eight / 2][r], s.block[eight / 2][r + 1]} * Float2{s.factor, s.factor};
    y[2 * i] = pair[0];
    y[2 * i + 1] = pair[1];
  }
  const Uint2 word = whet::weights_of<kRoute, true, kBehindSum>(y);
  weights.word[2 * eight] = word[0];
  weights.word[2 * eight + 1] = word[1];
  WHET_PIN(weights.word[2 * eight]);
  WHET_PIN(weights.word[2 * eight + 1]);
}

WHET_DEVICE void set_origin(Rows& w, float factor) {
  const float origin = w.start / factor;
  WHET_UNROLL
  for (int r = 0; r < 16; ++r) w.origin[r] = origin;
}

// A row that is NaN keeps its NaN in the sum: among the weights it would spoil the sum of another row.
WHET_DEVICE void hide_nan(Scores& s, bool is_nan) {
  if (__builtin_expect(whet::ballot(is_nan) == 0, 1)) return;
  WHET_UNROLL
  for (int i = 0; i < 32; ++i)
    s.block[i / 16][i % 16] = is_nan ? whet::negative_infinity() : s.block[i / 16][i % 16];
}

// Moves the references of rows whose maximum in `next` asks for it, and what is relative to them.
template <bool kFirst>
WHET_DEVICE void move_references(Rows& w, Scores& next) {
  const float top = whet::float_from_bits(static_cast<unsigned>(w.top)) * next.factor;
  unsigned long long moving = whet::ballot(!(top <= kHigh));
  // A row lies low when both its halves do.
  const unsigned long long low = whet::ballot(top < w.low);
  moving |= static_cast<unsigned>(low) & static_cast<unsigned>(low >> 32);
  float factor = whet::float_from_bits(whet::any_word());  // of sums and outputs
  unsigned long long rescaling = 0;
  if (kFirst || __builtin_expect(moving != 0, 0)) {
    float half_top = next.block[0][0];
    WHET_UNROLL
    for (int i = 0; i < 32; ++i) half_top = whet::max_or_nan(half_top, next.block[i / 16][i % 16]);
    const float row_top = whet::max_or_nan(half_top, whet::other_half(half_top)) * next.factor;
    const float above = (row_top - kRest) * (1.0f / W::kUnit);
    factor = 1.0f;
    float shift = 0.0f;  // of the reference, in powers of two
    int step = 0;        // of the depth
    const bool is_nan = row_top != row_top;
    if (is_nan) {
      factor = row_top;
    } else if (row_top == whet::negative_infinity()) {
      // Nothing is visible, and there is nothing to follow.
    } else if (w.total[0] == 0.0f) {
      // Nothing has been summed yet.
      shift = above;
      step = -w.depth;
    } else if (row_top > kHigh) {
      const float up = __builtin_ceilf(above);
      // Where a row's highest weight is to be exact, the reference goes to where it is.
      shift = !kLazy && above > static_cast<float>(-w.depth) ? above : up;
      step = up < static_cast<float>(-w.depth) ? static_cast<int>(up) : -w.depth;
      factor = whet::exp2_fast(-shift);
    } else if (row_top < w.low) {
      step = static_cast<int>(__builtin_ceilf(above > -1e5f ? above : -1e5f));
      if (w.depth + step < kDeepest) step = kDeepest - w.depth;
      shift = static_cast<float>(step);
      factor = __builtin_ldexpf(1.0f, -step);
    }
    w.depth += step;
    w.low = w.depth <= kDeepest ? whet::negative_infinity() : kLow;
    w.total *= factor;
    rescaling = whet::ballot(factor != 1.0f);
    shift *= -W::kUnit;
    w.start += shift;
    const float moved = shift / next.factor;
    next.block[0] += moved;
    next.block[1] += moved;
    hide_nan(next, is_nan);
    set_origin(w, next.factor);
  }
  if (kFirst) return;  // there is no output yet
  whet::scale_if(w.output, factor, rescaling);
}

// How many eights of scores must be weights by the end of a slot's vector work: the first 32 keys before the output begins.
template <bool kHasNext>
constexpr int eights_due(int slot) {
  if (slot < (kHasNext ? 0 : kScoreSlots)) return 0;
  if (!kHasNext || slot + 1 >= kHalfOutput) return kEights;
  const int even = (slot + 1) * kEights / kHalfOutput;
  return slot + 1 >= kScoreSlots && even < kEights / 2 ? kEights / 2 : even;
}

// One step: scores of the tile after `now` into `next` (where kHasNext), and the output of `now`. `middle` runs between the last read of K
// and the first of V.
template <bool kHasNext, class Middle>
WHET_DEVICE void step(Rows& w, long long ones, Scores& now, Scores& next, const Problem& problem,
                      int now_key0, bool mask_next, const WHET_LDS(char) * next_keys,
                      const WHET_LDS(char) * after_keys, const WHET_LDS(char) * values,
                      Middle middle) {
  constexpr int kFirst = kHasNext ? 0 : kScoreSlots;
  Packed weights;
  // One fragment per slot: those of K, those of V, then the first of the next step's K.
  Uint4 fragment[kSlots + kLead];
  const auto read = [&](int f) __attribute__((always_inline)) {
    if (f < kScoreSlots) {
      fragment[f] =
          *(const WHET_LDS(Uint4)*)(next_keys + f / kDepth * 32 * kKeyPitch + f % kDepth * 32);
    } else if (f < kSlots) {
      const int block = (f - kScoreSlots) / kColumns, column = (f - kScoreSlots) % kColumns;
      fragment[f] = *(const WHET_LDS(Uint4)*)(values + column * 32 * kValuePitch + 32 * block);
    } else if (kHasNext) {
      const int ahead = f - kSlots;
      fragment[f] = *(const WHET_LDS(Uint4)*)(after_keys + ahead / kDepth * 32 * kKeyPitch +
                                              ahead % kDepth * 32);
    }
  };
  if (!kHasNext) middle();
  WHET_UNROLL
  for (int f = 0; f < kLead; ++f) {
    if (kHasNext) {
      fragment[f] = w.ahead[f];
    } else {
      read(kScoreSlots + f);
    }
  }
  whet::for_each<kFirst, kSlots>([&](auto constant) __attribute__((always_inline)) {
    constexpr int slot = decltype(constant)::kValue;
    if constexpr (kHasNext && slot == kScoreSlots - kLead) middle();
    read(slot + kLead);
    constexpr bool kSums = slot >= kScoreSlots && (slot - kScoreSlots) % kColumns == 0;
    const auto round = [&]() __attribute__((always_inline)) {
      whet::for_each<eights_due<kHasNext>(slot - 1), eights_due<kHasNext>(slot)>([&](
          auto number) __attribute__((always_inline)) {
        round_eight<kHasNext && kSums>(weights, now, decltype(number)::kValue);
      });
    };
    if constexpr (slot < kScoreSlots) {
      constexpr int block = slot / kDepth, depth = slot % kDepth;
      next.block[block] =
          multiply(fragment[slot], w.query[depth], depth == 0 ? w.origin : next.block[block]);
      WHET_PIN(next.block[block]);
      round();
    } else {
      constexpr int block = (slot - kScoreSlots) / kColumns,
                    column = (slot - kScoreSlots) % kColumns;
      if constexpr (!kHasNext && slot == kScoreSlots) {
        round();
        // None of it among the products below, see weights_of.
        whet::schedule_fence();
      }
      if constexpr (column == 0 && kRoute == whet::kByteMaximum) whet::settle_weights();
      const Uint4 p = weights.operand(block);
      w.output[column] = multiply(fragment[slot], p, w.output[column]);
      if constexpr (column == 0) {
        w.total = __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(ones, low_half(p), w.total, 0, 0, 0);
        w.total = __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(ones, high_half(p), w.total, 0, 0, 0);
      }
      if constexpr (kHasNext) {
        if constexpr (slot < kHalfOutput) round();
        constexpr int done = slot - kScoreSlots;
        whet::for_each<done * kFours / kOutputSlots, (done + 1) * kFours / kOutputSlots>([&](
            auto number) __attribute__((always_inline)) {
          max_four(w, next, decltype(number)::kValue);
        });
      }
    }
    whet::schedule_fence();
  });
  if (kHasNext) {
    WHET_UNROLL
    for (int f = 0; f < kLead; ++f) w.ahead[f] = fragment[kSlots + f];
    if (__builtin_expect(mask_next, 0)) mask(w, next, problem, now_key0 + kKeys);
    move_references<false>(w, next);
  }
}

struct Yes {
  static constexpr bool kValue = true;
};
struct No {
  static constexpr bool kValue = false;
};

// A word of e4m3fnuz with the other sign: zero has only one, and what would be the other is NaN.
WHET_DEVICE unsigned negated(unsigned x) {
  return x ^ (((x & 0x7f7f7f7fu) + 0x7f7f7f7fu) & 0x80808080u);
}

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
  problem.lane_row = static_cast<int>(row_block * kBlockRows) + wave * kRows + lane % 32;

  Int64 key_end = kSeqKv;
  // The first key that some row of the block may not see.
  Int64 clear_keys = kSeqKv;
  if (SHAPE_CAUSAL) {
    const Int64 last = (row_block + 1) * kBlockRows + kSeqKv - kSeqQ;
    key_end = last < 0 ? 0 : last < key_end ? last : key_end;
    const Int64 first = row_block * kBlockRows + 1 + kSeqKv - kSeqQ;
    clear_keys = first < 0 ? 0 : first < clear_keys ? first : clear_keys;
  }
  // Comparisons of 64 bits are the vector unit's; what follows is to stay in scalar registers. The number of tiles is even: what a block
  // computes beyond its last key is hidden.
  const auto scalar = [](Int64 x) __attribute__((always_inline)) {
    return __builtin_amdgcn_readfirstlane(static_cast<int>(x));
  };
  const int tiles = scalar((key_end + 2 * kKeys - 1) / (2 * kKeys) * 2);
  const int clear_tiles = scalar(clear_keys / kKeys);
  // Of these, the ones that this wave's rows see some key of; it takes part in loading the others.
  int wave_tiles = tiles;
  if (SHAPE_CAUSAL) {
    const Int64 last = row_block * kBlockRows + (wave + 1) * kRows + kSeqKv - kSeqQ;
    const int seen = scalar(last < 0 ? 0 : (last + 2 * kKeys - 1) / (2 * kKeys) * 2);
    wave_tiles = seen < 2 ? 2 : seen < tiles ? seen : tiles;
  }

  Rows w;
  w.total = Float4{};
  w.depth = 0;
  w.low = kLow;
  w.start = W::kTop;
  WHET_UNROLL
  for (int c = 0; c < kColumns; ++c) w.output[c] = Float16{};

  if (tiles > 0) {
    Loader loader;
    loader.k =
        reinterpret_cast<const char*>(k + batch * SHAPE_K_STRIDE_B + head_kv * SHAPE_K_STRIDE_H);
    loader.v =
        reinterpret_cast<const char*>(v + batch * SHAPE_V_STRIDE_B + head_kv * SHAPE_V_STRIDE_H);
    loader.lds = lds;
    loader.tiles = tiles;
    loader.start(wave, lane);

    // A negative scale becomes a sign of Q, exactly; a zero one the smallest that keeps hidden keys hidden.
    const bool negative = scale < 0.0f;
    const float magnitude = negative ? -scale : scale;
    // Rows past the end repeat the last one; they are not stored.
    const Int64 row = problem.lane_row < kSeqQ ? problem.lane_row : kSeqQ - 1;
    const unsigned char* const from =
        q + batch * SHAPE_Q_STRIDE_B + head * SHAPE_Q_STRIDE_H + row * SHAPE_Q_STRIDE_S;
    WHET_UNROLL
    for (int d = 0; d < kDepth; ++d) {
      const int column = 32 * d + 16 * problem.half;
      Uint4 four = {};
      if (column < kDqk) four = *reinterpret_cast<const Uint4*>(from + column);
      WHET_UNROLL
      for (int i = 0; i < 4; ++i) w.query[d][i] = negative ? negated(four[i]) : four[i];
    }
    const Int64 q_block =
        SHAPE_Q_SCALE_ROWS > 0 ? row / (SHAPE_Q_SCALE_ROWS > 0 ? SHAPE_Q_SCALE_ROWS : 1) : 0;
    w.factor = magnitude * 1.44269504088896340736f * W::kUnit *
               q_scale[batch_head * SHAPE_Q_SCALE_BLOCKS + q_block];
    const float* const key_scales =
        k_scale + (batch * SHAPE_HEADS_KV + head_kv) * SHAPE_K_SCALE_BLOCKS;
    // Sets what multiplies the scores of the 64 keys from key0.
    const auto set_factor = [&](Scores & s, int key0) __attribute__((always_inline)) {
      Int64 block =
          SHAPE_K_SCALE_ROWS > 0 ? key0 / (SHAPE_K_SCALE_ROWS > 0 ? SHAPE_K_SCALE_ROWS : 1) : 0;
      if (block > SHAPE_K_SCALE_BLOCKS - 1) block = SHAPE_K_SCALE_BLOCKS - 1;
      const float factor = w.factor * key_scales[block];
      // NaN stays.
      s.factor = factor < kLeastFactor ? kLeastFactor : factor;
      set_origin(w, s.factor);
    };

    // Row i of the sums adds up the columns of the lanes that share its place: those of an even sixteen where i / 4 is even.
    const unsigned one = lane / 4 % 2 == lane / 16 % 2 ? 0x40404040u : 0u;
    const long long ones = __builtin_bit_cast(long long, Uint2{one, one});

    // A step t writes K(t+3) and V(t+1), so before step 0 these are due.
    loader.load_keys(0);
    loader.load_values(0);
    loader.store_keys(0);
    loader.store_values(0);
    loader.load_keys(1);
    loader.store_keys(1);
    loader.load_keys(2);
    loader.load_values(1);

    const WHET_LDS(char)* const keys_at = lds + lane % 32 * kKeyPitch + 16 * problem.half;
    const WHET_LDS(char)* const values_at =
        lds + kKeyBytes + lane % 32 * kValuePitch + 16 * problem.half;

    Scores even, odd;
    set_factor(even, 0);
    odd.factor = even.factor;
    whet::wait_lds();
    whet::meet();
    WHET_UNROLL
    for (int b = 0; b < 2; ++b) {
      WHET_UNROLL
      for (int d = 0; d < kDepth; ++d) {
        even.block[b] = multiply(*(const WHET_LDS(Uint4)*)(keys_at + b * 32 * kKeyPitch + 32 * d),
                                 w.query[d], d == 0 ? w.origin : even.block[b]);
        WHET_PIN(even.block[b]);
        whet::schedule_fence();
      }
    }
    mask(w, even, problem, 0);
    move_references<true>(w, even);
    WHET_UNROLL
    for (int f = 0; f < kLead; ++f) {
      w.ahead[f] = *(const WHET_LDS(Uint4)*)(keys_at + kStageBytes + f / kDepth * 32 * kKeyPitch +
                                             f % kDepth * 32);
    }
    // Everyone has read K(0), so K(2) may take its place.
    whet::wait_lds();
    whet::meet();
    loader.store_keys(0);
    loader.load_keys(3);

    int tile = 0;
    // Once in a step, between the last read of K(t+1) and the first of V(t). K(t+2) and V(t) are in LDS, and after the barrier nobody reads
    // K(t+1) and V(t-1) any more. `odd_stage` is that of K(t+1).
    const auto exchange = [&](int t, int odd_stage) __attribute__((always_inline)) {
      whet::wait_lds();
      whet::meet();
      whet::schedule_fence();
      loader.store_keys(odd_stage);
      loader.store_values(odd_stage);
      loader.load_keys(t + 4);
      loader.load_values(t + 2);
      whet::schedule_fence();
    };
    // Tile `tile` has the parity of kStage.
    const auto advance = [&](auto stage, auto has_next, Scores& now, Scores& next)
        __attribute__((always_inline)) {
      constexpr int kStage = decltype(stage)::kValue;
      const auto middle = [&]() __attribute__((always_inline)) { exchange(tile, 1 - kStage); };
      if (SHAPE_K_SCALE_ROWS > 0 && decltype(has_next)::kValue)
        set_factor(next, (tile + 1) * kKeys);
      step<decltype(has_next)::kValue>(
          w, ones, now, next, problem, tile * kKeys, tile + 1 >= clear_tiles,
          keys_at + (1 - kStage) * kStageBytes, keys_at + kStage * kStageBytes,
          values_at + kStage * kStageBytes, middle);
      ++tile;
    };
    typedef whet::Constant<0> Even;
    typedef whet::Constant<1> Odd;
    while (tile + 2 < wave_tiles) {
      advance(Even(), Yes(), even, odd);
      advance(Odd(), Yes(), odd, even);
    }
    advance(Even(), Yes(), even, odd);
    advance(Odd(), No(), odd, even);
    // Or the last products sink below the loop, with all that they need.
    WHET_UNROLL
    for (int c = 0; c < kColumns; ++c) WHET_PIN(w.output[c]);
    for (; tile < tiles; tile += 2) {
      exchange(tile, 1);
      exchange(tile + 1, 0);
    }
  }

  const Int64 row = problem.lane_row;
  if (row >= kSeqQ) return;
  const float sum = w.total[0];
  const float inverse = sum == 0.0f ? 0.0f : v_scale[batch * SHAPE_HEADS_KV + head_kv] / sum;
  unsigned long long suspects = 0;  // outputs that are NaN though the sum is not
  unsigned short* const to =
      o + batch * SHAPE_O_STRIDE_B + head * SHAPE_O_STRIDE_H + row * SHAPE_O_STRIDE_S;
  WHET_UNROLL
  for (int c = 0; c < kColumns; ++c) {
    WHET_UNROLL
    for (int r = 0; r < 16; r += 8) {
      WHET_UNROLL
      for (int e = 0; e < 8; ++e) {
        const float x = w.output[c][r + e];
        if (SHAPE_CAUSAL && x != x && sum == sum) suspects |= 1ull << (16 * c + r + e);
      }
      Uint4 eight;
      WHET_UNROLL
      for (int e = 0; e < 4; ++e) {
        eight[e] =
            whet::pack_bf16(w.output[c][r + 2 * e] * inverse, w.output[c][r + 2 * e + 1] * inverse);
      }
      const int column = 32 * c + 16 * problem.half + r;
      if (column < kDv) *reinterpret_cast<Uint4*>(to + column) = eight;
    }
  }
  // The sum is relative to 2^(m - lift), and m is where a score is kTop.
  const float start = w.start;
  const float reference = (W::kTop - start) * (1.0f / W::kUnit) - W::kLift;
  if (SHAPE_CAUSAL && __builtin_expect(suspects != 0, 0)) {
    whet::SeenRowFp8<true> hidden;
    hidden.q = q + batch * SHAPE_Q_STRIDE_B + head * SHAPE_Q_STRIDE_H + row * SHAPE_Q_STRIDE_S;
    hidden.k = k + batch * SHAPE_K_STRIDE_B + head_kv * SHAPE_K_STRIDE_H;
    hidden.v = v + batch * SHAPE_V_STRIDE_B + head_kv * SHAPE_V_STRIDE_H;
    hidden.k_scale = k_scale + (batch * SHAPE_HEADS_KV + head_kv) * SHAPE_K_SCALE_BLOCKS;
    hidden.factor = (scale < 0.0f ? -1.0f : 1.0f) * w.factor * (1.0f / W::kUnit);
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
