// The warp that publishes: counts the chunks that its block has taken the statistics of, and makes a head's mean and largest
// magnitude of them when it counts the last.
#pragma once

#include "quantize_fp8/sm90/rotate.h"
#include "quantize_fp8/sm90/statistics.h"

namespace whet {
namespace quantize {

class Publisher {
 public:
  __device__ Publisher(const Arguments& a, const Block& block)
      : a_(a), block_(block), lane_(static_cast<int>(thread_index()) % 32) {}

  __device__ __forceinline__ void run() {
#pragma unroll 1
    for (int step = 0;; ++step) {
      Shared& shared = block_.shared();
      const int slot = step % kSlots, parity = step / kSlots % 2;
      await(&shared.full[slot], parity);
      const int kind = shared.command[slot].kind, head = shared.command[slot].head;
      __syncwarp();
      if (kind == kStop) break;
      // Once it has read the command, the slot may go.
      if (lane_ == 0) sm90::arrive(sm90::shared_address(&shared.empty[slot]));
      if (kind != kStatisticsLast) continue;
      await(&shared.empty[slot], parity);
      count(head);
    }
    leave();
  }

 private:
  const Arguments& a_;
  const Block& block_;
  int lane_;

  __device__ __forceinline__ void count(int head) {
    int done = 0;
    if (lane_ == 0) {
      whet::publish();
      done = whet::add(head_word(a_, head, kDone), 1);
    }
    if (!kSums || __shfl_sync(0xffffffffu, done, 0) != kStatisticsItems - 1) return;
    whet::publish();
    __syncwarp();
    finish(head);
  }

  // What others wait for goes out first, then zeros are put back.
  __device__ __forceinline__ void finish(int head) {
    Int64* const bins = reinterpret_cast<Int64*>(head_partials(a_, head));
    float* const scratch = block_.scratch();
    bool finite = true;
    Uint32 used = static_cast<Uint32>(__ldcg(head_word(a_, head, kUsedBins)));
    for (int d = lane_; d < kDim; d += 32) scratch[d] = 0.0f;
    double sum[kDim / 32];
#pragma unroll
    for (int i = 0; i < kDim / 32; ++i) sum[i] = 0.0;
#pragma unroll 1
    while (used != 0u) {
      // Two bins at a time: most channels need no more.
      const int bin = __ffs(static_cast<int>(used)) - 1;
      used &= used - 1u;
      const int other = used != 0u ? __ffs(static_cast<int>(used)) - 1 : bin;
      Int64 value[2][kDim / 32];
#pragma unroll
      for (int i = 0; i < kDim / 32; ++i) {
        value[0][i] = __ldcg(bins + bin * kDim + 32 * i + lane_);
        value[1][i] = __ldcg(bins + other * kDim + 32 * i + lane_);
      }
#pragma unroll
      for (int i = 0; i < kDim / 32; ++i) {
        finite = finite && value[0][i] < kNotFinite / 2 && value[1][i] < kNotFinite / 2;
        if (value[0][i] >= kNotFinite / 2 || value[1][i] >= kNotFinite / 2)
          sum[i] = __longlong_as_double(0x7ff8000000000000LL);
        sum[i] += static_cast<double>(value[0][i]) * weight(bin);
        if (other != bin) sum[i] += static_cast<double>(value[1][i]) * weight(other);
        bins[bin * kDim + 32 * i + lane_] = 0;
        bins[other * kDim + 32 * i + lane_] = 0;
      }
      used &= used - 1u;
    }
#pragma unroll
    for (int i = 0; i < kDim / 32; ++i) {
      float mean = static_cast<float>(sum[i] / static_cast<double>(mean_rows(kSeq)));
      if (!(fabsf(mean) < float_from_bits(0x7f800000u))) mean = 0.0f;
      a_.mean[head * static_cast<Int64>(kDim) + 32 * i + lane_] = mean;
      scratch[32 * i + lane_] = -mean;
    }
    finite = __all_sync(0xffffffffu, finite);
    __syncwarp();
    if (SHAPE_ROTATE) rotate_blocks(scratch, lane_);
    int* const pairs = head_partials(a_, head) + kChannelWords;
    for (int d = lane_; d < kDim; d += 32) store_pair(pairs + 2 * d, float_bits(scratch[d]), 1u);
    if (kBounds) finish_bounds(head, finite);
  }

  // Of one in a bin: 2^(16 bin - 150), made of bits.
  static __device__ __forceinline__ double weight(int bin) {
    return __longlong_as_double(static_cast<Int64>(16 * bin - 150 + 1023) << 52);
  }

  __device__ __forceinline__ void finish_bounds(int head, bool finite) {
    float* const centre = block_.scratch();
    __syncwarp();
    if (SHAPE_ROTATE) rotate_over_blocks(centre, lane_);
    Uint32* const most = reinterpret_cast<Uint32*>(head_partials(a_, head) + kBoundsWords);
    float largest = 0.0f;
    for (int d = lane_; d < kDim; d += 32) {
      const Uint32 above = __ldcg(most + d), below = __ldcg(most + kDim + d);
      most[d] = most[kDim + d] = 0u;
      if (above == 0u || below == 0u) continue;
      const float either = fmaxf(from_ordered(above) + centre[d], from_ordered(below) - centre[d]);
      if (either < float_from_bits(0x7f800000u)) largest = fmaxf(largest, either);
    }
    largest = warp_max(largest) * kNorm;
    if (lane_ == 0)
      store_pair(head_word(a_, head, kLargestBits), float_bits(largest), finite ? 2u : 3u);
  }

  static __device__ __forceinline__ void store_pair(int* to, Uint32 value, Uint32 mark) {
    asm volatile("st.volatile.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(value), "r"(mark)
                 : "memory");
  }

  // The last block to leave puts zeros back: nobody reads any more.
  __device__ __forceinline__ void leave() {
    int before = 0;
    if (lane_ == 0) {
      whet::publish();
      before = whet::add(a_.workspace + kFinished, 1);
    }
    if (__shfl_sync(0xffffffffu, before, 0) != static_cast<int>(block_count()) - 1) return;
    for (Int64 i = lane_; i < kPartials; i += 32) a_.workspace[i] = 0;
    if (!kSums) return;
    for (int head = 0; head < kHeads; ++head) {
      for (int i = 2 * lane_; i < 2 * kDim; i += 64)
        store_pair(head_partials(a_, head) + kChannelWords + i, 0u, 0u);
    }
  }
};

}  // namespace quantize
}  // namespace whet
