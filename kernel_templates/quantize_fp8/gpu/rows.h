// A tile of rows in registers: four neighbouring lanes share a row, each has every fourth piece of eight channels.
//
// Channel 32 * i + 8 * lane + e of a row is value[i][e] of its lane. So loads and stores of a wave are whole sectors, and a
// Hadamard stage is in registers but for two, which are lane shuffles.
#pragma once

#include "common/gpu.h"
#include "common/gpu_fp8.h"

namespace whet {

typedef Element<SHAPE_DTYPE> Source;
constexpr int kDim = SHAPE_DIM;
constexpr int kPieces = (kDim + 7) / 8;
constexpr int kPiecesPerLane = (kPieces + 3) / 4;
constexpr int kElementBytes = sizeof(Source::Stored);
constexpr bool kVectorLoads =
    SHAPE_ALIGNMENT >= 16 && kDim % 8 == 0 && SHAPE_X_STRIDE_B * kElementBytes % 16 == 0 &&
    SHAPE_X_STRIDE_H * kElementBytes % 16 == 0 && SHAPE_X_STRIDE_S * kElementBytes % 16 == 0;
constexpr bool kVectorStores = SHAPE_ALIGNMENT >= 16 && kDim % 8 == 0 &&
                               SHAPE_Y_STRIDE_B % 16 == 0 && SHAPE_Y_STRIDE_H % 16 == 0 &&
                               SHAPE_Y_STRIDE_R % 16 == 0;

struct __attribute__((aligned(16))) Words4 {
  unsigned word[4];
};
struct __attribute__((aligned(8))) Words2 {
  unsigned word[2];
};

// Asked for here and now: a compiler that is free to would move a load to where its value is needed, which is what asking early
// is to avoid.
WHET_DEVICE Words4 load_now(const Words4* from) {
#if WHET_PLATFORM_CUDA
  Words4 to;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(to.word[0]), "=r"(to.word[1]), "=r"(to.word[2]), "=r"(to.word[3])
               : "l"(from));
  return to;
#else
  return *from;
#endif
}

// A NaN loses against a number.
WHET_DEVICE float min_float(float a, float b) { return -max_float(-a, -b); }

WHET_DEVICE float infinity() { return float_from_bits(0x7f800000u); }
WHET_DEVICE float magnitude(float x) { return float_from_bits(float_bits(x) & 0x7fffffffu); }

// Eight channels from `channel` on; zeros behind the last.
WHET_DEVICE void load_piece(const Source::Stored* row, int channel, float (&to)[8]) {
  if (kVectorLoads) {
    if (kPieces % 4 != 0 && channel >= kDim) {
#pragma unroll
      for (int e = 0; e < 8; ++e) to[e] = 0.0f;
      return;
    }
    const Words4* const from = reinterpret_cast<const Words4*>(row + channel);
    const Words4 a = from[0];
    if (kElementBytes == 2) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        to[2 * e] = float_from_bits(a.word[e] << 16);
        to[2 * e + 1] = float_from_bits(a.word[e] & 0xffff0000u);
      }
    } else {
      const Words4 b = from[1];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        to[e] = float_from_bits(a.word[e]);
        to[4 + e] = float_from_bits(b.word[e]);
      }
    }
    return;
  }
#pragma unroll
  for (int e = 0; e < 8; ++e) to[e] = channel + e < kDim ? Source::load(row + channel + e) : 0.0f;
}

// The rotation's sign of a channel (docs/fp8.md). Bits 3 and 4 do not count: the lanes of a row agree, so that it is known when
// this is compiled and costs nothing.
WHET_DEVICE constexpr bool negative(int channel) {
  return static_cast<unsigned>((channel & ~24) + 1) * 0x9e3779b1u >> 31 != 0u;
}

// A lane's share of a row as it lies in memory: what can be asked for long before it is needed.
struct Raw {
  static constexpr int kWords = kVectorLoads && kElementBytes == 2 ? 4 : 8;
  unsigned word[kPiecesPerLane][kWords];

  // Zeros for rows behind the last.
  __device__ void load(const Source::Stored* row, int lane, bool inside) {
#pragma unroll
    for (int i = 0; i < kPiecesPerLane; ++i) {
      const int channel = 32 * i + 8 * lane;
      const bool some = inside && (kPieces % 4 == 0 || channel < kDim);
      if (kVectorLoads) {
#pragma unroll
        for (int w = 0; w < kWords; w += 4) {
          Words4 four = {{0u, 0u, 0u, 0u}};
          if (some) four = load_now(reinterpret_cast<const Words4*>(row + channel) + w / 4);
#pragma unroll
          for (int j = 0; j < 4; ++j) word[i][w + j] = four.word[j];
        }
      } else {
#pragma unroll
        for (int e = 0; e < kWords; ++e) {
          const bool here = some && channel + e < kDim;
          word[i][e] = here ? float_bits(Source::load(row + channel + e)) : 0u;
        }
      }
    }
  }

  __device__ float value(int i, int e) const {
    if (kWords == 8) return float_from_bits(word[i][e]);
    const unsigned pair = word[i][e / 2];
    return float_from_bits(e % 2 == 0 ? pair << 16 : pair & 0xffff0000u);
  }
};

// A row's share of a lane.
struct Row {
  float value[kPiecesPerLane][8];

  template <int kStride>
  __device__ void butterfly_in_pieces() {
#pragma unroll
    for (int i = 0; i < kPiecesPerLane; ++i) {
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        if (e & kStride) continue;
        const float a = value[i][e], b = value[i][e + kStride];
        value[i][e] = a + b;
        value[i][e + kStride] = a - b;
      }
    }
  }
  template <int kMask>
  __device__ void butterfly_in_lanes(int lane) {
    const float own = lane & kMask ? -1.0f : 1.0f;
#pragma unroll
    for (int i = 0; i < kPiecesPerLane; ++i) {
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        value[i][e] = own * value[i][e] + shuffle_xor<kMask>(value[i][e]);
      }
    }
  }
  template <int kStride>
  __device__ void butterfly_over_pieces() {
#pragma unroll
    for (int i = 0; i + kStride < kPiecesPerLane; ++i) {
      if (i & kStride) continue;
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const float a = value[i][e], b = value[i + kStride][e];
        value[i][e] = a + b;
        value[i + kStride][e] = a - b;
      }
    }
  }

  // Without the factor that makes it orthogonal, kNorm.
  static constexpr float kNorm =
      kDim == 128 ? 0.08838834764831845f : (kDim == 256 ? 0.0625f : 0.125f);
  __device__ void rotate(int lane) {
#pragma unroll
    for (int i = 0; i < kPiecesPerLane; ++i) {
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        if (negative(32 * i + e)) value[i][e] = -value[i][e];
      }
    }
    butterfly_in_pieces<1>();
    butterfly_in_pieces<2>();
    butterfly_in_pieces<4>();
    butterfly_in_lanes<1>(lane);
    butterfly_in_lanes<2>(lane);
    butterfly_over_pieces<1>();
    if (kDim == 128 || kDim == 256) butterfly_over_pieces<2>();
    if (kDim == 256) butterfly_over_pieces<4>();
    if (kDim == 192) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          const int j = i + 4 < kPiecesPerLane ? i : 0;  // in bounds where this is dead
          const int k = i + 4 < kPiecesPerLane ? i + 2 : 0, l = i + 4 < kPiecesPerLane ? i + 4 : 0;
          const float part = (value[j][e] + value[k][e] + value[l][e]) * (2.0f / 3.0f);
          value[j][e] -= part;
          value[k][e] -= part;
          value[l][e] -= part;
        }
      }
    }
  }

  // The largest finite magnitude. Infinities become NaN, which is what they are written as.
  __device__ float largest() {
    float most = 0.0f;
#pragma unroll
    for (int i = 0; i < kPiecesPerLane; ++i) {
#pragma unroll
      for (int e = 0; e < 8; ++e) most = max_float(most, magnitude(value[i][e]));
    }
    if (most < infinity()) return most;
    most = 0.0f;
#pragma unroll
    for (int i = 0; i < kPiecesPerLane; ++i) {
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        if (magnitude(value[i][e]) == infinity()) value[i][e] = float_from_bits(0x7fc00000u);
        most = max_float(most, magnitude(value[i][e]));
      }
    }
    return most;
  }
};

}  // namespace whet
