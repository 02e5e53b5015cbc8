// What the warp that fetches does either way: claims work, asks for rows, and tells the warps that compute what to do.
#pragma once

#include "quantize_fp8/gpu/scale.h"
#include "quantize_fp8/gpu/sync.h"
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
      scale_ = make_uint2(words.z, words.w | (words.x == static_cast<Uint32>(kCounted) ? 2u : 0u));
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

WHET_DEVICE void await_facts(const Arguments& a, int head, int lane, HeadFacts* facts) {
#ifdef WHET_BOUNDED_WAITS
  int turns = 0;
#endif
  while (!facts->valid()) {
    rest();
    facts->ask(a, head, lane);
#ifdef WHET_BOUNDED_WAITS
    if (++turns > 300000) asm volatile("trap;");
#endif
  }
}

class Loader {
 protected:
  __device__ Loader(const Arguments& a, const Block& block)
      : a_(a), block_(block), lane_(static_cast<int>(thread_index()) % 32) {
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(once_));
  }

  const Arguments& a_;
  const Block& block_;
  int lane_;
  int commands_ = 0;  // that were given
  Uint64 once_;

  __device__ __forceinline__ int claim() { return lane_ == 0 ? whet::add(a_.workspace + kClaimed, 1) : 0; }

  // Gives a command, of whose 64 arrivals copies may make the first 32.
  __device__ __forceinline__ void give(const Command& command, bool copies) {
    const int place = commands_++ % kCommands;
    if (lane_ == 0) block_.shared().command[place] = command;
    __syncwarp();
    const Uint32 full = sm90::shared_address(&block_.shared().full[place]);
    if (!copies) sm90::arrive(full);
    sm90::arrive(full);
  }
  __device__ __forceinline__ void give_stop() { give({kStop, 0, 0, 0, 0.0f, 0, {}}, false); }

  // Arrives at the next command once the lane's copies so far are there.
  __device__ __forceinline__ void arrive_with_copies() {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(
                     sm90::shared_address(&block_.shared().full[commands_ % kCommands]))
                 : "memory");
  }
  __device__ __forceinline__ bool consumed(int command) const {
    return __all_sync(0xffffffffu, completed(&block_.shared().empty[command % kCommands], command / kCommands % 2));
  }
  __device__ __forceinline__ void await_consumed(int command) const {
    await(&block_.shared().empty[command % kCommands], command / kCommands % 2);
  }

  // What making bytes of a head needs to know beside its rows.
  __device__ __forceinline__ void prepare(const HeadFacts& facts, Command* command) {
    if (kSums) facts.channels(block_.channels(command->slot), lane_);
    if (!kHeadScale) return;
    const float scale = scale_for(facts.largest() * a_.multiplier, a_.multiplier);
    command->factor = a_.multiplier / scale;
    command->clean = facts.infinities();
    if (command->tile == 0 && lane_ == 0) a_.scale[command->head] = scale / a_.multiplier;
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
