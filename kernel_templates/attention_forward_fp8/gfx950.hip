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
#include "common/amd_fp8.h"

namespace {

using whet::Float16;
using whet::Float2;
using whet::Float4;
using whet::Int4;
using whet::Int64;
using whet::Int8;
using whet::Uint2;
using whet::Uint4;

constexpr int kWaves = LAUNCH_BLOCK_X / 64;
constexpr int kGroups = TUNE_ROWS / 32;  // of 32 rows, of a wave: they share its reads of K and V
constexpr int kBlockRows = TUNE_ROWS * kWaves;
constexpr int kKeys = 64;       // of a step
constexpr int kTileKeys = 128;  // of a stage in LDS
constexpr int kStages = 3;

constexpr int kDqk = SHAPE_DQK;
constexpr int kDv = SHAPE_DV;
constexpr Int64 kSeqQ = SHAPE_SEQ_Q;
constexpr Int64 kSeqKv = SHAPE_SEQ_KV;
constexpr int kHeadsQ = SHAPE_HEADS_Q;
constexpr Int64 kBatchHeads = static_cast<Int64>(SHAPE_BATCH) * kHeadsQ;
constexpr Int64 kBlocksPerHead = (kSeqQ + kBlockRows - 1) / kBlockRows;

static_assert(SHAPE_DTYPE == WHET_E4M3, "gfx950 multiplies OCP e4m3");
static_assert(kDqk % 16 == 0 && kDqk <= 192 && kDv % 8 == 0 && kDv <= 128,
              "dqk must be a multiple of 16 up to 192, dv of 8 up to 128");
static_assert(SHAPE_ALIGNMENT >= 16, "16-byte loads need tensors aligned to 16 bytes");
static_assert(SHAPE_Q_STRIDE_S % 16 == 0 && SHAPE_K_STRIDE_S % 16 == 0 &&
                  SHAPE_V_STRIDE_D % 16 == 0 && SHAPE_O_STRIDE_S % 8 == 0,
              "rows must start at multiples of 16 bytes");

constexpr int kRoute = TUNE_WEIGHTS;
typedef whet::Weights<kRoute, false> W;
constexpr bool kExact = SHAPE_EXACT_EXPONENTS != 0;
constexpr bool kLazy = TUNE_LAZY != 0;
// Where the largest score of a row lies once its reference has moved. A lazy reference leaves room above, or with usual data it would have
// to move again in a third of the tiles.
constexpr float kRest = kLazy ? W::kTop - 2 * W::kUnit : W::kTop;
// A tile's scores may reach this before the reference rises ...
constexpr float kHigh = kLazy ? W::kLimit : W::kTop + W::kUnit / 64;
// ... and stay below this before it falls. Nothing is lost until far below: e4m3 has 18 powers of two.
constexpr float kLow = kRest - 10 * W::kUnit;
// How far weights may lie from the output's reference, in powers of two.
constexpr int kDeepest = -100;
constexpr int kHighest = 64;

// A matrix in LDS, in 1 KiB lines, 64 rows after another: line i of `lines` holds their rows i, i + lines, ... With 16 bytes behind each
// line the reads of 16 bytes per lane meet every bank once.
struct Panel {
  int width;  // bytes of a row, 128 or 64
  int rows;
  constexpr int chunks() const { return width / 16; }
  constexpr int lines() const { return width / 16; }
  constexpr int all_lines() const { return rows / 64 * lines(); }
  constexpr int bytes() const { return all_lines() * 1040; }
  constexpr int row_at(int row) const {
    return (row / 64 * lines() + row % lines()) * 1040 + row % 64 / lines() * width;
  }
};

// K's columns beyond 128 lie in a panel of their own.
constexpr Panel kKeyPanel = {kDqk > 64 ? 128 : 64, kTileKeys};
constexpr Panel kKeyPanel2 = {64, kTileKeys};
constexpr bool kHasKeyPanel2 = kDqk > 128;
constexpr Panel kValuePanel = {kTileKeys, kDv > 64 ? 128 : 64};
constexpr int kPanel2At = kKeyPanel.bytes();
constexpr int kValuesAt = kPanel2At + (kHasKeyPanel2 ? kKeyPanel2.bytes() : 0);
constexpr int kStageBytes = kValuesAt + kValuePanel.bytes();
static_assert(kStages * kStageBytes <= LAUNCH_SHARED_BYTES,
              "shared_bytes of the kernel file is too small");

constexpr int kDepth = (kDqk + 63) / 64;   // matrix instructions along the head dimension
constexpr int kColumns = (kDv + 31) / 32;  // 32-wide blocks of channels
constexpr int kScoreSlots = 2 * kDepth;
constexpr int kOutputSlots = kColumns;
constexpr int kSlots = kScoreSlots + kOutputSlots;
constexpr int kEights = 4;  // of scores of a lane in 64 keys
constexpr int kFours = 8;
constexpr int smallest(int a, int b, int c) { return a < b ? (a < c ? a : c) : (b < c ? b : c); }
// Clang 20 (hipRTC 7.0) needs more registers for the same: with 64 rows only one fragment is read ahead there.
constexpr bool kShort = kGroups > 1 && __clang_major__ < 22;
constexpr int kLead = smallest(kShort ? 1 : TUNE_LEAD, kScoreSlots, kOutputSlots);

constexpr int kKeyLoads = kKeyPanel.all_lines() / kWaves;
constexpr int kKeyLoads2 = kHasKeyPanel2 ? kKeyPanel2.all_lines() / kWaves : 0;
constexpr int kValueLoads = kValuePanel.all_lines() / kWaves;
constexpr int kLoadsOfTile = kKeyLoads + kKeyLoads2 + kValueLoads;
static_assert(kKeyLoads >= 1 && kValueLoads >= 1 && kKeyPanel2.all_lines() % kWaves == 0,
              "every wave must have a line of each panel to load");

// Beyond every buffer: the load gives zeros.
constexpr unsigned kNowhere = 0x80000000u;
// Columns past the head dimension are not written if the hardware drops such loads instead of zeroing; what lies there must be no NaN.
constexpr bool kClear = kDqk % 64 != 0;

struct Problem {
  int lane_row;  // of the first group
  int half;      // lane / 32
};

// Where this lane's 16 bytes of the wave's i-th line come from, relative to the tile.
template <int kLoads>
WHET_DEVICE void panel_offsets(unsigned (&offset)[kLoads], const Panel& panel, unsigned stride,
                               int columns, int wave, int lane) {
  WHET_UNROLL
  for (int i = 0; i < kLoads; ++i) {
    const int line = wave * kLoads + i;
    const int row =
        line / panel.lines() * 64 + line % panel.lines() + lane / panel.chunks() * panel.lines();
    const int chunk = lane % panel.chunks();
    offset[i] = chunk * 16 < columns ? static_cast<unsigned>(row) * stride + chunk * 16u : kNowhere;
  }
}

// Loads tiles of K and V to LDS, this wave's lines of them, one at a time: each costs the wave a few scalar instructions, which are best
// spread among matrix instructions.
struct Loader {
  const char* k;
  const char* v;
  WHET_LDS(char) * lds;
  int wave;
  int key_end;  // what lies behind is not needed, or not there
  unsigned k_offset[kKeyLoads];
  unsigned k_offset2[kKeyLoads2 > 0 ? kKeyLoads2 : 1];
  unsigned v_offset[kValueLoads];
  // Of the tile at hand.
  whet::Buffer keys, keys2, values;
  WHET_LDS(char) * to;

  // Chooses a tile. Rows of K behind the last are zeros. The last 16 bytes of a row of V may reach beyond its last key, but not beyond the
  // 16 bytes that hold it.
  __device__ __attribute__((always_inline)) void aim(int tile, int stage) {
    const int key0 = tile * kTileKeys;
    const int left = key_end - key0;
    const int rows = left < kTileKeys ? left : kTileKeys;
    int records = left > 0 ? (rows - 1) * static_cast<int>(SHAPE_K_STRIDE_S) + kDqk : 0;
    WHET_PIN_SCALAR(records);
    const char* const base = k + static_cast<Int64>(key0) * SHAPE_K_STRIDE_S;
    keys = whet::make_buffer(base, static_cast<unsigned>(records));
    if (kHasKeyPanel2)
      keys2 =
          whet::make_buffer(base + 128, records > 128 ? static_cast<unsigned>(records) - 128u : 0u);
    const int bytes = (left + 15) / 16 * 16;
    const int row_bytes = bytes < kTileKeys ? bytes : kTileKeys;
    int value_records =
        left > 0
            ? static_cast<int>((kDv - 1u) * static_cast<unsigned>(SHAPE_V_STRIDE_D)) + row_bytes
            : 0;
    WHET_PIN_SCALAR(value_records);
    values = whet::make_buffer(v + key0, static_cast<unsigned>(value_records));
    to = lds + stage * kStageBytes + wave * 1040;
  }
  // Starts the number-th of the tile's kLoadsOfTile loads: K's come first.
  template <int kNumber>
  __device__ __attribute__((always_inline)) void load() const {
    if constexpr (kNumber < kKeyLoads) {
      whet::load_to_lds_16(keys, k_offset[kNumber],
                           to + wave * (kKeyLoads - 1) * 1040 + kNumber * 1040);
    } else if constexpr (kNumber < kKeyLoads + kKeyLoads2) {
      constexpr int i = kNumber - kKeyLoads;
      whet::load_to_lds_16(keys2, k_offset2[i],
                           to + wave * (kKeyLoads2 - 1) * 1040 + kPanel2At + i * 1040);
    } else {
      constexpr int i = kNumber - kKeyLoads - kKeyLoads2;
      whet::load_to_lds_16(values, v_offset[i],
                           to + wave * (kValueLoads - 1) * 1040 + kValuesAt + i * 1040);
    }
  }
  template <int kBegin, int kEnd>
  __device__ __attribute__((always_inline)) void load_some() const {
    whet::for_each<kBegin, kEnd>([&](auto number) __attribute__((always_inline)) {
      load<decltype(number)::kValue>();
    });
  }
};

// This lane's places in a stage: of its row in the panels of K and in V. Rows of K and of V lie alike where both have 128 bytes.
struct Places {
  const WHET_LDS(char) * keys;
  const WHET_LDS(char) * keys2;
  const WHET_LDS(char) * values;
};

WHET_DEVICE Int8 read_fragment(const WHET_LDS(char) * at) {
  const Int4 low = *(const WHET_LDS(Int4)*)at;
  const Int4 high = *(const WHET_LDS(Int4)*)(at + 32);
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
}
// Fragments as the matrix instructions take them: 32 keys by 64 columns of K, and 32 channels by 64 keys of V.
WHET_DEVICE Int8 read_keys(const Places& at, int key_block, int depth) {
  if (depth < 2) return read_fragment(at.keys + kKeyPanel.row_at(32 * key_block) + 64 * depth);
  return read_fragment(at.keys2 + kKeyPanel2.row_at(32 * key_block));
}
WHET_DEVICE Int8 read_values(const Places& at, int column, int half_tile) {
  return read_fragment(at.values + kValuesAt + kValuePanel.row_at(32 * column) + 64 * half_tile);
}

struct Scores {
  Float16 block[2];  // 32 keys each
  float factor;      // what remains to multiply them by, where not kExact
};

// What a wave keeps of 32 rows from step to step.
struct Rows {
  Int8 query[kDepth];
  Float16 output[kColumns];
  Float4 total;     // row sums: elements 0 and 1 belong to this lane's row
  Float16 origin;   // where kExact: the same in all elements, score of a logit of zero
  float start;      // that score, where not kExact
  float factor;     // of this lane's row: scale log2(e) q_scale in units of scores
  int exponent;     // where kExact: of the scores' factor, as E8M0
  int block_scale;  // of the weights, as E8M0
  int unit_scale;   // E8M0 of 1, where the compiler is not asked to supply it
  float low;        // a tile whose maximum lies below moves the reference
  float top;        // this lane's maximum of the tile at hand
};

// The other operands of the row sums: see the test of the sparse instruction for why these add up each lane's own row.
struct Ones {
  Int4 values;
  int index;
};

WHET_DEVICE float other_half_of(float x) {
  const unsigned bits = whet::float_bits(x);
  const auto both = __builtin_amdgcn_permlane32_swap(bits, bits, false, false);
  return whet::float_from_bits(whet::lane_index() < 32 ? both[1] : both[0]);
}

WHET_DEVICE float power_of_two(int n) { return __builtin_ldexpf(1.0f, n); }

// The exponent of a factor that is a power of two but for rounding, as E8M0; NaN stays NaN.
WHET_DEVICE int nearest_exponent(float factor) {
  return static_cast<int>((whet::float_bits(factor) + 0x400000u) >> 23 & 255u);
}

// With 64 rows a wave has 512 registers per lane; see multiply_into_vector. The emulator has as many as it likes.
#if WHET_EMULATOR
constexpr bool kAccumulators = false;
#else
constexpr bool kAccumulators = kGroups > 1;
#endif

// One matrix instruction of the scores.
template <int kDepthIndex>
WHET_DEVICE void multiply_scores(Float16& s, Int8 keys, const Rows& w) {
#if !WHET_EMULATOR
  if constexpr (kAccumulators) {
    if constexpr (kExact && kDepthIndex == 0) {
      whet::multiply_into_vector(s, keys, w.query[kDepthIndex], w.origin, w.unit_scale, w.exponent);
    } else if constexpr (kExact) {
      whet::multiply_more_into_vector(s, keys, w.query[kDepthIndex], w.unit_scale, w.exponent);
    } else if constexpr (kDepthIndex == 0) {
      whet::multiply_into_vector(s, keys, w.query[kDepthIndex]);
    } else {
      whet::multiply_more_into_vector(s, keys, w.query[kDepthIndex]);
    }
    return;
  }
#endif
  const Float16 zero = {};
  if constexpr (kExact) {
    s = __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(
        keys, w.query[kDepthIndex], kDepthIndex == 0 ? w.origin : s, 0, 0, 0, 127, 0, w.exponent);
  } else {
    s = __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(
        keys, w.query[kDepthIndex], kDepthIndex == 0 ? zero : s, 0, 0, 0, 0, 0, 0);
  }
  WHET_PIN(s);
}

WHET_DEVICE void multiply_output(Float16& o, Int8 values, Int8 weights, const Rows& w) {
#if !WHET_EMULATOR
  if constexpr (kAccumulators) {
    whet::multiply_into_accumulator(o, values, weights, w.unit_scale, w.block_scale);
    return;
  }
#endif
  o = __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(values, weights, o, 0, 0, 0, 127, 0,
                                                      w.block_scale);
}

// Before matrix instructions that compilers do not know to be such.
WHET_DEVICE void settle() {
  if (kAccumulators || kRoute == whet::kByteMaximum) whet::settle_weights();
}

// Four scores join the maximum.
WHET_DEVICE void max_four(Rows& w, const Scores& s, int four) {
  const int r = four % 4 * 4;
  const Float16& x = s.block[four / 4];
  w.top = whet::maximum5(x[r], x[r + 1], x[r + 2], x[r + 3], four == 0 ? x[r] : w.top);
}

// Hides the keys of a tile that a row may not see, also from the maximum.
WHET_DEVICE void mask(Rows& w, Scores& s, const Problem& p, int group, int key0) {
  // Key j is visible to row i when j <= i + Skv - Sq, and when it exists.
  Int64 last = SHAPE_CAUSAL ? p.lane_row + 32 * group + kSeqKv - kSeqQ : kSeqKv - 1;
  if (last > kSeqKv - 1) last = kSeqKv - 1;
  const Int64 distance = last - key0 - 16 * p.half;
  const int relative = distance < -1 ? -1 : distance > kKeys ? kKeys : static_cast<int>(distance);
  WHET_UNROLL
  for (int b = 0; b < 2; ++b) {
    WHET_UNROLL
    for (int r = 0; r < 16; ++r)
      s.block[b][r] = 32 * b + r <= relative ? s.block[b][r] : whet::negative_infinity();
  }
  WHET_UNROLL
  for (int i = 0; i < kFours; ++i) max_four(w, s, i);
}

// The weights of 64 keys by 32 rows.
struct Packed {
  unsigned word[8];
  __device__ __attribute__((always_inline)) Int8 operand() const {
    Int8 all;
    WHET_UNROLL
    for (int i = 0; i < 8; ++i) all[i] = static_cast<int>(word[i]);
    return all;
  }
};

// Eight scores become eight weights.
WHET_DEVICE void round_eight(Packed& weights, const Rows& w, const Scores& s, int eight) {
  float y[8];
  WHET_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int r = eight % 2 * 8 + 2 * i;
    Float2 pair = {s.block[eight / 2][r], s.block[eight / 2][r + 1]};
    if (!kExact) pair = pair * Float2{s.factor, s.factor} + Float2{w.start, w.start};
    y[2 * i] = pair[0];
    y[2 * i + 1] = pair[1];
  }
  const Uint2 word = whet::weights_of<kRoute, false>(y);
  weights.word[2 * eight] = word[0];
  weights.word[2 * eight + 1] = word[1];
  WHET_PIN(weights.word[2 * eight]);
  WHET_PIN(weights.word[2 * eight + 1]);
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
  const float top = kExact ? w.top : w.top * next.factor + w.start;
  unsigned long long moving = whet::ballot(!(top <= kHigh));
  // A row lies low when both its halves do.
  const unsigned long long low = whet::ballot(top < w.low);
  moving |= static_cast<unsigned>(low) & static_cast<unsigned>(low >> 32);
  float shift = 0.0f;  // of the reference, in powers of two
  float output_factor = whet::float_from_bits(whet::any_word());
  unsigned long long rescaling = 0;
  if (kFirst || __builtin_expect(moving != 0, 0)) {
    const float row_top = whet::max_or_nan(top, other_half_of(top));
    const float above = (row_top - kRest) * (1.0f / W::kUnit);
    const int scale = w.block_scale - 127;
    float total_factor = 1.0f;
    output_factor = 1.0f;
    int step = 0;  // of the block scale
    const bool is_nan = row_top != row_top;
    if (is_nan) {
      total_factor = row_top;
    } else if (row_top == whet::negative_infinity()) {
      // Nothing is visible, and there is nothing to follow.
    } else if (w.total[0] + w.total[1] == 0.0f) {
      // Nothing has been summed yet.
      shift = above;
      step = -scale;
    } else if (row_top > kHigh) {
      const int up = static_cast<int>(__builtin_ceilf(above < 1e5f ? above : 1e5f));
      const int most = kLazy ? kHighest : 0;
      if (scale + up <= most) {
        step = up;
        shift = static_cast<float>(up);
        total_factor = power_of_two(-up);
      } else {
        // The output moves too: by what brings the maximum to where it is exact.
        const float rise = above > static_cast<float>(-scale) ? above : static_cast<float>(-scale);
        step = -scale;
        shift = rise;
        total_factor = whet::exp2_fast(-rise);
        output_factor = whet::exp2_fast(-(rise + static_cast<float>(scale)));
      }
    } else if (row_top < w.low) {
      int down = static_cast<int>(__builtin_ceilf(above > -1e5f ? above : -1e5f));
      if (scale + down < kDeepest) down = kDeepest - scale;
      step = down;
      shift = static_cast<float>(down);
      total_factor = power_of_two(-down);
    }
    w.block_scale += step;
    w.low = w.block_scale - 127 <= kDeepest ? whet::negative_infinity() : kLow;
    w.total *= total_factor;
    rescaling = whet::ballot(output_factor != 1.0f);
    shift *= -W::kUnit;
    if (!kExact) w.start += shift;
    if (kExact) {
      w.origin += shift;
      next.block[0] += shift;
      next.block[1] += shift;
    }
    hide_nan(next, is_nan);
  }
  if (kFirst) return;  // there is no output yet
#if !WHET_EMULATOR
  if constexpr (kAccumulators) {
    if (__builtin_expect(rescaling != 0, 0)) {
      WHET_UNROLL
      for (int c = 0; c < kColumns; ++c) whet::scale_accumulator(w.output[c], output_factor);
    }
    return;
  }
#endif
  WHET_UNROLL
  for (int c = 0; c + 1 < kColumns; c += 2)
    whet::scale_both_if(w.output[c], w.output[c + 1], output_factor, rescaling);
  if (kColumns % 2 == 1) whet::scale_if(w.output[kColumns - 1], output_factor, rescaling);
}

WHET_DEVICE void add_to_totals(Rows& w, Int8 weights, const Ones& ones) {
#if !WHET_EMULATOR
  if constexpr (kAccumulators) {
    whet::sparse_into_vector(w.total, ones.values, weights, ones.index);
    return;
  }
#endif
  w.total = __builtin_amdgcn_smfmac_f32_16x16x128_fp8_fp8(ones.values, weights, w.total, ones.index,
                                                          0, 0);
}

// Which bytes of a lane's 32 of V belong to keys that exist: those before `keys` of the half tile.
WHET_DEVICE Int8 existing_bytes(int keys, int half) {
  Int8 bytes;
  WHET_UNROLL
  for (int i = 0; i < 8; ++i) {
    const int left = keys - (32 * (i / 4) + 16 * half + 4 * (i % 4));
    const unsigned few = left > 0 ? (1u << (8 * (left & 3))) - 1u : 0u;
    bytes[i] = static_cast<int>(left >= 4 ? 0xffffffffu : few);
  }
  return bytes;
}

// How many eights of scores must be weights by the end of a slot's vector work.
template <bool kHasNext>
constexpr int eights_due(int slot) {
  if (slot < (kHasNext ? 0 : kScoreSlots)) return 0;
  if (!kHasNext || slot + 1 >= kScoreSlots) return kEights;
  return (slot + 1) * kEights / kScoreSlots;
}

template <bool kHasNext, int kSlot>
WHET_DEVICE void round_due(Packed& weights, const Rows& w, const Scores& now) {
  whet::for_each<eights_due<kHasNext>(kSlot - 1), eights_due<kHasNext>(kSlot)>([&](
      auto number) __attribute__((always_inline)) {
    round_eight(weights, w, now, decltype(number)::kValue);
  });
}

// One step: scores of the half tile after `now` into `next` (where kHasNext), and the output of `now`. `before_values` runs between the
// last read of K and the first of V, `beside` after the matrix instructions of each slot.
template <bool kHasNext, bool kHasAfter, bool kTail, class Middle, class Beside>
WHET_DEVICE void step(Rows (&w)[kGroups], Int8 (&ahead)[kLead], const Ones& ones,
                      Scores (&now)[kGroups], Scores (&next)[kGroups], const Problem& problem,
                      int now_key0, bool mask_next, const Places& next_keys, int next_half,
                      const Places& after_keys, int after_half, const Places& values,
                      int value_half, Middle before_values, Beside beside) {
  constexpr int kFirst = kHasNext ? 0 : kScoreSlots;
  Packed weights[kGroups];
  // One fragment per slot: those of K, those of V, then the first of the next step's K.
  Int8 fragment[kSlots + kLead];
  const auto read = [&](int f) __attribute__((always_inline)) {
    if (f < kScoreSlots) {
      fragment[f] = read_keys(next_keys, f / kDepth + 2 * next_half, f % kDepth);
    } else if (f < kSlots) {
      fragment[f] = read_values(values, f - kScoreSlots, value_half);
    } else if (kHasAfter) {
      fragment[f] =
          read_keys(after_keys, (f - kSlots) / kDepth + 2 * after_half, (f - kSlots) % kDepth);
    }
  };
  if (!kHasNext) before_values();
  WHET_UNROLL
  for (int f = 0; f < kLead; ++f) {
    if (kHasNext) {
      fragment[f] = ahead[f];
    } else {
      read(kScoreSlots + f);
    }
  }
  Int8 existing = {};
  if (kTail) existing = existing_bytes(static_cast<int>(kSeqKv) - now_key0, problem.half);
  if (kAccumulators) whet::settle_weights();
  whet::for_each<kFirst, kSlots>([&](auto constant) __attribute__((always_inline)) {
    constexpr int slot = decltype(constant)::kValue;
    if constexpr (kHasNext && slot == kScoreSlots - kLead) before_values();
    read(slot + kLead);
    if constexpr (slot == kScoreSlots) {
      WHET_UNROLL
      for (int g = 0; g < kGroups; ++g) round_due<kHasNext, slot>(weights[g], w[g], now[g]);
      settle();
    }
    Int8 operand = fragment[slot];
    if (kTail && slot >= kScoreSlots) operand &= existing;
    // A group's vector work beside its own matrix instruction, or those of several would stand in line with nothing beside them.
    WHET_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      if constexpr (slot < kScoreSlots) {
        multiply_scores<slot % kDepth>(next[g].block[slot / kDepth], operand, w[g]);
        round_due<kHasNext, slot>(weights[g], w[g], now[g]);
      } else {
        constexpr int column = slot - kScoreSlots;
        multiply_output(w[g].output[column], operand, weights[g].operand(), w[g]);
        if constexpr (column == 0) add_to_totals(w[g], weights[g].operand(), ones);
        if constexpr (kHasNext) {
          whet::for_each<column * kFours / kOutputSlots, (column + 1) * kFours / kOutputSlots>([&](
              auto number) __attribute__((always_inline)) {
            max_four(w[g], next[g], decltype(number)::kValue);
          });
        }
      }
      if (g + 1 < kGroups) whet::schedule_fence();
    }
    beside(constant);
    whet::schedule_fence();
  });
  if (kHasAfter) {
    WHET_UNROLL
    for (int f = 0; f < kLead; ++f) ahead[f] = fragment[kSlots + f];
  }
  if (kHasNext) {
    WHET_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      if (__builtin_expect(mask_next, 0)) mask(w[g], next[g], problem, g, now_key0 + kKeys);
      move_references<false>(w[g], next[g]);
    }
  }
}

// The matrix phase of a ping-pong: scores of a half tile (where kHasScores) and the output of the one before it (where kHasOutput).
template <bool kHasScores, bool kHasOutput, bool kTail>
WHET_DEVICE void matrix_phase(Rows (&w)[kGroups], const Int8 (&ahead)[kLead], const Ones& ones,
                              Scores (&scores)[kGroups], const Packed (&weights)[kGroups],
                              const Problem& problem, const Places& keys, int key_half,
                              const Places& values, int value_half, int value_key0) {
  constexpr int kFirst = kHasScores ? 0 : kScoreSlots;
  constexpr int kEnd = kHasOutput ? kSlots : kScoreSlots;
  Int8 fragment[kSlots];
  const auto read = [&](int f) __attribute__((always_inline)) {
    if (f >= kEnd) return;
    fragment[f] = f < kScoreSlots ? read_keys(keys, f / kDepth + 2 * key_half, f % kDepth)
                                  : read_values(values, f - kScoreSlots, value_half);
  };
  WHET_UNROLL
  for (int f = 0; f < kLead; ++f) {
    if (kHasScores) {
      fragment[f] = ahead[f];
    } else {
      read(kScoreSlots + f);
    }
  }
  Int8 existing = {};
  if (kTail) existing = existing_bytes(static_cast<int>(kSeqKv) - value_key0, problem.half);
  whet::for_each<kFirst, kEnd>([&](auto constant) __attribute__((always_inline)) {
    constexpr int slot = decltype(constant)::kValue;
    read(slot + kLead);
    if constexpr (slot < kScoreSlots) {
      WHET_UNROLL
      for (int g = 0; g < kGroups; ++g) {
        multiply_scores<slot % kDepth>(scores[g].block[slot / kDepth], fragment[slot], w[g]);
      }
    } else {
      constexpr int column = slot - kScoreSlots;
      Int8 v = fragment[slot];
      if (kTail) v &= existing;
      WHET_UNROLL
      for (int g = 0; g < kGroups; ++g) {
        multiply_output(w[g].output[column], v, weights[g].operand(), w[g]);
        if constexpr (column == 0) add_to_totals(w[g], weights[g].operand(), ones);
      }
    }
    whet::schedule_fence();
  });
}

// Its vector phase: the scores become weights.
template <bool kFirst>
WHET_DEVICE void vector_phase(Rows (&w)[kGroups], Scores (&scores)[kGroups],
                              Packed (&weights)[kGroups], const Problem& problem, int key0,
                              bool masked) {
  WHET_UNROLL
  for (int g = 0; g < kGroups; ++g) {
    WHET_UNROLL
    for (int i = 0; i < kFours; ++i) max_four(w[g], scores[g], i);
    if (__builtin_expect(masked, 0)) mask(w[g], scores[g], problem, g, key0);
    move_references<kFirst>(w[g], scores[g]);
    WHET_UNROLL
    for (int e = 0; e < kEights; ++e) round_eight(weights[g], w[g], scores[g], e);
  }
  settle();
}

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
    panel_offsets(loader.k_offset, kKeyPanel, SHAPE_K_STRIDE_S, kDqk, wave, lane);
    panel_offsets(loader.k_offset2, kKeyPanel2, SHAPE_K_STRIDE_S, kDqk - 128, wave, lane);
    panel_offsets(loader.v_offset, kValuePanel, SHAPE_V_STRIDE_D, kTileKeys, wave, lane);

    if (kClear) {
      const Uint4 zero = {};
      for (int at = static_cast<int>(whet::thread_index()) * 16; at < kStages * kStageBytes;
           at += LAUNCH_BLOCK_X * 16)
        *(WHET_LDS(Uint4)*)(lds + at) = zero;
      whet::barrier();
    }
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
      if (kExact) rows.exponent = nearest_exponent(factor);
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
      // Or the last products sink below the loop, with all that they need.
      WHET_UNROLL
      for (int g = 0; g < kGroups; ++g) {
        WHET_UNROLL
        for (int c = 0; c < kColumns; ++c)
          if (!kAccumulators) WHET_PIN(w[g].output[c]);
      }
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
      for (int g = 0; g < kGroups; ++g) {
        WHET_UNROLL
        for (int c = 0; c < kColumns; ++c)
          if (!kAccumulators) WHET_PIN(w[g].output[c]);
      }
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
      whet::HiddenRow hidden;
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
          to[column] = whet::bf16_from_float(whet::output_without_hidden<false>(hidden, column) *
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
