// From e4m3 bytes to BF16, in which every one of them is exact, a tile at a time: behind this, attention on a CPU is the BF16
// kernel's.
//
// Included before any header of common/cpu_attention, because it makes the problem's constants say what those work on: BF16
// rows without gaps.
#ifndef WHET_ATTENTION_FP8_CPU_DECODE_H_
#define WHET_ATTENTION_FP8_CPU_DECODE_H_

#include "common/cpu_block.h"
#include "common/cpu_convert.h"
#include "common/cpu_fp8.h"

constexpr int kStoredDtype = SHAPE_DTYPE;
constexpr int64_t kStoredKeyStride = SHAPE_K_STRIDE_S;
constexpr int64_t kStoredChannelStride = SHAPE_V_STRIDE_D;
#undef SHAPE_DTYPE
#define SHAPE_DTYPE WHET_BF16
#undef SHAPE_K_STRIDE_S
#define SHAPE_K_STRIDE_S SHAPE_DQK
#define SHAPE_V_STRIDE_S SHAPE_DV

// Vectorised by the compiler.
WHET_CPU_FN void DecodeRow(const uint8_t* from, int count, Bf16* to) {
  constexpr uint32_t kBias = Fp8Format<kStoredDtype>::kBias;
  for (int i = 0; i < count; ++i) {
    const uint32_t byte = from[i];
    const uint32_t magnitude = byte & 0x7fu;
    const uint32_t normal = (magnitude << 4) + ((127u - kBias) << 7);
    // A subnormal is a count of steps of 2^(-2 - bias).
    const float steps = static_cast<float>(static_cast<int32_t>(magnitude));
    uint32_t small;
    __builtin_memcpy(&small, &steps, sizeof(small));
    small = magnitude == 0u ? 0u : (small >> 16) - ((2u + kBias) << 7);
    const bool nan = kStoredDtype == WHET_E4M3 ? magnitude == 0x7fu : byte == 0x80u;
    uint32_t bits = (magnitude < 8u ? small : normal) | (byte & 0x80u) << 8;
    bits = nan ? 0x7fc0u : bits;
    to[i].bits = static_cast<uint16_t>(bits);
  }
}

WHET_CPU_FN void DecodeKeys(const uint8_t* k, int count, Bf16* to) {
  for (int j = 0; j < count; ++j)
    DecodeRow(k + j * kStoredKeyStride, SHAPE_DQK, to + j * SHAPE_DQK);
}

// Swaps the bits of `a` above `shift` with those of `b` below it, in fields of `mask`.
WHET_CPU_FN void SwapFields(uint64_t& a, uint64_t& b, int shift, uint64_t mask) {
  const uint64_t change = ((a >> shift) ^ b) & mask;
  b ^= change;
  a ^= change << shift;
}

// Byte j of row i becomes byte i of row j.
WHET_CPU_FN void TransposeBytes(uint64_t (&rows)[8]) {
  for (int i = 0; i < 4; ++i) SwapFields(rows[i], rows[i + 4], 32, 0x00000000ffffffffull);
  for (int i = 0; i < 8; i += 4) {
    SwapFields(rows[i], rows[i + 2], 16, 0x0000ffff0000ffffull);
    SwapFields(rows[i + 1], rows[i + 3], 16, 0x0000ffff0000ffffull);
  }
  for (int i = 0; i < 8; i += 2) SwapFields(rows[i], rows[i + 1], 8, 0x00ff00ff00ff00ffull);
}

constexpr int kChannelsPadded = (SHAPE_DV + 7) / 8 * 8;

// Values lie transposed; eight keys at a time become rows of bytes, then BF16. No byte behind the last key is read.
WHET_CPU_FN void DecodeValues(const uint8_t* v, int count, Bf16* to) {
  for (int j = 0; j < count; j += 8) {
    const int keys = count - j < 8 ? count - j : 8;
    uint8_t bytes[8][kChannelsPadded];
    for (int d = 0; d < kChannelsPadded; d += 8) {
      uint64_t rows[8] = {};
      for (int i = 0; i < 8; ++i) {
        if (d + i >= SHAPE_DV) break;
        const uint8_t* channel = v + (d + i) * kStoredChannelStride + j;
        if (keys == 8) {
          __builtin_memcpy(&rows[i], channel, 8);
        } else {
          __builtin_memcpy(&rows[i], channel, static_cast<unsigned>(keys));
        }
      }
      TransposeBytes(rows);
      for (int i = 0; i < 8; ++i) __builtin_memcpy(bytes[i] + d, &rows[i], 8);
    }
    for (int i = 0; i < keys; ++i) DecodeRow(bytes[i], SHAPE_DV, to + (j + i) * SHAPE_DV);
  }
}

#endif  // WHET_ATTENTION_FP8_CPU_DECODE_H_
