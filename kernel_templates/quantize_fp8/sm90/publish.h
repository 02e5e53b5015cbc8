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
    if (!kSums || __shfl_sync(0xffffffffu, done, 0) != kChunks - 1) return;
    whet::publish();
    __syncwarp();
    finish(head);
  }

  // What others wait for goes out first, then zeros are put back.
  __device__ __forceinline__ void finish(int head) {
    float* const sums = reinterpret_cast<float*>(head_partials(a_, head));
    float* const scratch = block_.scratch();
    bool finite = true;
    for (int d = 4 * lane_; d < kDim; d += 128) {
      double sum[4] = {0.0, 0.0, 0.0, 0.0};
#pragma unroll 16
      for (int c = 0; c < kChunks; ++c) {
        const float4 part = __ldcg(reinterpret_cast<const float4*>(sums + c * kDim + d));
        sum[0] += static_cast<double>(part.x);
        sum[1] += static_cast<double>(part.y);
        sum[2] += static_cast<double>(part.z);
        sum[3] += static_cast<double>(part.w);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float mean = static_cast<float>(sum[i] / static_cast<double>(kSeq));
        finite = finite && fabsf(mean) < float_from_bits(0x7f800000u);
        a_.mean[head * static_cast<Int64>(kDim) + d + i] = mean;
        scratch[d + i] = -mean;
      }
    }
    finite = __all_sync(0xffffffffu, finite);
    __syncwarp();
    if (SHAPE_ROTATE) rotate_blocks(scratch, lane_);
    int* const pairs = head_partials(a_, head) + kChannelWords;
    for (int d = lane_; d < kDim; d += 32) store_pair(pairs + 2 * d, float_bits(scratch[d]), 1u);
    if (kBounds) finish_bounds(head, finite);
    for (int i = 4 * lane_; i < kChunks * kDim; i += 128) {
      *reinterpret_cast<float4*>(sums + i) = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    __syncwarp();
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
