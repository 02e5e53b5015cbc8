// Statistics of 256 rows, over two tiles: each channel's sum, its bounds, or the largest magnitude of all.
//
// Sums are products with ones on the tensor cores; each warp has other channels, so that nothing is left to combine. Bounds are of
// rotated but not yet centred elements: the largest centred magnitude follows from them once the mean is known.
#pragma once

#include "quantize_fp8/gpu/sync.h"
#include "quantize_fp8/sm90/open.h"

namespace whet {
namespace quantize {

// Unsigned words in the order of floats, all above 0.
WHET_DEVICE Uint32 ordered(float x) {
  const Uint32 bits = float_bits(x);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
WHET_DEVICE float from_ordered(Uint32 word) {
  return float_from_bits(word >> 31 ? word & 0x7fffffffu : ~word);
}

WHET_DEVICE void load_transposed(Uint32 (&to)[4], Uint32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

WHET_DEVICE float warp_max(float x) {
  x = max_float(x, shuffle_xor<1>(x));
  x = max_float(x, shuffle_xor<2>(x));
  x = max_float(x, shuffle_xor<4>(x));
  x = max_float(x, shuffle_xor<8>(x));
  return max_float(x, shuffle_xor<16>(x));
}

class Statistics {
 public:
  __device__ __forceinline__ Statistics() {
    if (kSums) {
#pragma unroll
      for (int i = 0; i < kSumTiles * 4; ++i) sum_[i / 4][i % 4] = 0.0f;
    }
    if (kBounds) {
#pragma unroll
      for (int i = 0; i < 2 * kBlocks; ++i) least_[i / 2][i % 2] = most_[i / 2][i % 2] = nan();
    }
    largest_ = 0.0f;
    infinite_ = false;
  }

  __device__ __forceinline__ void add(const unsigned char* tile, int index, const float* channels) {
    if (kSums) add_sums(tile);
    if (kBounds) add_bounds(tile, index);
    if (kLargest) add_largest(tile, index, channels);
  }

  // Joins the chunk's sums and bounds to the head's. Warps meet in shared memory, in turn in one of two places.
  __device__ __forceinline__ void put(const Arguments& a, const Block& block, int turn, int head) {
    const int lane = static_cast<int>(thread_index()) % 32,
              warp = static_cast<int>(thread_index()) / 32;
    if (kSums && lane < 4) {
#pragma unroll
      for (int i = 0; i < kSumTiles; ++i) {
        float* const to = block.sums(turn) + 8 * (warp * kSumTiles + i) + 2 * lane;
        to[0] = sum_[i][0];
        to[1] = sum_[i][1];
      }
    }
    if (kBounds) meet_bounds(block.bounds(turn));
    if (kSums) {
      sm90::named_wait(3, 32 * kWarps);
      add_to_head(block, turn, head_partials(a, head), head_word(a, head, kUsedBins));
    }
    if (kLargest) {
      const float most = warp_max(largest_) * kNorm;
      const bool infinite = __any_sync(0xffffffffu, infinite_);
      if (lane == 0) {
        raise_to(head_word(a, head, kLargestBits), static_cast<int>(float_bits(most)));
        if (infinite) raise_to(head_word(a, head, kInfinite), 1);
      }
    }
  }

 private:
  static constexpr int kSumTiles = kDim / 8 / kWarps;  // of eight channels
  float sum_[kSumTiles][4];
  float least_[kBlocks][2], most_[kBlocks][2];
  float largest_;
  bool infinite_;

  __device__ __forceinline__ void add_sums(const unsigned char* tile) {
    const int lane = static_cast<int>(thread_index()) % 32,
              warp = static_cast<int>(thread_index()) / 32;
    const Uint32 ones[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
#pragma unroll
    for (int i = 0; i < kSumTiles; ++i) {
#pragma unroll
      for (int rows = 0; rows < kRows; rows += 32) {
        Uint32 words[4];
        load_transposed(words, sm90::shared_address(tile + row_offset(rows + lane) +
                                                    16 * (warp * kSumTiles + i)));
        multiply_add(sum_[i], ones, words[0], words[1]);
        multiply_add(sum_[i], ones, words[2], words[3]);
      }
    }
  }

  // A warp has every other pair of channels, so that bounds fit in registers beside the rows.
  __device__ __forceinline__ void add_bounds(const unsigned char* tile, int index) {
    const int warp = static_cast<int>(thread_index()) / 32;
#pragma unroll 1
    for (int first = warp / 2 * 16; first < kRows; first += kRows / 2) {
      Rows<1> rows;
      rows.open(tile, first, warp % 2, nullptr);
      if (kSeq % kRows != 0 && index == kTiles - 1) rows.drop_rows(first, index);
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float x = rows.at(b, 0, e), y = rows.at(b, 0, 2 + e);
          x += x - x;  // an infinity becomes a NaN, and does not count
          y += y - y;
          most_[b][e] = fmaxf(most_[b][e], fmaxf(x, y));
          least_[b][e] = fminf(least_[b][e], fminf(x, y));
        }
      }
    }
  }

  static __device__ __forceinline__ void add_to_head(const Block& block, int turn, int* head,
                                                     int* used) {
    const int thread = static_cast<int>(thread_index());
    if (thread < kDim) {
      const Uint32 bits = float_bits(block.sums(turn)[thread]);
      const int exponent = static_cast<int>(bits >> 23 & 0xffu);
      const Uint32 mantissa = (bits & 0x7fffffu) | (exponent > 0 ? 0x800000u : 0u);
      const int bin = exponent >> 4;
      Int64 value = static_cast<Int64>(mantissa) << ((exponent > 0 ? exponent : 1) & 15);
      if (bits >> 31) value = -value;
      if (exponent == 255) value = kNotFinite;
      if (value != 0)
        atomicAdd(reinterpret_cast<Uint64*>(head) + bin * kDim + thread,
                  static_cast<Uint64>(value));
      const Uint32 bins = __reduce_or_sync(0xffffffffu, value != 0 ? 1u << bin : 0u);
      if (thread % 32 == 0 && bins != 0u) atomicOr(reinterpret_cast<Uint32*>(used), bins);
    }
    if (!kBounds) return;
    Uint32* const met = block.bounds(turn);
    for (int i = thread; i < 2 * kDim; i += 32 * kWarps) {
      if (met[i] != 0u) atomicMax(reinterpret_cast<Uint32*>(head + kBoundsWords) + i, met[i]);
      met[i] = 0u;
    }
  }

  // Lanes of the same channels halve what they carry at each step: a lane ends with an eighth of its channels.
  __device__ __forceinline__ void meet_bounds(Uint32* met) {
    const int lane = static_cast<int>(thread_index()) % 32,
              warp = static_cast<int>(thread_index()) / 32;
    constexpr int kWords =
        4 * kBlocks;  // channels' upper bounds, then their lower bounds' opposites
    float all[kWords];
#pragma unroll
    for (int i = 0; i < 2 * kBlocks; ++i) {
      all[i] = most_[i / 2][i % 2];
      all[2 * kBlocks + i] = -least_[i / 2][i % 2];
    }
    halve<kWords / 2, 16>(all, lane);
    halve<kWords / 4, 8>(all, lane);
    halve<kWords / 8, 4>(all, lane);
    const int first = (lane >> 4 & 1) * (kWords / 2) + (lane >> 3 & 1) * (kWords / 4) +
                      (lane >> 2 & 1) * (kWords / 8);
#pragma unroll
    for (int i = 0; i < kWords / 8; ++i) {
      const int word = first + i, of = word % (2 * kBlocks);
      const int channel = of / 2 * 16 + 4 * (lane % 4) + 2 * (warp % 2) + of % 2;
      if (all[i] == all[i]) atomicMax(met + word / (2 * kBlocks) * kDim + channel, ordered(all[i]));
    }
  }
  template <int kKept, int kMask>
  static __device__ __forceinline__ void halve(float (&all)[4 * kBlocks], int lane) {
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      const float upper = all[kKept + i], lower = all[i];
      const float other = shuffle_xor<kMask>(lane & kMask ? lower : upper);
      all[i] = fmaxf(lane & kMask ? upper : lower, other);
    }
  }

  __device__ __forceinline__ void add_largest(const unsigned char* tile, int index,
                                              const float* channels) {
    const int warp = static_cast<int>(thread_index()) / 32;
    if (!SHAPE_ROTATE && !SHAPE_CENTER) {
      add_largest_plain(tile);
      return;
    }
    Rows<2> rows;
    rows.open(tile, 16 * warp, 0, channels);
    if (SHAPE_CENTER && kSeq % kRows != 0 && index == kTiles - 1) rows.drop_rows(16 * warp, index);
    float most = rows.largest(false);
    if (infinite(most)) {
      infinite_ = true;
      most = rows.largest(true);
    }
    largest_ = max_float(largest_, most);
  }

  // Two elements at a time, as they lie in memory.
  __device__ __forceinline__ void add_largest_plain(const unsigned char* tile) {
    float most = largest_of_words(tile, false);
    if (infinite(most)) {
      infinite_ = true;
      most = largest_of_words(tile, true);
    }
    largest_ = max_float(largest_, most);
  }
  static __device__ __forceinline__ float largest_of_words(const unsigned char* tile, bool finite) {
    constexpr int kPieces = kDim / 8;
    Uint32 most = 0;
#pragma unroll
    for (int i = 0; i < kRows * kPieces; i += 32 * kWarps) {
      const int piece = i + static_cast<int>(thread_index());
      const uint4 four = *reinterpret_cast<const uint4*>(tile + row_offset(piece / kPieces) +
                                                         piece % kPieces * 16);
      const Uint32 words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        Uint32 word = words[w] & 0x7fff7fffu;
        if (finite && (word & 0xffffu) == 0x7f80u) word &= 0xffff0000u;
        if (finite && word >> 16 == 0x7f80u) word &= 0xffffu;
        asm("max.bf16x2 %0, %0, %1;" : "+r"(most) : "r"(word));
      }
    }
    return max_float(float_from_bits(most << 16), float_from_bits(most & 0xffff0000u));
  }
};

}  // namespace quantize
}  // namespace whet
