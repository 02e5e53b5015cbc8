// Work of a launch in numbers: tiles and chunks, the words of the workspace, what lies in shared memory.
#pragma once

#include "quantize_fp8/gpu/rows.h"
#include "quantize_fp8/gpu/sync.h"

namespace {

using whet::Int64;
using whet::kDim;
using whet::kPieces;
using whet::kPiecesPerLane;
using whet::kVectorStores;

typedef whet::Source Source;
typedef Source::Stored Stored;

constexpr int kThreads = TUNE_THREADS;
constexpr int kRows = kThreads / 4;  // of a tile
constexpr Int64 kSeq = SHAPE_SEQ;
constexpr Int64 kHeads = static_cast<Int64>(SHAPE_BATCH) * SHAPE_HEADS;
constexpr Int64 kTiles = (kSeq + kRows - 1) / kRows;
constexpr int kChunkRows = 256;  // as mean_rows.h has it
constexpr Int64 kChunks = SHAPE_STATISTICS_CHUNKS;
constexpr bool kStatistics = SHAPE_STATISTICS != 0;
constexpr bool kRotatedLargest = SHAPE_ROTATE && SHAPE_SCALE_ROWS == 0;
constexpr bool kSums = SHAPE_CENTER == 1;
constexpr bool kBounds = SHAPE_SCALE_ROWS == 0 && !SHAPE_ROTATE;
constexpr bool kChannels = kSums || kBounds;  // there is a first phase

// Slots of a round, and how many rounds a phase follows the one before: as many items as run at a time lie between them.
constexpr Int64 kStatisticsItems = kChannels ? kChunks : 0;
constexpr Int64 kLargestItems = kRotatedLargest ? kTiles : 0;
constexpr Int64 kRoundItems = kStatisticsItems + kLargestItems + kTiles;
constexpr Int64 kRunning = 1280;
constexpr Int64 kLag = kRunning / (kRoundItems > 0 ? kRoundItems : 1) + 1;
constexpr Int64 kRounds = kHeads + kLag * ((kStatisticsItems > 0) + (kLargestItems > 0));

// Words of the workspace.
constexpr int kClaimed = 0, kFinished = 1, kTensorLargest = 2, kTensorDone = 3;
constexpr int kHeadWords = 8;       // where the heads' words begin, four each:
constexpr int kStatisticsDone = 0;  // chunks whose sums and bounds are in the workspace
constexpr int kReady = 1;        // 1 when the mean, and the largest magnitude by bounds, are known
constexpr int kLargest = 2;      // bits of the largest magnitude
constexpr int kLargestDone = 3;  // tiles that are in it
constexpr Int64 kPartials = kHeadWords + 4 * kHeads;
constexpr Int64 kPartialWords = 3 * kDim;  // of a chunk: sums, least, largest

constexpr int kTilePitch =
    kRows + 4;  // of a transposed tile, in bytes: spreads a wave's bytes over the banks
static_assert(1536 + kThreads * 32 <= LAUNCH_SHARED_BYTES &&
                  (!SHAPE_TRANSPOSE || 1536 + kDim * kTilePitch <= LAUNCH_SHARED_BYTES),
              "shared_bytes of gpu.json is too small");
static_assert(SHAPE_SCALE_ROWS <= kRows, "a tile must hold the rows that share a scale");

struct Arguments {
  const Stored* x;
  const float* mean_in;
  unsigned char* y;
  float* scale;
  float* mean;
  float* lse_shift;
  int* workspace;
  float multiplier;
  float logit_scale;
};

// Shared memory: what all threads look at, then room for a tile or for partial sums.
struct Shared {
  float* channel;  // kDim: the head's mean, or the mean for lse_shift
  float* part;     // one for each 32 threads
  int* word;       // two: claimed items, in turn
  float* partial;  // kThreads * 8
  unsigned char* tile;
};

WHET_DEVICE int thread() { return static_cast<int>(whet::thread_index()); }

WHET_DEVICE int* head_word(const Arguments& a, Int64 head, int word) {
  return a.workspace + kHeadWords + 4 * head + word;
}

WHET_DEVICE const Stored* head_rows(const Arguments& a, Int64 head) {
  return a.x + head / SHAPE_HEADS * SHAPE_X_STRIDE_B + head % SHAPE_HEADS * SHAPE_X_STRIDE_H;
}

// The largest over groups of kGroup threads, the same in all of them. All threads take part.
template <int kGroup>
WHET_DEVICE float group_max(float x, float* part) {
  x = whet::max_float(x, whet::shuffle_xor<1>(x));
  x = whet::max_float(x, whet::shuffle_xor<2>(x));
  x = whet::max_float(x, whet::shuffle_xor<4>(x));
  x = whet::max_float(x, whet::shuffle_xor<8>(x));
  x = whet::max_float(x, whet::shuffle_xor<16>(x));
  whet::barrier();  // the readers of the one before are done
  if (thread() % 32 == 0) part[thread() / 32] = x;
  whet::barrier();
  const int first = thread() / kGroup * (kGroup / 32);
  x = part[first];
  for (int i = 1; i < kGroup / 32; ++i) x = whet::max_float(x, part[first + i]);
  return x;
}

}  // namespace
