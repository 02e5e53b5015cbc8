// The problem and the tile sizes as constants, and where each thing lies in the block's scratch.
//
// A block computes kBlockQ query positions of kHeadsPerBlock query heads that share one key/value
// head. Its rows are numbered position-major (row = position * kHeadsPerBlock + head), so that the
// number of visible keys never falls from one row to the next.
#ifndef WHET_CPU_ATTENTION_SHAPE_H_
#define WHET_CPU_ATTENTION_SHAPE_H_

#include "common/cpu_block.h"
#include "common/cpu_convert.h"
#include "common/cpu_vec.h"

using Element = StorageOf<SHAPE_DTYPE>::Type;

constexpr int64_t kSeqQ = SHAPE_SEQ_Q;
constexpr int64_t kSeqKv = SHAPE_SEQ_KV;
constexpr int kDqk = SHAPE_DQK;
constexpr int kDv = SHAPE_DV;
constexpr bool kCausal = SHAPE_CAUSAL != 0;
constexpr int kHeadsPerBlock = TUNE_HEADS_PER_BLOCK;
constexpr int64_t kHeadBlocks = SHAPE_HEADS_Q / kHeadsPerBlock;

static_assert(SHAPE_GROUP % TUNE_HEADS_PER_BLOCK == 0,
              "heads_per_block must divide the query heads of a key/value head");
static_assert(kDqk >= 1 && kDqk <= 256 && kDv >= 1 && kDv <= 256, "head dimensions are 1..256");

template <class T>
constexpr T Smaller(T a, T b) {
  return a < b ? a : b;
}

constexpr int64_t RoundUp(int64_t a, int64_t b) { return (a + b - 1) / b * b; }

// Which instructions multiply: see cpu.json.
constexpr bool kTiles = TUNE_BF16_DOT == 2;
// Keys that the products take at a time.
constexpr int kKeyStep = kTiles ? 32 : kLanes;

constexpr int64_t kBlockQ = Smaller<int64_t>(TUNE_BLOCK_Q, kSeqQ > 0 ? kSeqQ : 1);
constexpr int kTileKv =
    static_cast<int>(Smaller<int64_t>(TUNE_BLOCK_KV, RoundUp(kSeqKv > 0 ? kSeqKv : 1, kKeyStep)));
static_assert(kTileKv % kKeyStep == 0, "block_kv must be a multiple of the keys taken at a time");

// Rows that the inner loops hold in registers, and the most vectors of columns that fit beside
// them: rows * vectors accumulators, one row of the other factor, one broadcast element. Of the 8 tile
// registers, 2 x 2 accumulate products of 2 and 2.
constexpr int kRows = kTiles ? 32 : TUNE_ROWS;
constexpr int kMaxVectors = kTiles ? 2 : (kVectorRegisters - 1) / (kRows + 1);
static_assert(kMaxVectors >= 1, "rows needs more vector registers than the target has");

// Columns in panels of equal width, at most kMaxVectors vectors each; only the last may be
// narrower. A panel is stored row after row, so the inner loops read it front to back.
template <int kColumns>
struct Panels {
  static constexpr int kVectors = (kColumns + kLanes - 1) / kLanes;
  static constexpr int kCount = (kVectors + kMaxVectors - 1) / kMaxVectors;
  static constexpr int kWidth = (kVectors + kCount - 1) / kCount;  // in vectors
  static constexpr int kLastWidth = kVectors - (kCount - 1) * kWidth;
  static_assert(kLastWidth >= 1, "a panel is empty");
};

using KeyPanels = Panels<kTileKv>;
using ValuePanels = Panels<kDv>;
constexpr int kDvPadded = ValuePanels::kVectors * kLanes;

// The keys that position i (of the whole sequence) sees are the first VisibleKeys(i).
WHET_CPU_FN int64_t VisibleKeys(int64_t position) {
  if (!kCausal) return kSeqKv;
  const int64_t count = position + kSeqKv - kSeqQ + 1;
  return count < 0 ? 0 : Smaller(count, kSeqKv);
}

constexpr int64_t kBlockRows = RoundUp(kBlockQ * kHeadsPerBlock, kRows);

// Scratch, in bytes. A word of q, k and v holds an f32 or a pair of bf16 (which then need half the words).
constexpr int kDqkWords = kTiles ? static_cast<int>(RoundUp(kDqk, 32) / 2) : kDqk;
constexpr int64_t kQueryBytes = RoundUp(kBlockRows * kDqkWords * 4, 64);
constexpr int64_t kOutputBytes = kBlockRows * kDvPadded * 4;
constexpr int64_t kMaxBytes = RoundUp(kBlockRows * 4, 64);
constexpr int64_t kSumBytes = kBlockRows * kLanes * 4;
constexpr int64_t kKeyBytes = RoundUp(int64_t{kTileKv} * kDqkWords * 4, 64);
constexpr int64_t kValueBytes = int64_t{kTileKv} * kDvPadded * 4;
constexpr int64_t kScoreBytes = RoundUp(int64_t{kRows} * kTileKv * 4, 64);

constexpr int64_t kQueryOffset = 0;
constexpr int64_t kOutputOffset = kQueryOffset + kQueryBytes;
constexpr int64_t kMaxOffset = kOutputOffset + RoundUp(kOutputBytes, 64);
constexpr int64_t kSumOffset = kMaxOffset + kMaxBytes;
constexpr int64_t kKeyOffset = kSumOffset + RoundUp(kSumBytes, 64);
constexpr int64_t kValueOffset = kKeyOffset + kKeyBytes;
constexpr int64_t kScoreOffset = kValueOffset + RoundUp(kValueBytes, 64);
constexpr int64_t kScratchBytes = kScoreOffset + kScoreBytes;
static_assert(kScratchBytes <= LAUNCH_SHARED_BYTES, "shared_bytes of cpu.json is too small");

// The keys of one tile that each of the kR rows in registers sees; never falling from row to row.
template <int kR>
struct RowLimits {
  int count[kR];
  int least() const { return count[0]; }
  int most() const { return count[kR - 1]; }
};

#endif  // WHET_CPU_ATTENTION_SHAPE_H_
