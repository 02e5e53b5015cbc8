// Attention forward on a CPU: tiles of keys and values are packed into the block's scratch and used
// by all rows of the block, a few rows at a time; the softmax is online, all sums are f32.
#include "attention_forward/cpu/products.h"
#include "attention_forward/cpu/shape.h"
#include "attention_forward/cpu/softmax.h"
#include "common/cpu_block.h"
#include "common/cpu_convert.h"
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

// kR rows of the block, from `row` on, against the packed tile of `count` keys that starts at
// `tile_start`.
template <int kR>
static __attribute__((noinline)) void UpdateRows(const Scratch& scratch, int64_t row,
                                                 int64_t first_position, int64_t tile_start,
                                                 int count, float factor) {
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
    correction[r] =
        SoftmaxRow(scratch.scores + r * kTileKv, limits.count[r], padded, factor, state);
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
                            int64_t tile_start, int count, float factor) {
  if constexpr (kRestOfWholeBlock != 0) {
    if (rest == kRestOfWholeBlock) {
      UpdateRows<kRestOfWholeBlock>(scratch, row, first_position, tile_start, count, factor);
      return;
    }
  }
  if constexpr (kRestOfLastBlock != 0 && kRestOfLastBlock != kRestOfWholeBlock) {
    if (rest == kRestOfLastBlock) {
      UpdateRows<kRestOfLastBlock>(scratch, row, first_position, tile_start, count, factor);
    }
  }
}

// Asks for the cache lines of `count` rows of kDim elements.
template <int kDim>
WHET_CPU_FN void PrefetchRows(const Element* rows, int64_t stride, int64_t count) {
  for (int64_t j = 0; j < count; ++j) {
    const char* line = reinterpret_cast<const char*>(rows + j * stride);
    for (int64_t byte = 0; byte < kDim * int64_t{sizeof(Element)}; byte += 64) {
      __builtin_prefetch(line + byte, 0, 2);
    }
  }
}

WHET_CPU_FN void WriteRow(const float* sums, float top, const float* accumulated, Element* out,
                          float* lse) {
  const float sum = HorizontalSum(LoadVec(sums));
  const VecF inverse = Broadcast(sum == 0.0f ? 0.0f : 1.0f / sum);
  for (int d = 0; d < kDv; d += kLanes) {
    StoreFromF32(out + d, LoadVec(accumulated + d) * inverse, kDv - d);
  }
  if (lse != nullptr) {
    constexpr double kLn2 = 0.6931471805599453;
    *lse = sum == 0.0f ? -__builtin_inff()
                       : static_cast<float>(static_cast<double>(top) * kLn2 + NaturalLog(sum));
  }
}

extern "C" void WHET_ENTRY(const WhetCpuBlock* block, void* const* args) {
  const int64_t batch = block->index[0] / kHeadBlocks;
  const int64_t head = block->index[0] % kHeadBlocks * kHeadsPerBlock;
  const int64_t head_kv = head / SHAPE_GROUP;
  // The last positions see the most keys: they start first.
  const int64_t first_position = int64_t{block->grid[1] - 1 - block->index[1]} * kBlockQ;
  if (batch >= SHAPE_BATCH || first_position >= kSeqQ) return;  // an empty problem has a grid of 1

  const Element* q = *static_cast<const Element* const*>(args[0]) + batch * SHAPE_Q_STRIDE_B +
                     head * SHAPE_Q_STRIDE_H;
  const Element* k = *static_cast<const Element* const*>(args[1]) + batch * SHAPE_K_STRIDE_B +
                     head_kv * SHAPE_K_STRIDE_H;
  const Element* v = *static_cast<const Element* const*>(args[2]) + batch * SHAPE_V_STRIDE_B +
                     head_kv * SHAPE_V_STRIDE_H;
  Element* o =
      *static_cast<Element* const*>(args[3]) + batch * SHAPE_O_STRIDE_B + head * SHAPE_O_STRIDE_H;
  float* lse = SHAPE_LSE != 0
                   ? *static_cast<float* const*>(args[4]) + (batch * SHAPE_HEADS_Q + head) * kSeqQ
                   : nullptr;
  // The largest score stays the largest only under a factor that is not negative.
  const float scale = *static_cast<const float*>(args[5]);
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
    PackQueryRow(q + row % kHeadsPerBlock * SHAPE_Q_STRIDE_H + position * SHAPE_Q_STRIDE_S, sign,
                 scratch.queries + row * kQueryStride);
  }
  for (int64_t row = 0; row < worked_rows; ++row) scratch.tops[row] = -__builtin_inff();
  __builtin_memset(scratch.sums, 0, static_cast<uint64_t>(worked_rows) * kLanes * sizeof(float));
  __builtin_memset(scratch.outputs, 0,
                   static_cast<uint64_t>(worked_rows) * kDvPadded * sizeof(float));

  const int64_t end = VisibleKeys(first_position + positions - 1);
  for (int64_t start = 0; start < end; start += kTileKv) {
    const int count = static_cast<int>(Smaller<int64_t>(kTileKv, end - start));
    PackKeys(k + start * SHAPE_K_STRIDE_S, count, scratch.keys);
    PackValues(v + start * SHAPE_V_STRIDE_S, count, scratch.values);
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
      PrefetchRows<kDqk>(k + next * SHAPE_K_STRIDE_S, SHAPE_K_STRIDE_S, keys);
      PrefetchRows<kDv>(v + next * SHAPE_V_STRIDE_S, SHAPE_V_STRIDE_S, keys);
      next += keys;
      UpdateRows<kRows>(scratch, row, first_position, start, count, factor);
    }
    if (row < rows) {
      UpdateRest(static_cast<int>(rows - row), scratch, row, first_position, start, count, factor);
    }
  }

#if TUNE_BF16_DOT == 2
  ReleaseTiles();
#endif
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t h = row % kHeadsPerBlock;
    const int64_t position = first_position + row / kHeadsPerBlock;
    WriteRow(scratch.sums + row * kLanes, scratch.tops[row], scratch.outputs + row * kDvPadded,
             o + h * SHAPE_O_STRIDE_H + position * SHAPE_O_STRIDE_S,
             lse == nullptr ? nullptr : lse + h * kSeqQ + position);
  }
}
