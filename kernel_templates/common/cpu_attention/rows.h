// A few query rows at a time against a packed tile of keys and values, and the writing of a finished row.
#ifndef WHET_CPU_ATTENTION_ROWS_H_
#define WHET_CPU_ATTENTION_ROWS_H_

#include "common/cpu_attention/products.h"
#include "common/cpu_attention/shape.h"
#include "common/cpu_attention/softmax.h"
#include "common/cpu_math.h"
#include "common/cpu_vec.h"

// Words of queries, keys and values are f32 or pairs of bf16; all else is f32.
struct Scratch {
  float* queries;
  float* outputs;
  float* tops;
  float* sums;
  float* keys;
  float* values;
  float* scores;
  bool values_are_finite;  // for tiles
};

WHET_CPU_FN Scratch DivideScratch(void* shared) {
  char* base = static_cast<char*>(shared);
  return {
      reinterpret_cast<float*>(base + kQueryOffset), reinterpret_cast<float*>(base + kOutputOffset),
      reinterpret_cast<float*>(base + kMaxOffset),   reinterpret_cast<float*>(base + kSumOffset),
      reinterpret_cast<float*>(base + kKeyOffset),   reinterpret_cast<float*>(base + kValueOffset),
      reinterpret_cast<float*>(base + kScoreOffset), true};
}

// A tile of keys as the rows see it: its first key, how many there are, and what turns a row's dot
// products with them into binary logits: factor.Of(row).
template <class Factor>
struct Tile {
  int64_t start;
  int count;
  Factor factor;
};

// kR rows of the block, from `row` on, against the packed tile. The block's first row is of
// `first_position`.
template <int kR, class Factor>
static __attribute__((noinline)) void UpdateRows(const Scratch& scratch, int64_t row,
                                                 int64_t first_position, const Tile<Factor>& tile) {
  RowLimits<kR> limits;
  for (int r = 0; r < kR; ++r) {
    const int64_t visible = VisibleKeys(first_position + (row + r) / kHeadsPerBlock) - tile.start;
    limits.count[r] = static_cast<int>(visible < 0 ? 0 : Smaller<int64_t>(visible, tile.count));
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
                               tile.factor.Of(row + r), state);
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

template <class Factor>
WHET_CPU_FN void UpdateRest(int rest, const Scratch& scratch, int64_t row, int64_t first_position,
                            const Tile<Factor>& tile) {
  if constexpr (kRestOfWholeBlock != 0) {
    if (rest == kRestOfWholeBlock) {
      UpdateRows<kRestOfWholeBlock>(scratch, row, first_position, tile);
      return;
    }
  }
  if constexpr (kRestOfLastBlock != 0 && kRestOfLastBlock != kRestOfWholeBlock) {
    if (rest == kRestOfLastBlock) {
      UpdateRows<kRestOfLastBlock>(scratch, row, first_position, tile);
    }
  }
}

// `value_scale` is what the values were divided by, `shift` belongs to the log-sum-exp.
template <class Stored>
WHET_CPU_FN void WriteRow(const Scratch& scratch, int64_t row, float value_scale, Stored* out,
                          float* lse, float shift) {
  const float* accumulated = scratch.outputs + row * kDvPadded;
  const float sum = HorizontalSum(LoadVec(scratch.sums + row * kLanes));
  const VecF inverse = Broadcast(sum == 0.0f ? 0.0f : value_scale / sum);
  for (int d = 0; d < kDv; d += kLanes) {
    StoreFromF32(out + d, LoadVec(accumulated + d) * inverse, kDv - d);
  }
  if (lse != nullptr) {
    constexpr double kLn2 = 0.6931471805599453;
    *lse = sum == 0.0f ? -__builtin_inff()
                       : static_cast<float>(static_cast<double>(scratch.tops[row]) * kLn2 +
                                            NaturalLog(sum) + static_cast<double>(shift));
  }
}

#endif  // WHET_CPU_ATTENTION_ROWS_H_
