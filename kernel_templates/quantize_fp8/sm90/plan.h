// What quantising on Hopper is made of: shapes, the order of work, and what lies in shared memory.
//
// Blocks claim items in order: the statistics of 256 rows of a head, or the bytes of a tile of 128 rows. A head's bytes come kLag
// heads after its statistics (all heads' statistics come first where these are of some rows only, 16 of every 256): late enough for these to be there, early enough for its rows to be still in the L2 cache. A waiting
// item depends on items that were claimed before it, so a launch ends however few of its blocks run at a time.
#pragma once

#include "common/gpu.h"
#include "common/sm90.h"
#include "quantize_fp8/gpu/mean_rows.h"

namespace whet {
namespace quantize {

typedef sm90::Uint32 Uint32;
typedef sm90::Uint64 Uint64;
typedef unsigned short Stored;

constexpr int kDim = SHAPE_DIM;
constexpr int kBlocks = kDim / 16;  // of channels
constexpr int kRows = 128;          // of a tile
constexpr int kWarps = 8;           // that compute, 16 rows each; two more fetch and publish
constexpr int kSlots = TUNE_SLOTS;
constexpr Int64 kSeq = SHAPE_SEQ;
constexpr Int64 kHeads = static_cast<Int64>(SHAPE_BATCH) * SHAPE_HEADS;
constexpr int kTiles = static_cast<int>((kSeq + kRows - 1) / kRows);
constexpr int kChunks = SHAPE_STATISTICS_CHUNKS;  // of 256 rows

constexpr bool kStatistics = SHAPE_STATISTICS != 0;
constexpr bool kSampled = SHAPE_SAMPLED_MEAN != 0;
static_assert(kRows % kMeanRunRows == 0, "a tile of a sample holds whole runs");
constexpr int kTileRuns = kRows / kMeanRunRows;
constexpr int kStatisticsItems =
    kSampled ? (kChunks + kTileRuns - 1) / kTileRuns : kChunks;  // of a head
constexpr bool kSums = SHAPE_CENTER == 1;
constexpr bool kHeadScale = SHAPE_SCALE_ROWS == 0;
constexpr bool kBounds =
    kSums && kHeadScale;  // of channels: what the largest centred magnitude is made of
static_assert(!(kSampled && kHeadScale), "a head's largest element is among all rows");
constexpr bool kLargest = kHeadScale && !kSums;

constexpr Int64 kHeadBytes = kSeq * kDim * 2;
constexpr Int64 kWantedLag =
    (static_cast<Int64>(TUNE_LAG_MIB) * 1048576 + kHeadBytes - 1) / kHeadBytes;
constexpr Int64 kLag = !kSampled && kWantedLag < kHeads ? kWantedLag : kHeads;
constexpr Int64 kFirstItems = kStatistics ? kLag * kStatisticsItems : 0;
constexpr Int64 kRoundItems = kStatistics ? kChunks + kTiles : kTiles;
constexpr Int64 kRoundsItems = kStatistics ? (kHeads - kLag) * kRoundItems : 0;
constexpr Int64 kItems =
    kFirstItems + kRoundsItems + (kStatistics ? kLag : kHeads) * static_cast<Int64>(kTiles);
static_assert(kItems < 2147000000, "items are counted in an int");

struct Item {
  bool statistics;
  int head;
  int part;  // chunk, or tile of a sample; of bytes a tile
};

// Item `index` of the order: first kLag heads of statistics, then rounds of one head's statistics and another's bytes, two tiles
// for each chunk, then the bytes that are left.
WHET_DEVICE Item item_at(int index) {
  if (kStatistics) {
    if (index < kFirstItems) return {true, index / kStatisticsItems, index % kStatisticsItems};
    index -= static_cast<int>(kFirstItems);
    if (index < kRoundsItems) {
      const int round = index / static_cast<int>(kRoundItems);
      const int place = index % static_cast<int>(kRoundItems);
      if (place % 3 == 0) return {true, round + static_cast<int>(kLag), place / 3};
      return {false, round, place - place / 3 - 1};
    }
    index -= static_cast<int>(kRoundsItems);
    return {false, static_cast<int>(kHeads - kLag) + index / kTiles, index % kTiles};
  }
  return {false, index / kTiles, index % kTiles};
}

// Words of the workspace: counters, four words of each head, and what a head's statistics are made of.
constexpr int kClaimed = 0, kFinished = 1, kHeadWords = 8;
constexpr int kDone = 0;         // items whose statistics are there
constexpr int kLargestBits = 2;  // of the largest magnitude
constexpr int kInfinite =
    3;  // 1 when there may be infinities to make NaN of; with sums 2 more once this pair is valid
constexpr int kUsedBins = 1;
constexpr Int64 kPartials = kHeadWords + 4 * kHeads;
// Of each head: sums of channels, bounds of channels, then pairs: what is added to a channel, and 1.
//
// A sum is exact, so that the order in which blocks add to it does not matter: a float is a whole number of 24 bits, shifted by its
// exponent. Exponents of 16 k ... 16 k + 15 go to bin k, of 64 bits for each channel.
constexpr int kBins = 16;
constexpr Int64 kNotFinite = 1LL << 50;  // what an infinity or a NaN adds: more than all others
constexpr int kBoundsWords = 2 * kBins * kDim;
constexpr int kChannelWords = kBoundsWords + 2 * kDim;
constexpr int kChunkWords = 3 * (kChunks + 1);
constexpr Int64 kHeadPartials = static_cast<Int64>(kDim) * (kChunkWords > 36 ? kChunkWords : 36);
static_assert(kChannelWords + 2 * kDim <= kHeadPartials &&
                  (!kStatistics || kPartials + kHeads * kHeadPartials == SHAPE_WORKSPACE_WORDS),
              "workspace_words of quantize_fp8.json does not fit");

struct Arguments {
  const Stored* x;
  const float* mean_in;
  unsigned char* y;
  float* scale;
  float* mean;
  int* workspace;
  float multiplier;
};

WHET_DEVICE int* head_word(const Arguments& a, int head, int word) {
  return a.workspace + kHeadWords + 4 * head + word;
}
WHET_DEVICE int* head_partials(const Arguments& a, int head) {
  return a.workspace + kPartials + head * kHeadPartials;
}
WHET_DEVICE const Stored* head_rows(const Arguments& a, int head) {
  return a.x + head / SHAPE_HEADS * static_cast<Int64>(SHAPE_X_STRIDE_B) +
         head % SHAPE_HEADS * static_cast<Int64>(SHAPE_X_STRIDE_H);
}
WHET_DEVICE unsigned char* head_bytes(const Arguments& a, int head) {
  return a.y + head / SHAPE_HEADS * static_cast<Int64>(SHAPE_Y_STRIDE_B) +
         head % SHAPE_HEADS * static_cast<Int64>(SHAPE_Y_STRIDE_H);
}

// What the fetching warp tells the others about the rows in a slot.
enum Kind : int { kStop, kStatisticsMore, kStatisticsLast, kBytes };
struct Command {
  int kind;
  int head;
  int tile;
  int clean;  // make NaN of infinities
  float
      factor;  // kBytes with one scale for a head: from an element, but for the rotation's norm, to what is rounded
  int pad[3];
};

// Rows lie 16 bytes further apart than they are long, and 32 more after every 16 rows: so that neither eight rows in a row nor every
// sixteenth meet in a bank.
constexpr int kPitch = 2 * kDim + 16;
constexpr int kGroupPitch = 16 * kPitch + 32;
constexpr int kSlotBytes = kRows / 16 * kGroupPitch;
WHET_DEVICE constexpr int row_offset(int row) { return row / 16 * kGroupPitch + row % 16 * kPitch; }

struct Shared {
  Uint64 full[kSlots];
  Uint64 empty[kSlots];
  Command command[kSlots];
  float part[2][kWarps];
};
constexpr int kChannelsAt =
    1024;  // kSlots vectors of what is added to channels, one to work in, then bounds and sums twice
constexpr int kBoundsAt = kChannelsAt + (kSlots + 1) * kDim * 4;
constexpr int kSumsAt = kBoundsAt + 4 * kDim * 4;
constexpr int kTilesAt = kSumsAt + 2 * kDim * 4;
static_assert(sizeof(Shared) <= kChannelsAt, "Shared has outgrown its room");
static_assert(kTilesAt + kSlots * kSlotBytes <= LAUNCH_SHARED_BYTES,
              "shared_bytes of sm90.json is too small");
static_assert(LAUNCH_BLOCK_X == 32 * (kWarps + 2),
              "eight warps compute, one fetches, one publishes");

struct Block {
  unsigned char* memory;
  __device__ Shared& shared() const { return *reinterpret_cast<Shared*>(memory); }
  __device__ float* channels(int slot) const {
    return reinterpret_cast<float*>(memory + kChannelsAt) + slot * kDim;
  }
  __device__ float* scratch() const { return channels(kSlots); }
  __device__ Uint32* bounds(int which) const {
    return reinterpret_cast<Uint32*>(memory + kBoundsAt) + which * 2 * kDim;
  }
  __device__ float* sums(int which) const {
    return reinterpret_cast<float*>(memory + kSumsAt) + which * kDim;
  }
  __device__ unsigned char* tile(int slot) const { return memory + kTilesAt + slot * kSlotBytes; }
};

// Whether a phase of a barrier is complete; may wait a little for it.
WHET_DEVICE bool completed(Uint64* barrier, int parity) {
  int done;
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.b32 %0, 1, 0, done;\n"
      "}"
      : "=r"(done)
      : "r"(sm90::shared_address(barrier)), "r"(parity)
      : "memory");
  return done != 0;
}

// Waits for a phase of a barrier. With WHET_BOUNDED_WAITS a launch that would hang is ended.
WHET_DEVICE void await(Uint64* barrier, int parity) {
#ifdef WHET_BOUNDED_WAITS
#pragma unroll 1
  for (int i = 0; i < 200000; ++i) {
    if (completed(barrier, parity)) return;
  }
  asm volatile("trap;");
#else
  sm90::wait(sm90::shared_address(barrier), static_cast<Uint32>(parity));
#endif
}

// The tiles of a block, one after the other, as a warp that computes sees them.
class Steps {
 public:
  __device__ __forceinline__ explicit Steps(const Block& block) : block_(block) {}
  __device__ __forceinline__ Command next() {
    ++step_;
    await(&block_.shared().full[slot()], step_ / kSlots % 2);
    return block_.shared().command[slot()];
  }
  __device__ __forceinline__ unsigned char* tile() const { return block_.tile(slot()); }
  __device__ __forceinline__ const float* channels() const { return block_.channels(slot()); }
  // The warp is done with the tile.
  __device__ __forceinline__ void release() {
    __syncwarp();
    if (thread_index() % 32 == 0)
      sm90::arrive(sm90::shared_address(&block_.shared().empty[slot()]));
  }

 private:
  const Block& block_;
  int step_ = -1;

  __device__ __forceinline__ int slot() const { return step_ % kSlots; }
};

}  // namespace quantize
}  // namespace whet
