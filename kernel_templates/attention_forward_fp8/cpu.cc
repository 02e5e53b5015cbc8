// FP8 attention forward on a CPU: the BF16 kernel on tiles that are decoded on the way, with a scale for each row and each tile
// of keys. Probabilities are not rounded to e4m3 (no instruction would gain by it), so this is the class of exact exponentials.
// clang-format off: this header redefines what the others stand on.
#include "attention_forward_fp8/cpu/decode.h"
// clang-format on
#include "attention_forward/cpu/products.h"
#include "attention_forward/cpu/shape.h"
#include "attention_forward/cpu/softmax.h"
#include "common/cpu_block.h"
#include "common/cpu_convert.h"
#include "common/cpu_math.h"
#include "common/cpu_vec.h"

// Rows of a tile share the scale of their keys.
static_assert(SHAPE_K_SCALE_ROWS == 0 || SHAPE_K_SCALE_ROWS % kTileKv == 0 ||
                  SHAPE_K_SCALE_ROWS >= kSeqKv,
              "block_kv must not be more than k_scale_rows");

// Behind the scratch of the BF16 kernel: rows' factors, and the decoded tile.
constexpr int64_t kFactorOffset = kScratchBytes;
constexpr int64_t kDecodedKeyOffset = kFactorOffset + RoundUp(kBlockRows * 4, 64);
constexpr int64_t kDecodedValueOffset =
    kDecodedKeyOffset + RoundUp(int64_t{kTileKv} * kDqk * 2, 64);
static_assert(kDecodedValueOffset + int64_t{kTileKv} * kDv * 2 <= LAUNCH_SHARED_BYTES,
              "shared_bytes of cpu.json is too small");

// Words of queries, keys and values are f32 or pairs of bf16; all else is f32.
struct Scratch {
  float* queries;
  float* outputs;
  float* tops;
  float* sums;
  float* keys;
  float* values;
  float* scores;
  float*
      factors;  // of rows: log2 of a weight is a dot product times this times the scale of the keys
  Bf16* decoded_keys;
  Bf16* decoded_values;
  bool values_are_finite;  // for tiles
};

WHET_CPU_FN Scratch DivideScratch(void* shared) {
  char* base = static_cast<char*>(shared);
  return {reinterpret_cast<float*>(base + kQueryOffset),
          reinterpret_cast<float*>(base + kOutputOffset),
          reinterpret_cast<float*>(base + kMaxOffset),
          reinterpret_cast<float*>(base + kSumOffset),
          reinterpret_cast<float*>(base + kKeyOffset),
          reinterpret_cast<float*>(base + kValueOffset),
          reinterpret_cast<float*>(base + kScoreOffset),
          reinterpret_cast<float*>(base + kFactorOffset),
          reinterpret_cast<Bf16*>(base + kDecodedKeyOffset),
          reinterpret_cast<Bf16*>(base + kDecodedValueOffset),
          true};
}

// kR rows of the block, from `row` on, against the packed tile of `count` keys that starts at
// `tile_start`.
template <int kR>
static __attribute__((noinline)) void UpdateRows(const Scratch& scratch, int64_t row,
                                                 int64_t first_position, int64_t tile_start,
                                                 int count, float key_scale) {
  RowLimits<kR> limits;
  for (int r = 0; r < kR; ++r) {
    const int64_t visible = VisibleKeys(first_position + (row + r) / kHeadsPerBlock) - tile_start;
    limits.count[r] = static_cast<int>(visible < 0 ? 0 : Smaller<int64_t>(visible, count));
  }
  const float* queries = scratch.queries + row * kQueryStride;
  int padded = 0;
#if TUNE_BF16_DOT == 2
  TileScores(queries, scratch.keys, limits.most(), scratch.scores);
  padded = static_cast<int>(RoundUp(limits.most(), kKeyStep));
#else
  Scores<kR>(queries, scratch.keys, limits.most(), scratch.scores);
#endif
  float correction[kR];
  for (int r = 0; r < kR; ++r) {
    const RowState state = {scratch.tops + row + r, scratch.sums + (row + r) * kLanes};
    correction[r] = SoftmaxRow(scratch.scores + r * kTileKv, limits.count[r], padded,
                               scratch.factors[row + r] * key_scale, state);
  }
  float* outputs = scratch.outputs + row * kDvPadded;
#if TUNE_BF16_DOT == 2
  TileRowsOutputs(scratch.scores, scratch.values, scratch.values_are_finite, limits, correction,
                  outputs);
#else
  Outputs<kR>(scratch.scores, scratch.values, limits, correction, outputs);
#endif
}

// The rows left over when a block's rows are not a multiple of kRows, known for whole and last
// blocks.
// Tiles always take kRows, and nobody looks at what the rows behind the last hold.
constexpr int kRestOfWholeBlock = kTiles ? 0 : static_cast<int>(kBlockQ * kHeadsPerBlock % kRows);
constexpr int kRestOfLastBlock =
    kTiles ? 0 : static_cast<int>(kSeqQ % kBlockQ * kHeadsPerBlock % kRows);

WHET_CPU_FN void UpdateRest(int rest, const Scratch& scratch, int64_t row, int64_t first_position,
                            int64_t tile_start, int count, float key_scale) {
  if constexpr (kRestOfWholeBlock != 0) {
    if (rest == kRestOfWholeBlock) {
      UpdateRows<kRestOfWholeBlock>(scratch, row, first_position, tile_start, count, key_scale);
      return;
    }
  }
  if constexpr (kRestOfLastBlock != 0 && kRestOfLastBlock != kRestOfWholeBlock) {
    if (rest == kRestOfLastBlock) {
      UpdateRows<kRestOfLastBlock>(scratch, row, first_position, tile_start, count, key_scale);
    }
  }
}

// Asks for the cache lines of `count` rows of `bytes`.
WHET_CPU_FN void PrefetchRows(const uint8_t* rows, int64_t stride, int64_t count, int64_t bytes) {
  for (int64_t j = 0; j < count; ++j) {
    for (int64_t byte = 0; byte < bytes; byte += 64) {
      __builtin_prefetch(rows + j * stride + byte, 0, 2);
    }
  }
}

WHET_CPU_FN void WriteRow(const float* sums, float top, const float* accumulated, float value_scale,
                          Bf16* out, float* lse, float shift) {
  const float sum = HorizontalSum(LoadVec(sums));
  const VecF inverse = Broadcast(sum == 0.0f ? 0.0f : value_scale / sum);
  for (int d = 0; d < kDv; d += kLanes) {
    StoreFromF32(out + d, LoadVec(accumulated + d) * inverse, kDv - d);
  }
  if (lse != nullptr) {
    constexpr double kLn2 = 0.6931471805599453;
    *lse = sum == 0.0f ? -__builtin_inff()
                       : static_cast<float>(static_cast<double>(top) * kLn2 + NaturalLog(sum) +
                                            static_cast<double>(shift));
  }
}

extern "C" void WHET_ENTRY(const WhetCpuBlock* block, void* const* args) {
  const int64_t batch = block->index[0] / kHeadBlocks;
  const int64_t head = block->index[0] % kHeadBlocks * kHeadsPerBlock;
  const int64_t head_kv = head / SHAPE_GROUP;
  // The last positions see the most keys: they start first.
  const int64_t first_position = int64_t{block->grid[1] - 1 - block->index[1]} * kBlockQ;
  if (batch >= SHAPE_BATCH || first_position >= kSeqQ) return;  // an empty problem has a grid of 1

  const auto bytes = [&](int i) { return *static_cast<const uint8_t* const*>(args[i]); };
  const auto floats = [&](int i) { return *static_cast<const float* const*>(args[i]); };
  const int64_t row_q = batch * SHAPE_HEADS_Q + head;
  const int64_t row_kv = batch * SHAPE_HEADS_KV + head_kv;
  const uint8_t* q = bytes(0) + batch * SHAPE_Q_STRIDE_B + head * SHAPE_Q_STRIDE_H;
  const uint8_t* k = bytes(1) + batch * SHAPE_K_STRIDE_B + head_kv * SHAPE_K_STRIDE_H;
  const uint8_t* v = bytes(2) + batch * SHAPE_V_STRIDE_B + head_kv * SHAPE_V_STRIDE_H;
  const float* q_scale = floats(3) + row_q * SHAPE_Q_SCALE_BLOCKS;
  const float* k_scale = floats(4) + row_kv * SHAPE_K_SCALE_BLOCKS;
  const float value_scale = floats(5)[row_kv];
  const float* lse_shift = SHAPE_LSE_SHIFT != 0 ? floats(6) + row_q * kSeqQ : nullptr;
  Bf16* o =
      *static_cast<Bf16* const*>(args[7]) + batch * SHAPE_O_STRIDE_B + head * SHAPE_O_STRIDE_H;
  float* lse = SHAPE_LSE != 0 ? *static_cast<float* const*>(args[8]) + row_q * kSeqQ : nullptr;
  // The largest score stays the largest only under a factor that is not negative.
  const float scale = *static_cast<const float*>(args[9]);
  const float sign = scale < 0.0f ? -1.0f : 1.0f;
  const float factor = scale * sign * 1.4426950408889634f;

  Scratch scratch = DivideScratch(block->shared);
  const int64_t positions = Smaller(kBlockQ, kSeqQ - first_position);
  const int64_t rows = positions * kHeadsPerBlock;
  const int64_t worked_rows = kTiles ? RoundUp(rows, kRows) : rows;
#if TUNE_BF16_DOT == 2
  AcquireTiles();
#endif
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t position = first_position + row / kHeadsPerBlock;
    const int64_t h = row % kHeadsPerBlock;
    Bf16 query[kDqk];
    DecodeRow(q + h * SHAPE_Q_STRIDE_H + position * SHAPE_Q_STRIDE_S, kDqk, query);
    PackQueryRow(query, sign, scratch.queries + row * kQueryStride);
    const int64_t scale_block =
        SHAPE_Q_SCALE_ROWS == 0 ? 0 : position / (SHAPE_Q_SCALE_ROWS + !SHAPE_Q_SCALE_ROWS);
    scratch.factors[row] = factor * q_scale[h * SHAPE_Q_SCALE_BLOCKS + scale_block];
  }
  for (int64_t row = rows; row < worked_rows; ++row) scratch.factors[row] = 0.0f;
  for (int64_t row = 0; row < worked_rows; ++row) scratch.tops[row] = -__builtin_inff();
  __builtin_memset(scratch.sums, 0, static_cast<uint64_t>(worked_rows) * kLanes * sizeof(float));
  __builtin_memset(scratch.outputs, 0,
                   static_cast<uint64_t>(worked_rows) * kDvPadded * sizeof(float));

  const int64_t end = VisibleKeys(first_position + positions - 1);
  for (int64_t start = 0; start < end; start += kTileKv) {
    const int count = static_cast<int>(Smaller<int64_t>(kTileKv, end - start));
    DecodeKeys(k + start * kStoredKeyStride, count, scratch.decoded_keys);
    PackKeys(scratch.decoded_keys, count, scratch.keys);
    DecodeValues(v + start, count, scratch.decoded_values);
    PackValues(scratch.decoded_values, count, scratch.values);
    const float key_scale =
        k_scale[SHAPE_K_SCALE_ROWS == 0 ? 0 : start / (SHAPE_K_SCALE_ROWS + !SHAPE_K_SCALE_ROWS)];
#if TUNE_BF16_DOT == 2
    scratch.values_are_finite = !kCausal || ValuesAreFinite(scratch.values, count);
#endif
    // The first position that sees the tile's first key.
    const int64_t seeing = kCausal ? start + kSeqQ - kSeqKv - first_position : 0;
    int64_t row = seeing <= 0 ? 0 : seeing * kHeadsPerBlock / kRows * kRows;
    // The next tile is fetched a few keys at a time while this one is worked on.
    int64_t next = start + count;
    const int64_t next_end = Smaller<int64_t>(next + kTileKv, end);
    const int64_t steps = (rows - row + kRows - 1) / kRows;
    const int64_t share = (next_end - next + steps - 1) / steps;
    for (; row + kRows <= worked_rows; row += kRows) {
      const int64_t keys = Smaller(share, next_end - next);
      PrefetchRows(k + next * kStoredKeyStride, kStoredKeyStride, keys, kDqk);
      next += keys;
      UpdateRows<kRows>(scratch, row, first_position, start, count, key_scale);
    }
    if (row < rows) {
      UpdateRest(static_cast<int>(rows - row), scratch, row, first_position, start, count,
                 key_scale);
    }
  }

#if TUNE_BF16_DOT == 2
  ReleaseTiles();
#endif
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t h = row % kHeadsPerBlock;
    const int64_t position = first_position + row / kHeadsPerBlock;
    WriteRow(scratch.sums + row * kLanes, scratch.tops[row], scratch.outputs + row * kDvPadded,
             value_scale, o + h * SHAPE_O_STRIDE_H + position * SHAPE_O_STRIDE_S,
             lse == nullptr ? nullptr : lse + h * kSeqQ + position,
             lse_shift == nullptr ? 0.0f : lse_shift[h * kSeqQ + position]);
  }
}
