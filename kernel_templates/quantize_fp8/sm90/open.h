// Rows of a tile as f32 in registers, centred and rotated.
//
// A rotation of 2^k channels is a Hadamard transform of each 16, by the tensor cores (elements times +-1 are exact, sums are f32),
// then butterflies over the blocks of 16, in registers: a lane has the same channels of every block. The mean's transform is where
// the tensor cores' sums begin. Without rotation lanes read their channels themselves.
//
// Of block b a lane of a warp (g = lane / 4, q = lane % 4) has in part p the channels 16 b + 4 q + 2 p and the next: of row g in
// elements 0 and 1, of row g + 8 in 2 and 3. Two parts are four channels in a row.
#pragma once

#include "quantize_fp8/sm90/plan.h"

namespace whet {
namespace quantize {

// The rotation's sign of a channel (docs/fp8.md).
WHET_DEVICE constexpr bool negative(int channel) {
  return static_cast<unsigned>((channel & ~24) + 1) * 0x9e3779b1u >> 31 != 0u;
}

// What makes the rotation orthogonal.
constexpr float kNorm = !SHAPE_ROTATE ? 1.0f : (kDim == 128 ? 0.08838834764831845f : 0.125f);

WHET_DEVICE void multiply_add(float (&c)[4], const Uint32 (&a)[4], Uint32 b0, Uint32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, "
      "%9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The lane's share of a 16 x 8 matrix of +-1 (two rows k in a word): what makes part `part` of a block's transform, without the
// signs of channels.
struct Signs {
  Uint32 low, high;
  __device__ explicit Signs(int part) {
    const int lane = static_cast<int>(thread_index()) % 32;
    const int n = lane / 4, k = lane % 4 * 2;
    const int j = n / 2 * 4 + 2 * part + n % 2;
    low = word(k & j, (k + 1) & j);
    high = word((k + 8) & j, (k + 9) & j);
  }
  static __device__ Uint32 word(int first, int second) {
    return 0x3f803f80u | (static_cast<Uint32>(__popc(first)) & 1u) << 15 |
           (static_cast<Uint32>(__popc(second)) & 1u) << 31;
  }
};

// Signs of the channels that the lane's words of block `block` belong to.
WHET_DEVICE Uint32 channel_signs(int block) {
  const int lane = static_cast<int>(thread_index()) % 32;
  const int k = lane % 4 * 2;
  Uint32 mask = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    // The hash wants a constant: four candidates, of which the lane takes its own.
    if (k == 2 * i) {
      mask = (negative(block / 2 * 32 + 2 * i) ? 0x8000u : 0u) |
             (negative(block / 2 * 32 + 2 * i + 1) ? 0x80000000u : 0u);
    }
  }
  return mask;
}

WHET_DEVICE float nan() { return float_from_bits(0x7fc00000u); }
WHET_DEVICE bool infinite(float x) { return fabsf(x) == float_from_bits(0x7f800000u); }

// Without rotation elements stay as they lie in memory, two in a word, until they are asked for: that takes half the registers.
template <int kParts>
class Rows {
 public:
  // Rows first_row ... first_row + 15 of a tile, part `part` and those behind it. `channels`: what is added to each channel, for a
  // rotation already transformed block by block; or null.
  __device__ __forceinline__ void open(const unsigned char* tile, int first_row, int part,
                                       const float* channels) {
    const int lane = static_cast<int>(thread_index()) % 32;
    const int g = lane / 4, q = lane % 4;
    channels_ = channels == nullptr ? nullptr : channels + 4 * q + 2 * part;
    if constexpr (SHAPE_ROTATE != 0) {
      Uint32 low[kParts], high[kParts];
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        const Signs signs(part + p);
        low[p] = signs.low;
        high[p] = signs.high;
      }
      const Uint32 address =
          sm90::shared_address(tile + row_offset(first_row + lane % 16) + lane / 16 * 16);
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        Uint32 words[4];
        sm90::load_matrices(words, address + 32 * b);
        const Uint32 mask = channel_signs(b);
#pragma unroll
        for (int p = 0; p < kParts; ++p) {
          float(&v)[4] = value_[b][p];
          v[0] = v[2] = added(b, p, 0);
          v[1] = v[3] = added(b, p, 1);
          multiply_add(v, words, low[p] ^ mask, high[p] ^ mask);
        }
      }
      transform_blocks();
    } else {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const unsigned char* const row =
            tile + row_offset(first_row + g + 8 * r) + 8 * q + 4 * part;
#pragma unroll
        for (int b = 0; b < kBlocks; ++b) {
          if (kParts == 2) {
            const uint2 both = *reinterpret_cast<const uint2*>(row + 32 * b);
            word_[b][0][r] = both.x;
            word_[b][kParts - 1][r] = both.y;
          } else {
            word_[b][0][r] = *reinterpret_cast<const Uint32*>(row + 32 * b);
          }
        }
      }
    }
  }

  // Element e (0 ... 3) of part p of block b, as the head of this file tells.
  __device__ __forceinline__ float at(int b, int p, int e) const {
    if constexpr (SHAPE_ROTATE != 0) {
      return value_[b][p][e];
    } else {
      const Uint32 word = word_[b][p][e / 2];
      return float_from_bits(e % 2 == 0 ? word << 16 : word & 0xffff0000u) + added(b, p, e % 2);
    }
  }

  // Makes NaN of rows of the tile that lie behind the last: they must not count.
  __device__ __forceinline__ void drop_rows(int first_row, int tile) {
    const int g = static_cast<int>(thread_index()) % 32 / 4;
    const Int64 row = static_cast<Int64>(tile) * kRows + first_row + g;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (row + 8 * r < kSeq) continue;
#pragma unroll
      for (int i = 0; i < kBlocks * kParts; ++i) {
        if constexpr (SHAPE_ROTATE != 0) {
          value_[i / kParts][i % kParts][2 * r] = value_[i / kParts][i % kParts][2 * r + 1] = nan();
        } else {
          word_[i / kParts][i % kParts][r] = 0x7fc07fc0u;
        }
      }
    }
  }

  // The lane's largest magnitude. NaN loses, and so do infinities if only `finite` elements count.
  __device__ __forceinline__ float largest(bool finite) const {
    float most[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float x = at(b, p, e);
          most[e] = fmaxf(most[e], finite && infinite(x) ? 0.0f : fabsf(x));
        }
      }
    }
    return fmaxf(fmaxf(most[0], most[1]), fmaxf(most[2], most[3]));
  }

 private:
  static constexpr bool kWords = !SHAPE_ROTATE;
  float value_[kWords ? 1 : kBlocks][kParts][4];
  Uint32 word_[kWords ? kBlocks : 1][kParts][2];
  const float* channels_;

  __device__ __forceinline__ float added(int b, int p, int i) const {
    return channels_ == nullptr ? 0.0f : channels_[16 * b + 2 * p + i];
  }

  template <int kStride>
  __device__ __forceinline__ void butterflies() {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      if (b & kStride) continue;
      const int other = b + kStride < kBlocks ? b + kStride : b;  // in bounds where this is dead
#pragma unroll
      for (int i = 0; i < 4 * kParts; ++i) {
        float& x = value_[b][i / 4][i % 4];
        float& y = value_[other][i / 4][i % 4];
        const float difference = x - y;
        x += y;
        y = difference;
      }
    }
  }

  // Only for kBlocks blocks of values, that is with rotation.
  __device__ __forceinline__ void transform_blocks() {
    butterflies<1>();
    butterflies<2>();
    if (kDim == 128) butterflies<4>();
    if (kDim != 192) return;
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      const int second = kBlocks == 12 ? b + 4 : b, third = kBlocks == 12 ? b + 8 : b;  // as above
#pragma unroll
      for (int i = 0; i < 4 * kParts; ++i) {
        float& x = value_[b][i / 4][i % 4];
        float& y = value_[second][i / 4][i % 4];
        float& z = value_[third][i / 4][i % 4];
        const float part = (x + y + z) * (2.0f / 3.0f);
        x -= part;
        y -= part;
        z -= part;
      }
    }
  }
};

}  // namespace quantize
}  // namespace whet
