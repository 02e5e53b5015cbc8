// BF16 attention forward for CDNA4 (gfx950).
//
// A block computes kWaves x kRows query rows of one head; each wave owns 32 of them. Scores are computed transposed,
// S^T = K Q^T, so that a lane owns one query row: row maxima and sums are sums over registers and one exchange between lane halves,
// and P feeds O^T += V^T P^T from the registers it was computed in, because the order of keys in a product is free as long as V's rows
// are read in the same order (16 g + 4 h + 0..3, then 16 g + 8 + 4 h + 0..3).
//
// One step of the loop works on two tiles of 64 keys at once: the products S(t+1) = K(t+1) Q^T and then O += V(t)^T P(t), one matrix
// instruction per slot, and between them the softmax: exponentials of tile t until P is needed, then the maxima of tile t+1. Reads of K
// and V fragments run kLead slots ahead. Two waves share a SIMD, so whatever one cannot hide the other can.
//
// K and V come to LDS by asynchronous 16-byte loads into kStages buffers each, whose lane order is fixed: 1 KiB per instruction. A 1 KiB
// line holds rows i, i + 16, i + 32, i + 48 (128-wide rows; i + 8 j for 64-wide ones), and lines are padded by 16 bytes for K and 64
// for V, which spreads both kinds of reads evenly over the banks with no address arithmetic.
//
// The running maximum is a reference that only moves when a row's maximum has outgrown it by 2^kLazyBits: the sums stay exact. With
// TUNE_SUMS they are taken from the rounded P, by a matrix instruction with ones.
#include "common/amd.h"
#include "common/amd_hidden.h"

namespace {

using whet::Bf16x8;
using whet::Float16;
using whet::Float2;
using whet::Int64;
using whet::Uint2;
using whet::Uint4;

constexpr int kWaves = LAUNCH_BLOCK_X / 64;
constexpr int kRows = 32;
constexpr int kBlockRows = kRows * kWaves;
constexpr int kKeys = 64;
constexpr int kStages = 3;
constexpr float kLazyBits = 16.0f;
constexpr bool kMatrixSums = TUNE_SUMS != 0;
static_assert(!kMatrixSums || !SHAPE_LSE,
              "the log-sum-exp needs sums of weights that are not rounded");

constexpr int kDqk = SHAPE_DQK;
constexpr int kDv = SHAPE_DV;
constexpr Int64 kSeqQ = SHAPE_SEQ_Q;
constexpr Int64 kSeqKv = SHAPE_SEQ_KV;
constexpr int kHeadsQ = SHAPE_HEADS_Q;
constexpr Int64 kBatchHeads = static_cast<Int64>(SHAPE_BATCH) * kHeadsQ;
constexpr Int64 kBlocksPerHead = (kSeqQ + kBlockRows - 1) / kBlockRows;

static_assert(SHAPE_DTYPE == WHET_BF16, "this kernel is for BF16");
static_assert(kDqk % 8 == 0 && kDqk <= 192 && kDv % 8 == 0 && kDv <= 128,
              "head dimensions must be multiples of 8, at most 192 and 128");
static_assert(SHAPE_ALIGNMENT >= 16, "16-byte loads need tensors aligned to 16 bytes");
static_assert(SHAPE_Q_STRIDE_S % 8 == 0 && SHAPE_K_STRIDE_S % 8 == 0 && SHAPE_V_STRIDE_S % 8 == 0 &&
                  SHAPE_O_STRIDE_S % 8 == 0,
              "rows must start at multiples of 16 bytes");
static_assert(SHAPE_WINDOW == 0 && SHAPE_SOFTCAP == 0 && SHAPE_SINK == 0,
              "window, softcap and sink are not supported");

// A matrix in LDS: rows of `width` elements, 128 or 64, in 1 KiB lines.
struct Panel {
  int width;
  int pad;  // bytes behind each line
  constexpr int rows_per_line() const { return 512 / width; }
  constexpr int lines() const { return kKeys / rows_per_line(); }
  constexpr int line_bytes() const { return 1024 + pad; }
  constexpr int bytes() const { return lines() * line_bytes(); }
  // Of a row and of an element in it, relative to the panel.
  constexpr int row_at(int row) const {
    return row % lines() * line_bytes() + row / lines() * width * 2;
  }
};

// K's columns beyond 128 lie in a panel of their own.
constexpr Panel kKeyPanel = {kDqk > 64 ? 128 : 64, 16};
constexpr Panel kKeyPanel2 = {64, 16};
constexpr bool kHasKeyPanel2 = kDqk > 128;
constexpr Panel kValuePanel = {kDv > 64 ? 128 : 64, 64};
constexpr int kKeyBytes = kKeyPanel.bytes() + (kHasKeyPanel2 ? kKeyPanel2.bytes() : 0);
constexpr int kValueBytes = kValuePanel.bytes();
constexpr int kValuesAt = kStages * kKeyBytes;
constexpr int kSharedBytes = kStages * (kKeyBytes + kValueBytes);
static_assert(kSharedBytes <= LAUNCH_SHARED_BYTES, "shared_bytes of the kernel file is too small");

constexpr int kDepth = (kDqk + 15) / 16;   // matrix instructions along the head dimension
constexpr int kColumns = (kDv + 31) / 32;  // 32-wide column blocks of O
constexpr int kScoreSlots = 2 * kDepth;
constexpr int kOutputSlots = 4 * kColumns;
constexpr int kSlots = kScoreSlots + kOutputSlots;
constexpr int kPairs = 16;  // pairs of scores of a lane
constexpr int kFours = 8;
constexpr int kHalfOutput = kScoreSlots + kOutputSlots / 2;
// The first reads of the next step's K wait for the barrier before the second half of the output, and there are only so many to read.
constexpr int smallest(int a, int b, int c) { return a < b ? (a < c ? a : c) : (b < c ? b : c); }
constexpr int kLead = smallest(TUNE_LEAD, kScoreSlots, kSlots - kHalfOutput);

constexpr int kKeyLoads = kKeyPanel.lines() / kWaves;
constexpr int kKeyLoads2 = kHasKeyPanel2 ? kKeyPanel2.lines() / kWaves : 0;
constexpr int kValueLoads = kValuePanel.lines() / kWaves;
static_assert(kKeyLoads >= 1 && kValueLoads >= 1 && kKeyPanel2.lines() % kWaves == 0,
              "every wave must have a line of each panel to load");

// Beyond every buffer: the load writes zeros or nothing.
constexpr unsigned kNowhere = 0x80000000u;
// Rows past the end and columns past the head dimension are not written if the hardware drops such loads instead of zeroing; then
// what lies there must at least be finite.
constexpr bool kClear = kSeqKv % kKeys != 0 || kDqk % 64 != 0 || kDv % 64 != 0 || kDv == 0;

struct Problem {
  float scale;  // of the logits, in powers of two; positive
  int lane_row;
  int half;  // lane / 32
};

// Loads one panel's rows [key0, key0 + 64) to LDS, this wave's share of the lines.
template <int kLoads>
WHET_DEVICE void load_panel(const char* base, Int64 stride_bytes, int row_bytes, int column_bytes,
                            int key0, int key_end, const unsigned (&offset)[kLoads],
                            WHET_LDS(char) * to, const Panel& panel, int wave) {
  const int left = key_end - key0;
  const int rows = left < 0 ? 0 : left > kKeys ? kKeys : left;
  const unsigned records =
      rows > 0 ? static_cast<unsigned>((rows - 1) * stride_bytes + row_bytes - column_bytes) : 0u;
  const whet::Buffer buffer =
      whet::make_buffer(base + static_cast<Int64>(key0) * stride_bytes + column_bytes, records);
  WHET_UNROLL
  for (int i = 0; i < kLoads; ++i)
    whet::load_to_lds_16(buffer, offset[i], to + (wave * kLoads + i) * panel.line_bytes());
}

// Where this lane's 16 bytes of the wave's i-th line come from, relative to the tile.
template <int kLoads>
WHET_DEVICE void panel_offsets(unsigned (&offset)[kLoads], const Panel& panel, Int64 stride_bytes,
                               int columns, int wave, int lane) {
  const int chunks = panel.width / 8;
  WHET_UNROLL
  for (int i = 0; i < kLoads; ++i) {
    const int row = wave * kLoads + i + lane / chunks * panel.lines();
    const int chunk = lane % chunks;
    offset[i] =
        chunk * 8 < columns ? static_cast<unsigned>(row * stride_bytes + chunk * 16) : kNowhere;
  }
}

struct Loader {
  const char* k;
  const char* v;
  WHET_LDS(char) * lds;
  int wave;
  int key_end;  // what lies behind is not needed, or not there
  unsigned k_offset[kKeyLoads];
  unsigned k_offset2[kKeyLoads2 > 0 ? kKeyLoads2 : 1];
  unsigned v_offset[kValueLoads];

  __device__ __attribute__((always_inline)) void load_keys(int tile, int stage) const {
    WHET_LDS(char)* const to = lds + stage * kKeyBytes;
    load_panel(k, SHAPE_K_STRIDE_S * 2ll, kDqk * 2, 0, tile * kKeys, key_end, k_offset, to,
               kKeyPanel, wave);
    if (kHasKeyPanel2)
      load_panel(k, SHAPE_K_STRIDE_S * 2ll, kDqk * 2, 256, tile * kKeys, key_end, k_offset2,
                 to + kKeyPanel.bytes(), kKeyPanel2, wave);
  }
  __device__ __attribute__((always_inline)) void load_values(int tile, int stage) const {
    load_panel(v, SHAPE_V_STRIDE_S * 2ll, kDv * 2, 0, tile * kKeys, key_end, v_offset,
               lds + kValuesAt + stage * kValueBytes, kValuePanel, wave);
  }
};

// This lane's places in a tile: of its rows in the panels of K, and of what it supplies to transposed reads of V.
struct Places {
  const WHET_LDS(char) * keys;
  const WHET_LDS(char) * keys2;
  WHET_LDS(char) * values;
};

// Fragments as the matrix instructions take them, read from the tile that lies `offset` bytes behind the first.
WHET_DEVICE Bf16x8 read_keys(const Places& at, int offset, int block, int depth) {
  if (depth < 8)
    return *(const WHET_LDS(Bf16x8)*)(at.keys + offset + kKeyPanel.row_at(32 * block) + 32 * depth);
  return *(const WHET_LDS(Bf16x8)*)(at.keys2 + offset + kKeyPanel2.row_at(32 * block) +
                                    32 * (depth - 8));
}

WHET_DEVICE Bf16x8 read_values(const Places& at, int offset, int group, int column) {
  WHET_LDS(char)* const first = at.values + offset + kValuePanel.row_at(16 * group) + 64 * column;
  WHET_LDS(char)* const second =
      at.values + offset + kValuePanel.row_at(16 * group + 8) + 64 * column;
  const whet::Short4 low = __builtin_amdgcn_ds_read_tr16_b64_v4i16((WHET_LDS(whet::Short4)*)first);
  const whet::Short4 high =
      __builtin_amdgcn_ds_read_tr16_b64_v4i16((WHET_LDS(whet::Short4)*)second);
  return __builtin_bit_cast(Bf16x8, __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7));
}

// The larger of a row's two halves, in both of them.
WHET_DEVICE float max_over_halves(float x) {
  const unsigned bits = whet::float_bits(x);
  const auto both = __builtin_amdgcn_permlane32_swap(bits, bits, false, false);
  return whet::max_float(whet::float_from_bits(both[0]), whet::float_from_bits(both[1]));
}

WHET_DEVICE float sum_over_halves(float x) {
  const unsigned bits = whet::float_bits(x);
  const auto both = __builtin_amdgcn_permlane32_swap(bits, bits, false, false);
  return whet::float_from_bits(both[0]) + whet::float_from_bits(both[1]);
}

struct Scores {
  Float16 block[2];  // 32 keys each
};

// What a wave keeps from step to step.
struct Rows {
  Bf16x8 query[kDepth];
  Float16 output[kColumns];
  whet::RowSum<kMatrixSums> total;
  // What the exponents are relative to, in powers of two; finite. Twice: packed instructions take pairs.
  Float2 reference;
  float
      bound;  // the reference moves when a scaled maximum exceeds this; -inf before the first visible key
  float top;            // this lane's maximum of the tile at hand, unscaled
  Bf16x8 ahead[kLead];  // the first fragments of K of the next step
};

// Hides the keys of a tile that a row may not see.
WHET_DEVICE void mask(Scores& s, const Problem& p, Int64 key0) {
  // Key j is visible to row i when j <= i + Skv - Sq, and when it exists.
  Int64 last = SHAPE_CAUSAL ? p.lane_row + kSeqKv - kSeqQ : kSeqKv - 1;
  if (last > kSeqKv - 1) last = kSeqKv - 1;
  const Int64 distance = last - key0 - 4 * p.half;
  const int relative = distance < -1 ? -1 : distance > kKeys ? kKeys : static_cast<int>(distance);
  // Keys that no row ever sees are known when this is compiled: their scores' registers must not be given away while the product writes them.
  WHET_UNROLL
  for (int b = 0; b < 2; ++b) {
    WHET_PIN(s.block[b]);
    WHET_UNROLL
    for (int r = 0; r < 16; ++r) {
      s.block[b][r] =
          32 * b + 8 * (r / 4) + r % 4 <= relative ? s.block[b][r] : whet::negative_infinity();
    }
  }
}

// Four scores join the maximum.
WHET_DEVICE void max_four(Rows& w, const Scores& s, int four) {
  const int r = four % 4 * 4;
  const Float16& x = s.block[four / 4];
  w.top = whet::max5(x[r], x[r + 1], x[r + 2], x[r + 3], four == 0 ? x[r] : w.top);
}

// Moves the reference of rows whose maximum has outgrown it, and everything that is relative to it.
WHET_DEVICE void move_references(Rows& w, const Problem& p) {
  // Either half of a row can tell that it must move; only then do they tell each other by how much.
  const unsigned long long moving = whet::ballot(w.top * p.scale > w.bound);
  float shrink = whet::float_from_bits(whet::any_word());
  if (__builtin_expect(moving != 0, 0)) {
    const float top = max_over_halves(w.top) * p.scale;
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
WHET_DEVICE unsigned exponentiate(Rows& w, const Scores& s, float scale, int pair) {
  const int b = pair / 8, r = pair % 8 * 2;
  const Float2 score = {s.block[b][r], s.block[b][r + 1]};
  const Float2 scale2 = {scale, scale};
  const Float2 exponent = score * scale2 - w.reference;
  const Float2 p = {whet::exp2_fast(exponent[0]), whet::exp2_fast(exponent[1])};
  w.total.add(p);
  return __builtin_bit_cast(unsigned, __builtin_convertvector(p, whet::Bf16x2));
}

// How many pairs of scores must have become probabilities by the end of a slot's vector work: spread evenly over the slots before the
// second half of the output, but the first 32 keys before the output begins. Where the next scores take the place of these, or there are
// none, they all come at once.
template <bool kHasNext, bool kInPlace>
constexpr int pairs_due(int slot) {
  if (slot < (kHasNext ? 0 : kScoreSlots)) return 0;
  if (!kHasNext || kInPlace || slot + 1 >= kHalfOutput) return kPairs;
  const int even = (slot + 1) * kPairs / kHalfOutput;
  return slot >= kScoreSlots && even < kPairs / 2 ? kPairs / 2 : even;
}

// The fragment of P for 16 keys.
WHET_DEVICE Bf16x8 probabilities(const unsigned (&p)[kPairs], int group) {
  const Uint4 four = {p[4 * group], p[4 * group + 1], p[4 * group + 2], p[4 * group + 3]};
  return __builtin_bit_cast(Bf16x8, four);
}

// The weights of 16 keys join the row sums.
WHET_DEVICE void add_to_total(whet::RowSum<true>& total, Bf16x8 ones, Bf16x8 p) {
  total.value = __builtin_amdgcn_mfma_f32_16x16x32_bf16(ones, p, total.value, 0, 0, 0);
}
WHET_DEVICE void add_to_total(whet::RowSum<false>&, Bf16x8, Bf16x8) {}

// One step: scores of the tile after `now` into `next` (where kHasNext), and the output of tile `now`. `middle` runs between two slots,
// once nobody reads the tile of K any more and half of V's reads are done. `next` may be `now` where it is masked, or there is none.
template <bool kHasNext, bool kMaskNext, class Middle>
WHET_DEVICE void step(Rows& w, Uint4 ones, const Scores& now, Scores& next, const Problem& problem,
                      Int64 next_key0, const Places& at, int key_offset, int key_offset_after,
                      int value_offset, Middle middle) {
  constexpr int kFirst = kHasNext ? 0 : kScoreSlots;
  unsigned p[kPairs];
  // One fragment per slot: those of K, those of V, then the first of the next step's K.
  Bf16x8 fragment[kSlots + kLead];
  const auto read = [&](int f) __attribute__((always_inline)) {
    if (f < kScoreSlots) {
      fragment[f] = read_keys(at, key_offset, f / kDepth, f % kDepth);
    } else if (f < kSlots) {
      fragment[f] =
          read_values(at, value_offset, (f - kScoreSlots) / kColumns, (f - kScoreSlots) % kColumns);
    } else if (kHasNext) {
      fragment[f] = read_keys(at, key_offset_after, (f - kSlots) / kDepth, (f - kSlots) % kDepth);
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
        p[pair] = exponentiate(w, now, problem.scale, pair);
        WHET_PIN(p[pair]);
      });
    };
    if constexpr (slot < kScoreSlots) {
      constexpr int block = slot / kDepth, depth = slot % kDepth;
      const Float16 zero = {};
      if constexpr (kMaskNext) exponentials();
      next.block[block] = __builtin_amdgcn_mfma_f32_32x32x16_bf16(
          fragment[slot], w.query[depth], depth == 0 ? zero : next.block[block], 0, 0, 0);
      WHET_PIN(next.block[block]);
      if constexpr (!kMaskNext) exponentials();
    } else {
      constexpr int group = (slot - kScoreSlots) / kColumns,
                    column = (slot - kScoreSlots) % kColumns;
      exponentials();
      w.output[column] = __builtin_amdgcn_mfma_f32_32x32x16_bf16(
          fragment[slot], probabilities(p, group), w.output[column], 0, 0, 0);
      if constexpr (kHasNext && !kMaskNext && slot >= kHalfOutput) {
        constexpr int rest = kSlots - kHalfOutput;
        whet::for_each<(slot - kHalfOutput) * kFours / rest,
                       (slot + 1 - kHalfOutput) * kFours / rest>([&](auto number) __attribute__((
            always_inline)) { max_four(w, next, decltype(number)::kValue); });
      }
      if constexpr (kMatrixSums && column == 0) {
        // Behind the maxima: assembly keeps no distance to the registers of a product.
        whet::schedule_fence();
        add_to_total(w.total, __builtin_bit_cast(Bf16x8, ones), probabilities(p, group));
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

WHET_DEVICE int next_stage(int stage) { return stage + 1 == kStages ? 0 : stage + 1; }

}  // namespace

extern "C" __global__ void
    __attribute__((amdgpu_flat_work_group_size(LAUNCH_BLOCK_X, LAUNCH_BLOCK_X),
                   amdgpu_waves_per_eu(kWaves / 4, kWaves / 4)))
    WHET_ENTRY(const unsigned short* __restrict__ q, const unsigned short* __restrict__ k,
               const unsigned short* __restrict__ v, unsigned short* __restrict__ o,
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
  // A negative scale becomes a sign of Q, exactly; a zero one the smallest that keeps hidden keys hidden.
  const bool negative = scale < 0.0f;
  const float magnitude = negative ? -scale : scale;
  problem.scale = (magnitude > 1e-30f ? magnitude : 1e-30f) * 1.44269504088896340736f;
  problem.half = lane / 32;
  problem.lane_row = static_cast<int>(row_block * kBlockRows) + wave * kRows + lane % 32;

  // Tiles: what a block computes beyond its last key is hidden.
  Int64 key_end = kSeqKv;
  if (SHAPE_CAUSAL) {
    const Int64 seen = (row_block + 1) * kBlockRows + kSeqKv - kSeqQ;
    key_end = seen < 0 ? 0 : seen < key_end ? seen : key_end;
  }
  const int tiles = static_cast<int>((key_end + kKeys - 1) / kKeys);
  // The first tile in which some row of the block may not see some key.
  Int64 clear_keys = kSeqKv;
  if (SHAPE_CAUSAL) {
    const Int64 seen = row_block * kBlockRows + 1 + kSeqKv - kSeqQ;
    clear_keys = seen < 0 ? 0 : seen < clear_keys ? seen : clear_keys;
  }
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
    loader.k =
        reinterpret_cast<const char*>(k + batch * SHAPE_K_STRIDE_B + head_kv * SHAPE_K_STRIDE_H);
    loader.v =
        reinterpret_cast<const char*>(v + batch * SHAPE_V_STRIDE_B + head_kv * SHAPE_V_STRIDE_H);
    loader.lds = lds;
    loader.wave = wave;
    loader.key_end = tiles * kKeys < kSeqKv ? tiles * kKeys : static_cast<int>(kSeqKv);
    panel_offsets(loader.k_offset, kKeyPanel, SHAPE_K_STRIDE_S * 2ll, kDqk, wave, lane);
    panel_offsets(loader.k_offset2, kKeyPanel2, SHAPE_K_STRIDE_S * 2ll, kDqk - 128, wave, lane);
    panel_offsets(loader.v_offset, kValuePanel, SHAPE_V_STRIDE_S * 2ll, kDv, wave, lane);
    constexpr int kKeyLoadsAll = kKeyLoads + kKeyLoads2;

    if (kClear) {
      const Uint4 zero = {};
      for (int at = static_cast<int>(whet::thread_index()) * 16; at < kSharedBytes;
           at += LAUNCH_BLOCK_X * 16)
        *(WHET_LDS(Uint4)*)(lds + at) = zero;
      whet::barrier();
    }
    // The order counts: the waits below are by number. A step t loads V(t+2) and K(t+4), so before step 0 these are due.
    loader.load_keys(0, 0);
    loader.load_values(0, 0);
    loader.load_keys(1, 1);
    loader.load_values(1, 1);
    loader.load_keys(2, 2);

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
      w.query[d] = __builtin_bit_cast(Bf16x8, four ^ sign);
    }

    // K: row c, k = 8 h; V, see read_values: row 4 h + (lane % 16) / 4, four columns from 16 (c / 16) + 4 (lane % 4).
    Places at;
    at.keys = lds + kKeyPanel.row_at(lane % 32) + 16 * problem.half;
    at.keys2 = lds + kKeyPanel.bytes() + kKeyPanel2.row_at(lane % 32) + 16 * problem.half;
    at.values = lds + kValuesAt + kValuePanel.row_at(4 * problem.half + lane % 16 / 4) +
                32 * (lane / 16 % 2) + 8 * (lane % 4);

    const unsigned one = whet::sum_operand(lane);
    Uint4 ones = {one, one, one, one};

    Scores even, odd;
    whet::wait_memory<0>();
    whet::meet();
    WHET_UNROLL
    for (int b = 0; b < 2; ++b) {
      WHET_UNROLL
      for (int d = 0; d < kDepth; ++d) {
        const Float16 zero = {};
        even.block[b] = __builtin_amdgcn_mfma_f32_32x32x16_bf16(
            read_keys(at, 0, b, d), w.query[d], d == 0 ? zero : even.block[b], 0, 0, 0);
        WHET_PIN(even.block[b]);
        whet::schedule_fence();
      }
    }
    mask(even, problem, 0);
    whet::wait_matrix();
    WHET_UNROLL
    for (int i = 0; i < kFours; ++i) max_four(w, even, i);
    move_references(w, problem);
    WHET_UNROLL
    for (int f = 0; f < kLead; ++f) w.ahead[f] = read_keys(at, kKeyBytes, f / kDepth, f % kDepth);
    // Everyone has read K(0), so K(3) may take its place.
    whet::wait_lds();
    whet::meet();
    loader.load_keys(3, 0);

    // Stage of K(t+1) and of V(t).
    int key_stage = 1, value_stage = 0;
    int tile = 0;
    // What happens once in a step, between two slots.
    const auto exchange = [&](int t, int key_stage_now, int value_stage_free)
        __attribute__((always_inline)) {
      // V(t+1) and K(t+2) must have landed, K(t+3) may be on its way. After the barrier nobody reads K(t+1) and V(t-1) any more.
      whet::wait_memory<kKeyLoadsAll>();
      whet::meet();
      whet::schedule_fence();
      loader.load_values(t + 2, value_stage_free);
      loader.load_keys(t + 4, key_stage_now);
    };
    const auto advance = [&](auto has_next, auto mask_next, const Scores& now, Scores& next)
        __attribute__((always_inline)) {
      const int key_after = next_stage(key_stage);
      const int value_after = next_stage(value_stage);
      const auto middle = [&]() __attribute__((always_inline)) {
        exchange(tile, key_stage, next_stage(value_after));
      };
      step<decltype(has_next)::kValue, decltype(mask_next)::kValue>(
          w, ones, now, next, problem, static_cast<Int64>(tile + 1) * kKeys, at,
          key_stage * kKeyBytes, key_after * kKeyBytes, value_stage * kValueBytes, middle);
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
      const int key_after = next_stage(key_stage);
      const int value_after = next_stage(value_stage);
      exchange(tile, key_stage, next_stage(value_after));
      key_stage = key_after;
      value_stage = value_after;
    }
    whet::wait_memory<0>();
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
    total = w.total.value[0];
    // The sums of rows 16 apart share an instruction, which hands one's NaN to the other.
    if (row < kSeqQ && __builtin_expect(total != total, 0)) total = whet::seen_total(seen_row());
  } else {
    total = sum_over_halves(w.total.value[0] + w.total.value[1]);
  }
  // A total of NaN stays.
  const float inverse = total == 0.0f ? 0.0f : 1.0f / total;
  unsigned long long suspects = 0;  // outputs that are NaN though the sum is not
  unsigned short* const to =
      o + batch * SHAPE_O_STRIDE_B + head * SHAPE_O_STRIDE_H + row * SHAPE_O_STRIDE_S;
  WHET_UNROLL
  for (int c = 0; c < kColumns; ++c) {
    WHET_UNROLL
    for (int r = 0; r < 16; r += 8) {
      // A lane holds columns 8 g + 4 h + 0..3 of two neighbouring g; swapped between the halves, it has all eight of one.
      Uint2 first, second;
      WHET_UNROLL
      for (int e = 0; e < 2; ++e) {
        const Float2 a = {w.output[c][r + 2 * e] * inverse, w.output[c][r + 2 * e + 1] * inverse};
        const Float2 b = {w.output[c][r + 4 + 2 * e] * inverse,
                          w.output[c][r + 5 + 2 * e] * inverse};
        first[e] = __builtin_bit_cast(unsigned, __builtin_convertvector(a, whet::Bf16x2));
        second[e] = __builtin_bit_cast(unsigned, __builtin_convertvector(b, whet::Bf16x2));
      }
      const auto low = __builtin_amdgcn_permlane32_swap(first[0], second[0], false, false);
      const auto high = __builtin_amdgcn_permlane32_swap(first[1], second[1], false, false);
      const int column = 32 * c + r * 2 + 8 * problem.half;
      const Uint4 eight = {low[0], high[0], low[1], high[1]};
      if (row < kSeqQ && column < kDv) {
        *reinterpret_cast<Uint4*>(to + column) = eight;
        WHET_UNROLL
        for (int e = 0; e < 4; ++e) {
          if (SHAPE_CAUSAL && whet::low_is_nan(eight[e])) suspects |= 1ull << (16 * c + r + 2 * e);
          if (SHAPE_CAUSAL && whet::high_is_nan(eight[e])) suspects |= 2ull << (16 * c + r + 2 * e);
        }
      }
    }
  }
  if (SHAPE_CAUSAL && __builtin_expect(suspects != 0 && total == total, 0)) {
    const whet::SeenRow again = seen_row();
    for (int i = 0; i < 16 * kColumns; ++i) {
      const int column = 32 * (i / 16) + 16 * (i / 8 % 2) + 8 * problem.half + i % 8;
      if ((suspects >> i & 1) != 0)
        to[column] = whet::bf16_from_float(whet::seen_output(again, column));
    }
  }
  if (SHAPE_LSE && problem.half == 0 && row < kSeqQ) {
    const float value = total == 0.0f
                            ? whet::negative_infinity()
                            : (w.reference[0] + whet::log2_fast(total)) * 0.69314718055994530942f;
    lse[batch_head * kSeqQ + row] = value;
  }
}
