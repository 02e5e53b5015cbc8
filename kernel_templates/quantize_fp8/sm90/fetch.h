// The warp that fetches: claims items, asks for their rows, and for bytes waits until the head's statistics are known.
#pragma once

#include "quantize_fp8/gpu/scale.h"
#include "quantize_fp8/sm90/rotate.h"

namespace whet {
namespace quantize {

// Words that other blocks write, in one access each.
WHET_DEVICE uint2 seen_pair(const int* at) {
  uint2 pair;
  asm volatile("ld.volatile.global.v2.u32 {%0, %1}, [%2];"
               : "=r"(pair.x), "=r"(pair.y)
               : "l"(at)
               : "memory");
  return pair;
}
WHET_DEVICE uint4 seen_four(const int* at) {
  uint4 four;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(four.x), "=r"(four.y), "=r"(four.z), "=r"(four.w)
               : "l"(at)
               : "memory");
  return four;
}

// What is known of a head. Values and the marks that they are valid come in the same access, so that nothing else orders them; what
// is not valid yet is asked for again.
class HeadFacts {
 public:
  __device__ __forceinline__ void ask(const Arguments& a, int head, int lane) {
    if (kSums) {
      const int* const pairs = head_partials(a, head) + kChannelWords;
#pragma unroll
      for (int i = 0; i < kPairs; ++i) pair_[i] = seen_pair(pairs + 2 * (lane + 32 * i));
      if (kHeadScale) scale_ = seen_pair(head_word(a, head, kLargestBits));
    } else {
      const uint4 words = seen_four(head_word(a, head, 0));
      scale_ = make_uint2(words.z,
                          words.w | (words.x == static_cast<Uint32>(kStatisticsItems) ? 2u : 0u));
    }
  }
  __device__ __forceinline__ bool valid() const {
    bool all = true;
    if (kSums) {
#pragma unroll
      for (int i = 0; i < kPairs; ++i) all = all && pair_[i].y != 0u;
    }
    if (kHeadScale) all = all && (scale_.y & 2u) != 0u;
    return __all_sync(0xffffffffu, all);
  }
  __device__ __forceinline__ void channels(float* to, int lane) const {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) to[lane + 32 * i] = float_from_bits(pair_[i].x);
  }
  __device__ __forceinline__ float largest() const { return float_from_bits(scale_.x); }
  __device__ __forceinline__ int infinities() const { return static_cast<int>(scale_.y & 1u); }

 private:
  static constexpr int kPairs = kSums ? kDim / 32 : 1;
  uint2 pair_[kPairs];
  uint2 scale_;
};

class Fetcher {
 public:
  __device__ Fetcher(const Arguments& a, const Block& block)
      : a_(a), block_(block), lane_(static_cast<int>(thread_index()) % 32) {
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(once_));
  }

  __device__ __forceinline__ void run() {
    const int blocks = static_cast<int>(block_count());
    int index =
        kStatistics ? __shfl_sync(0xffffffffu, claim(), 0) : static_cast<int>(block_index());
    int next = kStatistics ? claim() : index + blocks;
    while (index < kItems) {
      const int later = kStatistics ? claim() : next + blocks;  // long before it is needed
      const Item item = item_at(index);
      if (!item.statistics) {
        fetch(item.head, item.part, kBytes);
      } else if (kSampled) {
        fetch(item.head, item.part, kStatisticsLast);
      } else {
        const int last = item.part * 2 + 1 < kTiles ? item.part * 2 + 1 : kTiles - 1;
#pragma unroll 1
        for (int tile = item.part * 2; tile <= last; ++tile) {
          fetch(item.head, tile, tile == last ? kStatisticsLast : kStatisticsMore);
        }
      }
      index = kStatistics ? __shfl_sync(0xffffffffu, next, 0) : next;
      next = later;
    }
    while (told_ < steps_) tell(true);
    const int slot = await_slot();
    if (lane_ == 0) block_.shared().command[slot].kind = kStop;
    __syncwarp();
    arrive_full(slot);
    arrive_full(slot);
  }

 private:
  const Arguments& a_;
  const Block& block_;
  int lane_;
  int steps_ = 0;  // tiles that were asked for
  int told_ = 0;   // of these, tiles that the others were told of
  Uint64 once_;

  __device__ __forceinline__ int claim() {
    return lane_ == 0 ? whet::add(a_.workspace + kClaimed, 1) : 0;
  }
  __device__ __forceinline__ void arrive_full(int slot) {
    sm90::arrive(sm90::shared_address(&block_.shared().full[slot]));
  }
  __device__ __forceinline__ int await_slot() {
    const int slot = steps_ % kSlots;
    if (steps_ >= kSlots) await(&block_.shared().empty[slot], (steps_ / kSlots - 1) % 2);
    return slot;
  }

  // Where rows are read twice, those of the second reading leave the L2 cache first. Where they are read once the hint only costs.
  static constexpr bool kHinted = kStatistics && !kSampled;

  // Asks for a tile. What the others do with it they are told once it is known: a tile's bytes wait for its head's statistics, while
  // rows of the tiles behind it are on their way to the slots that are free. A tile that waits depends on items that were claimed
  // before it, and so does what waits for its turn behind it.
  __device__ __forceinline__ void fetch(int head, int tile, Kind kind) {
    if (told_ + kSlots == steps_) tell(true);
    HeadFacts facts;
    const bool first_untold = told_ == steps_;
    if (kStatistics && kind == kBytes && first_untold) {
      facts.ask(a_, head, lane_);  // the answer is on its way while rows are asked for
    }
    const int slot = await_slot();
    if (kSampled && kind == kStatisticsLast) {
      load_sample(head, tile, slot);
    } else {
      load(head, tile, slot, kHinted && kind == kBytes);
    }
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(
                     sm90::shared_address(&block_.shared().full[slot]))
                 : "memory");
    ++steps_;
    const Command command = {kind, head, tile, 0, 0.0f, {}};
    if (first_untold && (!kStatistics || kind != kBytes || facts.valid())) {
      deliver(command, facts);
      return;
    }
    if (lane_ == 0) block_.shared().command[slot] = command;
    __syncwarp();
    while (told_ < steps_ && tell(false)) {
    }
  }

  // Tells of the oldest tile that the others were not told of: if it can be done now, or in any case.
  __device__ __forceinline__ bool tell(bool wait) {
    const Command command = block_.shared().command[told_ % kSlots];
    HeadFacts facts;
    if (kStatistics && command.kind == kBytes) {
      facts.ask(a_, command.head, lane_);
      if (!facts.valid()) {
        if (!wait) return false;
        await_facts(command.head, &facts);
      }
    }
    deliver(command, facts);
    return true;
  }

  __device__ __forceinline__ void deliver(Command command, const HeadFacts& facts) {
    const int slot = told_ % kSlots;
    if (kStatistics && command.kind == kBytes) {
      if (kSums) facts.channels(block_.channels(slot), lane_);
      if (kHeadScale) {
        const float scale = scale_for(facts.largest() * a_.multiplier, a_.multiplier);
        command.factor = a_.multiplier / scale;
        command.clean = facts.infinities();
        if (command.tile == 0 && lane_ == 0) a_.scale[command.head] = scale / a_.multiplier;
      }
    }
    if (SHAPE_CENTER == 2) load_channels(command.head, slot);
    if (lane_ == 0) block_.shared().command[slot] = command;
    __syncwarp();
    arrive_full(slot);
    ++told_;
  }

  __device__ __forceinline__ void await_facts(int head, HeadFacts* facts) {
#ifdef WHET_BOUNDED_WAITS
    int turns = 0;
#endif
    while (!facts->valid()) {
      rest();
      facts->ask(a_, head, lane_);
#ifdef WHET_BOUNDED_WAITS
      if (++turns > 300000) asm volatile("trap;");
#endif
    }
  }

  __device__ __forceinline__ void load(int head, int tile, int slot, bool last_use) {
    constexpr int kPieces = kDim / 8;  // of a row, 16 bytes each
    constexpr int kPeriod =
        kPieces == 24 ? 3 : 1;  // copies after which a lane is back at its column
    constexpr int kPeriodRows = 32 * kPeriod / kPieces;
    const Int64 first = static_cast<Int64>(tile) * kRows;
    const Stored* const x = head_rows(a_, head) + first * static_cast<Int64>(SHAPE_X_STRIDE_S);
    const Uint32 to = sm90::shared_address(block_.tile(slot));
    const int rows = kSeq - first < kRows ? static_cast<int>(kSeq - first) : kRows;
#pragma unroll
    for (int p = 0; p < kPeriod; ++p) {
      const int piece = 32 * p + lane_;
      const int row = piece / kPieces, column = piece % kPieces;
      const Stored* from = x + row * static_cast<Int64>(SHAPE_X_STRIDE_S) + 8 * column;
#pragma unroll
      for (int r = 0; r < kRows; r += kPeriodRows) {
        const int bytes =
            kSeq % kRows == 0 || row + r < rows ? 16 : 0;  // the rest arrives as zeros
        const Stored* const at = bytes ? from + r * static_cast<Int64>(SHAPE_X_STRIDE_S) : a_.x;
        const Uint32 place = to + static_cast<Uint32>(row_offset(r) + row * kPitch + 16 * column);
        if (last_use) {
          asm volatile(
              "cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(place),
              "l"(at), "r"(bytes), "l"(once_)
              : "memory");
        } else {
          asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(at),
                       "r"(bytes)
                       : "memory");
        }
      }
    }
  }

  // The rows of eight chunks that count for a mean, as one tile.
  __device__ __forceinline__ void load_sample(int head, int part, int slot) {
    constexpr int kPieces = kDim / 8, kPeriod = kPieces == 24 ? 3 : 1;
    constexpr int kPeriodRows = 32 * kPeriod / kPieces;
    const Stored* const x = head_rows(a_, head);
    const Uint32 to = sm90::shared_address(block_.tile(slot));
#pragma unroll 1
    for (int run = 0; run < kTileRuns; ++run) {
      const Int64 chunk = static_cast<Int64>(part) * kTileRuns + run;
      const Int64 first = first_mean_row(chunk, kSeq);
      const int rows =
          chunk < kChunks && first < kSeq
              ? (kSeq - first < kMeanRunRows ? static_cast<int>(kSeq - first) : kMeanRunRows)
              : 0;
#pragma unroll
      for (int p = 0; p < kPeriod; ++p) {
        const int piece = 32 * p + lane_;
        const int row = piece / kPieces, column = piece % kPieces;
#pragma unroll
        for (int r = 0; r < kMeanRunRows; r += kPeriodRows) {
          const int bytes = row + r < rows ? 16 : 0;
          const Stored* const at =
              bytes ? x + (first + row + r) * static_cast<Int64>(SHAPE_X_STRIDE_S) + 8 * column
                    : a_.x;
          const Uint32 place = to + static_cast<Uint32>(row_offset(kMeanRunRows * run) +
                                                        (row + r) * kPitch + 16 * column);
          asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(at),
                       "r"(bytes)
                       : "memory");
        }
      }
    }
  }

  __device__ __forceinline__ void load_channels(int head, int slot) {
    float* const to = block_.channels(slot);
    for (int d = lane_; d < kDim; d += 32)
      to[d] = -__ldcg(a_.mean_in + head * static_cast<Int64>(kDim) + d);
    __syncwarp();
    if (SHAPE_ROTATE) rotate_blocks(to, lane_);
  }
};

}  // namespace quantize
}  // namespace whet
