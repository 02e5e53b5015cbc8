// BF16 attention forward for CDNA2 and CDNA3 (gfx90a, gfx942).
//
// The scheme of gfx950.hip, with what these targets lack done otherwise. A block computes 256 query rows of one head, 32 per wave. S^T =
// K Q^T, so that a lane owns a query row, and O^T += V^T P^T takes P from the registers it was computed in. One step of the loop works on
// two tiles of 32 keys, slot by slot: the products of tile t+1's scores and then of tile t's output, between them the exponentials of
// tile t and the maxima of tile t+1. Fragments are read kLead slots ahead; one fragment of 16 bytes feeds two products.
//
// K and V come through registers, loaded a step before they are written to LDS, V's loads before K's and without branches, so that the
// waits are by count and K's loads stay in flight while V is written: K by rows, padded by 16 bytes; V transposed, four keys
// of one column side by side, in the order 0-3, 8-11, 4-7, 12-15 of each 16 keys, so that a lane half's 16 bytes are its keys of two
// products (4 h + 0..3 of each 8). LDS holds kStages tiles of each, and one barrier per step is enough.
#include "common/amd.h"
#include "common/amd_hidden.h"

namespace {

using whet::Float16;
using whet::Float2;
using whet::Int64;
using whet::Short4;
using whet::Uint2;
using whet::Uint4;

constexpr int kThreads = LAUNCH_BLOCK_X;
constexpr int kWaves = kThreads / 64;
constexpr int kRows = 32;
constexpr int kBlockRows = kRows * kWaves;
constexpr int kKeys = 32;
constexpr int kStages = 3;
// A row's reference moves when its maximum has outgrown it by 2^kLazyBits: P and the sums are floating-point numbers, so it need not
// be near.
constexpr float kLazyBits = 16.0f;
// Row sums from the rounded P, by a matrix instruction with ones, instead of from what it was before rounding.
constexpr bool kMatrixSums = TUNE_SUMS == 1;
// P rounded toward zero takes one instruction for two instead of three. Matrix sums lose what the weights lose. Others do not: rows with
// many weights would come out 0.28 % too small in the mean, rows with one not at all, so half of that is made up for.
constexpr bool kTruncate = TUNE_SUMS != 0;
constexpr float kMadeUp = kTruncate && !kMatrixSums ? 1.0014f : 1.0f;
// Compilers take many packed instructions apart, because of what they take those to cost beside a matrix instruction.
constexpr bool kPacked = TUNE_PACKED != 0;

constexpr int kDqk = SHAPE_DQK;
constexpr int kDv = SHAPE_DV;
constexpr Int64 kSeqQ = SHAPE_SEQ_Q;
constexpr Int64 kSeqKv = SHAPE_SEQ_KV;
constexpr int kHeadsQ = SHAPE_HEADS_Q;
constexpr Int64 kBatchHeads = static_cast<Int64>(SHAPE_BATCH) * kHeadsQ;
constexpr Int64 kBlocksPerHead = (kSeqQ + kBlockRows - 1) / kBlockRows;

static_assert(SHAPE_DTYPE == WHET_BF16, "this kernel is for BF16");
static_assert(!kMatrixSums || !SHAPE_LSE,
              "the log-sum-exp needs sums of weights that are not rounded");
static_assert(kWaves == 8, "the division of V among the waves is written for eight");
static_assert(kDqk % 8 == 0 && kDqk <= 192 && kDv % 8 == 0 && kDv <= 128,
              "head dimensions must be multiples of 8, at most 192 and 128");
static_assert(SHAPE_ALIGNMENT >= 16, "16-byte loads need tensors aligned to 16 bytes");
static_assert(SHAPE_Q_STRIDE_S % 8 == 0 && SHAPE_K_STRIDE_S % 8 == 0 && SHAPE_V_STRIDE_S % 8 == 0 &&
                  SHAPE_O_STRIDE_S % 8 == 0,
              "rows must start at multiples of 16 bytes");
static_assert(SHAPE_WINDOW == 0 && SHAPE_SOFTCAP == 0 && SHAPE_SINK == 0,
              "window, softcap and sink are not supported");

constexpr int kDepth = (kDqk + 15) / 16;   // fragments of K along the head dimension
constexpr int kColumns = (kDv + 31) / 32;  // 32-wide column blocks of O
constexpr int kScoreSlots = kDepth;
constexpr int kOutputSlots = 2 * kColumns;
constexpr int kSlots = kScoreSlots + kOutputSlots;
constexpr int kHalfOutput = kScoreSlots + kColumns;
// The first reads of the next step's K wait for the barrier before the second half of the output, and there are only so many to read.
constexpr int smallest(int a, int b, int c) { return a < b ? (a < c ? a : c) : (b < c ? b : c); }
constexpr int kLead = smallest(TUNE_LEAD, kScoreSlots, kSlots - kHalfOutput);
constexpr int kPairs = 8;  // pairs of scores of a lane
constexpr int kFours = 4;

constexpr int kKeyPitch = kDepth * 32 + 16;
constexpr int kKeyBytes = kKeys * kKeyPitch;
constexpr int kValueBlocks = (kDv + 63) / 64;  // 64 columns of V: four waves transpose one
constexpr int kValueBytes = kValueBlocks * 64 * kKeys * 2;
constexpr int kValuesAt = kStages * kKeyBytes;
static_assert(kStages * (kKeyBytes + kValueBytes) <= LAUNCH_SHARED_BYTES,
              "shared_bytes of the kernel file is too small");

constexpr int kKeyChunks = kKeys * kDepth * 2;  // 16-byte pieces of a tile of K
constexpr int kKeyLoads = (kKeyChunks + kThreads - 1) / kThreads;

struct Problem {
  float scale;  // of the logits, in powers of two; positive
  int lane_row;
  int half;  // lane / 32
};

// Where the 16 bytes of V^T for a column and the keys 16 group + 4 half + {0..3, 8..11} lie. Rows of 64 bytes are taken in pairs: the
// exclusive ors make both the reads (consecutive columns) and the writes (columns two apart) meet every bank once.
WHET_DEVICE int value_at(int column, int group, int half) {
  return (column ^ (column >> 3 & 1)) * 64 + 16 * ((2 * group + half) ^ (column >> 1 & 3));
}

// Beyond every buffer: the load gives zeros.
constexpr unsigned kNowhere = 0x80000000u;
// A head's K or V in bytes, and a tile or two beyond.
constexpr Int64 kHeadBytes =
    (kSeqKv + 8 * kKeys) * 2 *
    (SHAPE_K_STRIDE_S > SHAPE_V_STRIDE_S ? SHAPE_K_STRIDE_S : SHAPE_V_STRIDE_S);
template <bool kSmall>
struct RestBytesOf {
  typedef int Type;
};
template <>
struct RestBytesOf<false> {
  typedef Int64 Type;
};
typedef RestBytesOf < kHeadBytes<0x7fffffff>::Type RestBytes;

// One thread's share of a tile on its way from global memory to LDS.
struct Loader {
  whet::Rest<RestBytes> k;
  whet::Rest<RestBytes> v;
  WHET_LDS(char) * lds;
  int wave;
  int key_to[kKeyLoads];           // in a stage of LDS
  unsigned key_offset[kKeyLoads];  // in a tile's rows
  int value_row;                   // the first of four keys
  int value_column;                // the first of two columns
  unsigned value_offset;
  Uint4 keys[kKeyLoads] = {};
  unsigned values[4] = {};

  __device__ __attribute__((always_inline)) bool has_keys(int i) const {
    return (i + 1) * kThreads <= kKeyChunks || wave * 64 + i * kThreads < kKeyChunks;
  }
  __device__ __attribute__((always_inline)) bool has_values() const {
    return 4 * kValueBlocks >= kWaves || wave < 4 * kValueBlocks;
  }

  __device__ __attribute__((always_inline)) void start(int wave_index, int lane) {
    wave = wave_index;
    const int thread = wave * 64 + lane;
    WHET_UNROLL
    for (int i = 0; i < kKeyLoads; ++i) {
      const int row = (thread + i * kThreads) / (2 * kDepth);
      const int chunk = (thread + i * kThreads) % (2 * kDepth);
      key_to[i] = row * kKeyPitch + chunk * 16;
      key_offset[i] =
          has_keys(i) && chunk * 8 < kDqk
              ? static_cast<unsigned>(row) * static_cast<unsigned>(SHAPE_K_STRIDE_S * 2) +
                    static_cast<unsigned>(chunk) * 16u
              : kNowhere;
    }
    // A wave takes two groups of four keys that lie in the two halves of the same 16 bytes.
    const int quad = wave % 4;
    value_row = 4 * (quad % 2 + quad / 2 * 4 + lane / 32 * 2);
    value_column = wave / 4 * 64 + lane % 32 * 2;
    value_offset = value_column < kDv ? static_cast<unsigned>(value_row) *
                                                static_cast<unsigned>(SHAPE_V_STRIDE_S * 2) +
                                            static_cast<unsigned>(value_column) * 2u
                                      : kNowhere;
  }

  // The next tile of K or V: the calls go from tile to tile. Behind the last key lie zeros.
  __device__ __attribute__((always_inline)) void load_keys() {
    const whet::Buffer rows = k.buffer();
    WHET_UNROLL
    for (int i = 0; i < kKeyLoads; ++i) keys[i] = whet::load_16(rows, key_offset[i]);
    k.advance(static_cast<RestBytes>(kKeys * SHAPE_K_STRIDE_S * 2ll));
  }
  __device__ __attribute__((always_inline)) void load_values() {
    const whet::Buffer rows = v.buffer();
    WHET_UNROLL
    for (int r = 0; r < 4; ++r) {
      values[r] =
          whet::load_4(rows, value_offset + static_cast<unsigned>(r) *
                                                static_cast<unsigned>(SHAPE_V_STRIDE_S * 2));
    }
    v.advance(static_cast<RestBytes>(kKeys * SHAPE_V_STRIDE_S * 2ll));
  }
  __device__ __attribute__((always_inline)) void store_keys(int stage_at) const {
    WHET_UNROLL
    for (int i = 0; i < kKeyLoads; ++i) {
      if (has_keys(i)) *(WHET_LDS(Uint4)*)(lds + stage_at + key_to[i]) = keys[i];
    }
  }
  __device__ __attribute__((always_inline)) void store_values(int stage_at) const {
    if (!has_values()) return;
    // Four keys by two columns, transposed.
    const Uint2 even = {__builtin_amdgcn_perm(values[1], values[0], 0x05040100u),
                        __builtin_amdgcn_perm(values[3], values[2], 0x05040100u)};
    const Uint2 odd = {__builtin_amdgcn_perm(values[1], values[0], 0x07060302u),
                       __builtin_amdgcn_perm(values[3], values[2], 0x07060302u)};
    const int unit = value_row / 4 % 4;
    WHET_LDS(char)* const to = lds + kValuesAt + stage_at + 8 * (unit / 2);
    *(WHET_LDS(Uint2)*)(to + value_at(value_column, value_row / 16, unit % 2)) = even;
    *(WHET_LDS(Uint2)*)(to + value_at(value_column + 1, value_row / 16, unit % 2)) = odd;
  }
};

// What a wave keeps from step to step.
struct Rows {
  Uint4 query[kDepth];
  Float16 output[kColumns];
  whet::RowSum<kMatrixSums> total;
  // What the exponents are relative to, in powers of two; finite. Twice: packed instructions take pairs.
  Float2 reference;
  float
      bound;  // the reference moves when a scaled maximum exceeds this; -inf before the first visible key
  float top;  // this lane's maximum of the tile at hand, unscaled
  Uint4 ahead[kLead];
};

// This lane's places in a tile.
struct Places {
  const WHET_LDS(char) * keys;
  const WHET_LDS(char) * values[2];  // for the two groups of 16 keys
};

// Both products that a fragment of 16 bytes feeds.
WHET_DEVICE Float16 multiply(Uint4 a, Uint4 b, Float16 c) {
  c = __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(__builtin_bit_cast(Short4, Uint2{a[0], a[1]}),
                                               __builtin_bit_cast(Short4, Uint2{b[0], b[1]}), c, 0,
                                               0, 0);
  return __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(__builtin_bit_cast(Short4, Uint2{a[2], a[3]}),
                                                  __builtin_bit_cast(Short4, Uint2{b[2], b[3]}), c,
                                                  0, 0, 0);
}

// The weights of 16 keys join the row sums.
WHET_DEVICE void add_to_total(whet::RowSum<true>& total, Short4 ones, Uint4 p) {
  total.value = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(
      ones, __builtin_bit_cast(Short4, Uint2{p[0], p[1]}), total.value, 0, 0, 0);
  total.value = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(
      ones, __builtin_bit_cast(Short4, Uint2{p[2], p[3]}), total.value, 0, 0, 0);
}
WHET_DEVICE void add_to_total(whet::RowSum<false>&, Short4, Uint4) {}

// Hides the keys of a tile that a row may not see.
WHET_DEVICE void mask(Float16& s, const Problem& p, Int64 key0) {
  // Key j is visible to row i when j <= i + Skv - Sq, and when it exists.
  Int64 last = SHAPE_CAUSAL ? p.lane_row + kSeqKv - kSeqQ : kSeqKv - 1;
  if (last > kSeqKv - 1) last = kSeqKv - 1;
  const Int64 distance = last - key0 - 4 * p.half;
  const int relative = distance < -1 ? -1 : distance > kKeys ? kKeys : static_cast<int>(distance);
  // Keys that no row ever sees are known when this is compiled: their scores' registers must not be given away while the product writes them.
  WHET_PIN(s);
  WHET_UNROLL
  for (int r = 0; r < 16; ++r)
    s[r] = 8 * (r / 4) + r % 4 <= relative ? s[r] : whet::negative_infinity();
}

WHET_DEVICE void max_four(Rows& w, const Float16& s, int four) {
  const int r = four * 4;
  w.top = whet::max5(s[r], s[r + 1], s[r + 2], s[r + 3], four == 0 ? s[r] : w.top);
}

// Moves the reference of rows whose maximum has outgrown it, and everything that is relative to it.
WHET_DEVICE void move_references(Rows& w, const Problem& p) {
  // Either half of a row can tell that it must move; only then do they tell each other by how much.
  const unsigned long long moving = whet::ballot(w.top * p.scale > w.bound);
  // Where nothing moves it does not matter, but hipRTC 5.2 takes a way of its own around anything that is no number.
  float shrink = __clang_major__ < 16 ? 0.0f : whet::float_from_bits(whet::any_word());
  if (__builtin_expect(moving != 0, 0)) {
    const float top = whet::max_float(w.top, whet::other_half(w.top)) * p.scale;
    const bool first = w.bound == whet::negative_infinity();
    const float grown = first ? top : whet::max_float(w.reference[0], top);
    const bool none = grown == whet::negative_infinity();
    const float reference = none ? 0.0f : grown;
    // Before the first visible key there is nothing to shrink: sums and outputs are zero.
    shrink = first ? 0.0f : whet::exp2_fast(w.reference[0] - reference);
    w.reference = Float2{reference, reference};
    w.bound = none ? grown : reference + kLazyBits;
    w.total.value *= shrink;
  }
  // Or compilers would make something of it on either way.
  WHET_PIN(w.reference);
  whet::scale_if(w.output, shrink, moving);
}

// A pair of scores becomes a pair of probabilities, rounded to BF16; the sum takes them unrounded, or later.
WHET_DEVICE unsigned exponentiate(Rows& w, const Float16& s, float scale, int pair, Float2& p) {
  const Float2 score = {s[2 * pair], s[2 * pair + 1]};
  const Float2 scale2 = {scale, scale};
  const Float2 exponent = kPacked ? whet::multiply_subtract_packed(score, scale2, w.reference)
                                  : score * scale2 - w.reference;
  p = Float2{whet::exp2_fast(exponent[0]), whet::exp2_fast(exponent[1])};
  if constexpr (!kPacked) w.total.add(p);
  return kTruncate ? whet::pack_bf16_down(p[0], p[1]) : whet::pack_bf16_away(p[0], p[1]);
}

// How many pairs of scores must have become probabilities by the end of a slot's vector work: spread evenly over the slots before the
// second half of the output, but the first 16 keys before the output begins. Where the next scores take the place of these, or there are
// none, they all come at once.
template <bool kHasNext, bool kInPlace>
constexpr int pairs_due(int slot) {
  if (slot < (kHasNext ? 0 : kScoreSlots)) return 0;
  if (!kHasNext || kInPlace || slot + 1 >= kHalfOutput) return kPairs;
  const int even = (slot + 1) * kPairs / kHalfOutput;
  return slot >= kScoreSlots && even < kPairs / 2 ? kPairs / 2 : even;
}

// One step: scores of the tile after `now` into `next` (where kHasNext), and the output of tile `now`. `middle` runs between two slots,
// once nobody reads the tile of K any more and half of V's reads are done; `beside` in each of the kColumns slots from there on. `next` may
// be `now` where it is masked, or there is none.
template <bool kHasNext, bool kMaskNext, class Middle, class Beside>
WHET_DEVICE void step(Rows& w, Uint2 ones, const Float16& now, Float16& next,
                      const Problem& problem, Int64 next_key0, const Places& at, int key_offset,
                      int key_offset_after, int value_offset, Middle middle, Beside beside) {
  constexpr int kFirst = kHasNext ? 0 : kScoreSlots;
  unsigned p[kPairs];
  // One fragment per slot: those of K, those of V, then the first of the next step's K.
  Uint4 fragment[kSlots + kLead];
  const auto read = [&](int f) __attribute__((always_inline)) {
    if (f < kScoreSlots) {
      fragment[f] = *(const WHET_LDS(Uint4)*)(at.keys + key_offset + 32 * f);
    } else if (f < kSlots) {
      const int group = (f - kScoreSlots) / kColumns, column = (f - kScoreSlots) % kColumns;
      fragment[f] = *(const WHET_LDS(Uint4)*)(at.values[group] + value_offset + 32 * 64 * column);
    } else if (kHasNext) {
      fragment[f] = *(const WHET_LDS(Uint4)*)(at.keys + key_offset_after + 32 * (f - kSlots));
    }
  };
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
    if constexpr (kHasNext && slot == kHalfOutput) middle();
    if constexpr (slot >= kHalfOutput || slot + kLead < kSlots) read(slot + kLead);
    const auto exponentials = [&]() __attribute__((always_inline)) {
      whet::for_each<pairs_due<kHasNext, kMaskNext>(slot - 1),
                     pairs_due<kHasNext, kMaskNext>(slot)>([&](
          auto number) __attribute__((always_inline)) {
        constexpr int pair = decltype(number)::kValue;
        Float2 unrounded;
        p[pair] = exponentiate(w, now, problem.scale, pair, unrounded);
        WHET_PIN(p[pair]);
        if constexpr (kPacked) w.total.add_packed(unrounded);
      });
    };
    if constexpr (slot < kScoreSlots) {
      const Float16 zero = {};
      if constexpr (kMaskNext) exponentials();
      next = multiply(fragment[slot], w.query[slot], slot == 0 ? zero : next);
      WHET_PIN(next);
      if constexpr (!kMaskNext) exponentials();
    } else {
      constexpr int group = (slot - kScoreSlots) / kColumns,
                    column = (slot - kScoreSlots) % kColumns;
      exponentials();
      const Uint4 weights = {p[4 * group], p[4 * group + 1], p[4 * group + 2], p[4 * group + 3]};
      w.output[column] = multiply(fragment[slot], weights, w.output[column]);
      if constexpr (kHasNext && !kMaskNext && slot >= kHalfOutput) {
        whet::for_each<(slot - kHalfOutput) * kFours / kColumns,
                       (slot + 1 - kHalfOutput) * kFours / kColumns>([&](
            auto number) __attribute__((always_inline)) {
          max_four(w, next, decltype(number)::kValue);
        });
      }
      if constexpr (kMatrixSums && column == 0) {
        // Behind the maxima: assembly keeps no distance to the registers of a product.
        whet::schedule_fence();
        add_to_total(w.total, __builtin_bit_cast(Short4, ones), weights);
      }
      if constexpr (kHasNext && slot >= kHalfOutput) {
        beside(whet::Constant<slot - kHalfOutput>());
      }
    }
    whet::schedule_fence();
  });
  if (kHasNext) {
    WHET_UNROLL
    for (int f = 0; f < kLead; ++f) w.ahead[f] = fragment[kSlots + f];
    if (kMaskNext) {
      mask(next, problem, next_key0);
      whet::wait_matrix();
      WHET_UNROLL
      for (int i = 0; i < kFours; ++i) max_four(w, next, i);
    }
    move_references(w, problem);
  }
}

struct Yes {
  static constexpr bool kValue = true;
};
struct No {
  static constexpr bool kValue = false;
};

// Where the stage after the one at `at` lies, of stages of so many bytes.
template <int kBytes>
WHET_DEVICE int next_stage(int at) {
  return at == (kStages - 1) * kBytes ? 0 : at + kBytes;
}

}  // namespace

extern "C" __global__ void
    __attribute__((amdgpu_flat_work_group_size(LAUNCH_BLOCK_X, LAUNCH_BLOCK_X),
                   amdgpu_waves_per_eu(2, 2)))
    WHET_ENTRY(const unsigned short* __restrict__ q, const unsigned short* __restrict__ k,
               const unsigned short* __restrict__ v, unsigned short* __restrict__ o,
               float* __restrict__ lse, float scale) {
  if (kBlocksPerHead == 0 || kBatchHeads == 0) return;
  WHET_SHARED_MEMORY(shared);
  WHET_LDS(char)* const lds = (WHET_LDS(char)*)shared;
  const int wave = whet::wave_index();
  const int lane = whet::lane_index();

  // Blocks go round-robin to the eight dies of gfx942, each with its own second-level cache: heads are dealt so that a die works on few
  // heads of K and V at a time. Within a head the last rows, which see the most keys, start first.
  constexpr Int64 kBlocks = kBlocksPerHead > 0 ? kBlocksPerHead : 1;
  constexpr Int64 kPerDie = kBatchHeads % 8 == 0 ? kBatchHeads / 8 : 0;
  const Int64 id = whet::block_index();
  const Int64 batch_head = kPerDie > 0 ? id % 8 * kPerDie + id / 8 / kBlocks : id / kBlocks;
  const Int64 row_block = kBlocks - 1 - (kPerDie > 0 ? id / 8 % kBlocks : id % kBlocks);
  const Int64 head = batch_head % kHeadsQ;
  const Int64 batch = batch_head / kHeadsQ;
  const Int64 head_kv = head / (kHeadsQ / SHAPE_HEADS_KV);

  Problem problem;
  // A negative scale becomes a sign of Q, exactly; a zero one the smallest that keeps hidden keys hidden.
  const bool negative = scale < 0.0f;
  const float magnitude = negative ? -scale : scale;
  problem.scale = (magnitude > 1e-30f ? magnitude : 1e-30f) * 1.44269504088896340736f;
  problem.half = lane / 32;
  problem.lane_row = static_cast<int>(row_block * kBlockRows) + wave * kRows + lane % 32;

  // Tiles: what a block computes beyond its last key is hidden.
  Int64 key_end = kSeqKv;
  // The first key that some row of the block may not see.
  Int64 clear_keys = kSeqKv;
  if (SHAPE_CAUSAL) {
    const Int64 last = (row_block + 1) * kBlockRows + kSeqKv - kSeqQ;
    key_end = last < 0 ? 0 : last < key_end ? last : key_end;
    const Int64 first = row_block * kBlockRows + 1 + kSeqKv - kSeqQ;
    clear_keys = first < 0 ? 0 : first < clear_keys ? first : clear_keys;
  }
  const int tiles = static_cast<int>((key_end + kKeys - 1) / kKeys);
  const int clear_tiles = static_cast<int>(clear_keys / kKeys);
  // Of these, the ones that this wave's rows see some key of; it takes part in loading the others.
  int wave_tiles = tiles;
  if (SHAPE_CAUSAL) {
    const Int64 last = row_block * kBlockRows + (wave + 1) * kRows + kSeqKv - kSeqQ;
    const int seen = static_cast<int>((last + kKeys - 1) / kKeys);
    wave_tiles = seen < 1 ? 1 : seen < tiles ? seen : tiles;
  }

  Rows w;
  w.total.value = {};
  w.reference = Float2{};
  w.bound = whet::negative_infinity();
  WHET_UNROLL
  for (int c = 0; c < kColumns; ++c) w.output[c] = Float16{};

  if (tiles > 0) {
    Loader loader;
    // What lies behind the last tile is not needed.
    const Int64 rows = tiles * kKeys < kSeqKv ? tiles * kKeys : kSeqKv;
    loader.k = {
        reinterpret_cast<const char*>(k + batch * SHAPE_K_STRIDE_B + head_kv * SHAPE_K_STRIDE_H),
        static_cast<RestBytes>(((rows - 1) * SHAPE_K_STRIDE_S + kDqk) * 2)};
    loader.v = {
        reinterpret_cast<const char*>(v + batch * SHAPE_V_STRIDE_B + head_kv * SHAPE_V_STRIDE_H),
        static_cast<RestBytes>(((rows - 1) * SHAPE_V_STRIDE_S + kDv) * 2)};
    loader.lds = lds;
    loader.start(wave, lane);

    const unsigned sign = negative ? 0x80008000u : 0u;
    // Rows past the end repeat the last one; they are not stored.
    const Int64 row = problem.lane_row < kSeqQ ? problem.lane_row : kSeqQ - 1;
    const unsigned short* const from =
        q + batch * SHAPE_Q_STRIDE_B + head * SHAPE_Q_STRIDE_H + row * SHAPE_Q_STRIDE_S;
    WHET_UNROLL
    for (int d = 0; d < kDepth; ++d) {
      const int column = 16 * d + 8 * problem.half;
      Uint4 four = {};
      if (column < kDqk) four = *reinterpret_cast<const Uint4*>(from + column);
      w.query[d] = four ^ sign;
    }

    // A step t writes V(t+2) and K(t+3) and loads V(t+3) and K(t+4), so before step 0 these are due.
    WHET_UNROLL
    for (int t = 0; t < 3; ++t) {
      loader.load_keys();
      if (t < 2) loader.load_values();
      loader.store_keys(t * kKeyBytes);
      if (t < 2) loader.store_values(t * kValueBytes);
    }
    loader.load_values();
    loader.load_keys();

    Places at;
    at.keys = lds + lane % 32 * kKeyPitch + 16 * problem.half;
    at.values[0] = lds + kValuesAt + value_at(lane % 32, 0, problem.half);
    at.values[1] = lds + kValuesAt + value_at(lane % 32, 1, problem.half);

    const unsigned one = whet::sum_operand(lane);
    Uint2 ones = {one, one};

    Float16 even = {}, odd = {};
    whet::wait_lds();
    whet::meet();
    WHET_UNROLL
    for (int d = 0; d < kDepth; ++d) {
      even = multiply(*(const WHET_LDS(Uint4)*)(at.keys + 32 * d), w.query[d], even);
      WHET_PIN(even);
      whet::schedule_fence();
    }
    mask(even, problem, 0);
    whet::wait_matrix();
    WHET_UNROLL
    for (int i = 0; i < kFours; ++i) max_four(w, even, i);
    move_references(w, problem);
    WHET_UNROLL
    for (int f = 0; f < kLead; ++f)
      w.ahead[f] = *(const WHET_LDS(Uint4)*)(at.keys + kKeyBytes + 32 * f);

    // Where the stages of K(t+1) and of V(t) lie.
    int key_stage = kKeyBytes, value_stage = 0;
    int tile = 0;
    // What happens once in a step, between two slots: what this wave wrote a step ago is in LDS, and after the barrier what every wave wrote.
    // In step t nobody reads K(t) and V(t-1) any more.
    const auto middle = [&]() __attribute__((always_inline)) {
      whet::wait_lds();
      whet::meet();
      whet::schedule_fence();
    };
    // Then these four pieces of work in order. All at once they would leave the matrix pipe with nothing to do, because the other wave of
    // the SIMD comes from the same barrier.
    const auto hand_over = [&](auto piece, int key_stage_free, int value_stage_free)
        __attribute__((always_inline)) {
      constexpr int kPiece = decltype(piece)::kValue;
      whet::schedule_fence();
      if constexpr (kPiece == 0) loader.store_values(value_stage_free);
      if constexpr (kPiece == 1) loader.load_values();
      if constexpr (kPiece == 2) loader.store_keys(key_stage_free);
      if constexpr (kPiece == 3) loader.load_keys();
      whet::schedule_fence();
    };
    constexpr int kPieces = 4;
    const auto advance = [&](auto has_next, auto mask_next, const Float16& now, Float16& next)
        __attribute__((always_inline)) {
      const int key_after = next_stage<kKeyBytes>(key_stage);
      const int value_after = next_stage<kValueBytes>(value_stage);
      const auto beside = [&](auto slot) __attribute__((always_inline)) {
        constexpr int kSlot = decltype(slot)::kValue;
        whet::for_each<(kSlot * kPieces + kColumns - 1) / kColumns,
                       ((kSlot + 1) * kPieces + kColumns - 1) / kColumns>([&](
            auto piece) __attribute__((always_inline)) {
          hand_over(piece, next_stage<kKeyBytes>(key_after), next_stage<kValueBytes>(value_after));
        });
      };
      step<decltype(has_next)::kValue, decltype(mask_next)::kValue>(
          w, ones, now, next, problem, static_cast<Int64>(tile + 1) * kKeys, at, key_stage,
          key_after, value_stage, middle, beside);
      if (!decltype(has_next)::kValue) return;
      key_stage = key_after;
      value_stage = value_after;
      ++tile;
    };
    while (tile + 2 < clear_tiles) {
      advance(Yes(), No(), even, odd);
      advance(Yes(), No(), odd, even);
    }
    // What two loops have in common compilers make once, on the way past the first; a way with something on it takes registers of its own.
    const auto part = [&]() __attribute__((always_inline)) {
      WHET_PIN(problem.scale);
      WHET_PIN(ones);
    };
    part();
    while (tile + 1 < wave_tiles) advance(Yes(), Yes(), even, even);
    part();
    advance(No(), No(), even, even);
    // Or the last products sink below the loop, with all that they need.
    WHET_UNROLL
    for (int c = 0; c < kColumns; ++c) WHET_PIN(w.output[c]);
    for (; tile + 1 < tiles; ++tile) {
      const int key_after = next_stage<kKeyBytes>(key_stage);
      const int value_after = next_stage<kValueBytes>(value_stage);
      middle();
      whet::for_each<0, kPieces>([&](auto piece) __attribute__((always_inline)) {
        hand_over(piece, next_stage<kKeyBytes>(key_after), next_stage<kValueBytes>(value_after));
      });
      key_stage = key_after;
      value_stage = value_after;
    }
  }

  const Int64 row = problem.lane_row;
  const auto seen_row = [&]() __attribute__((always_inline)) {
    const Int64 seen = SHAPE_CAUSAL ? row + 1 + kSeqKv - kSeqQ : kSeqKv;
    return whet::SeenRow{
        q + batch * SHAPE_Q_STRIDE_B + head * SHAPE_Q_STRIDE_H + row * SHAPE_Q_STRIDE_S,
        k + batch * SHAPE_K_STRIDE_B + head_kv * SHAPE_K_STRIDE_H,
        v + batch * SHAPE_V_STRIDE_B + head_kv * SHAPE_V_STRIDE_H,
        SHAPE_K_STRIDE_S,
        SHAPE_V_STRIDE_S,
        seen < kSeqKv ? seen : kSeqKv,
        kDqk,
        negative ? -problem.scale : problem.scale,
        w.reference[0]};
  };
  float total;
  if constexpr (kMatrixSums) {
    if (row >= kSeqQ) return;
    total = w.total.value[0];
    // The sums of rows 16 apart share an instruction, which hands one's NaN to the other.
    if (__builtin_expect(total != total, 0)) total = whet::seen_total(seen_row());
  } else {
    const float half_total = w.total.value[0] + w.total.value[1];
    total = half_total + whet::other_half(half_total);
    if (row >= kSeqQ) return;
  }
  // A total of NaN stays.
  const float inverse = total == 0.0f ? 0.0f : kMadeUp / total;
  unsigned long long suspects = 0;  // outputs that are NaN though the sum is not
  unsigned short* const to =
      o + batch * SHAPE_O_STRIDE_B + head * SHAPE_O_STRIDE_H + row * SHAPE_O_STRIDE_S;
  WHET_UNROLL
  for (int c = 0; c < kColumns; ++c) {
    WHET_UNROLL
    for (int r = 0; r < 16; r += 4) {
      const int column = 32 * c + 2 * r + 4 * problem.half;
      const Uint2 four = {
          whet::pack_bf16(w.output[c][r] * inverse, w.output[c][r + 1] * inverse),
          whet::pack_bf16(w.output[c][r + 2] * inverse, w.output[c][r + 3] * inverse)};
      if (column < kDv) {
        *reinterpret_cast<Uint2*>(to + column) = four;
        WHET_UNROLL
        for (int e = 0; e < 2; ++e) {
          if (SHAPE_CAUSAL && whet::low_is_nan(four[e])) suspects |= 1ull << (16 * c + r + 2 * e);
          if (SHAPE_CAUSAL && whet::high_is_nan(four[e])) suspects |= 2ull << (16 * c + r + 2 * e);
        }
      }
    }
  }
  if (SHAPE_CAUSAL && __builtin_expect(suspects != 0 && total == total, 0)) {
    const whet::SeenRow again = seen_row();
    for (int i = 0; i < 16 * kColumns; ++i) {
      const int column = 32 * (i / 16) + 8 * (i / 4 % 4) + 4 * problem.half + i % 4;
      if ((suspects >> i & 1) != 0)
        to[column] = whet::bf16_from_float(whet::seen_output(again, column));
    }
  }
  if (SHAPE_LSE && problem.half == 0) {
    const float value = total == 0.0f
                            ? whet::negative_infinity()
                            : (w.reference[0] + whet::log2_fast(total)) * 0.69314718055994530942f;
    lse[batch_head * kSeqQ + row] = value;
  }
}
