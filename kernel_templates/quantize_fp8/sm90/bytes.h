// A tile's elements as bytes: rows of channels, or transposed.
#pragma once

#include "quantize_fp8/gpu/scale.h"
#include "quantize_fp8/sm90/statistics.h"

namespace whet {
namespace quantize {

// Not to be read again here: other lines of the cache are.
WHET_DEVICE void store_streaming(unsigned char* to, const uint4& bytes) {
  asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(bytes.x), "r"(bytes.y),
               "r"(bytes.z), "r"(bytes.w)
               : "memory");
}

// The factor of the rows of `scale_rows` that the warp's are among. All computing warps take part; `turn` is 0 and 1 in turn.
WHET_DEVICE float block_factor(const Arguments& a, const Block& block, const Command& command,
                               int turn, float largest) {
  constexpr int kScaleWarps = SHAPE_SCALE_ROWS == 64 ? 4 : 8;
  const int lane = static_cast<int>(thread_index()) % 32,
            warp = static_cast<int>(thread_index()) / 32;
  float* const part = block.shared().part[turn];
  largest = warp_max(largest) * kNorm;
  if (lane == 0) part[warp] = largest;
  const int group = warp / kScaleWarps;
  sm90::named_wait(1 + group, 32 * kScaleWarps);
  largest = part[group * kScaleWarps];
#pragma unroll
  for (int i = 1; i < kScaleWarps; ++i) largest = max_float(largest, part[group * kScaleWarps + i]);
  const float scale = scale_for(largest * a.multiplier, a.multiplier);
  const Int64 row = static_cast<Int64>(command.tile) * kRows + 16 * kScaleWarps * group;
  if (lane == 0 && warp % kScaleWarps == 0 && row < kSeq) {
    a.scale[command.head * static_cast<Int64>(SHAPE_SCALE_BLOCKS) + row / (16 * kScaleWarps)] =
        scale / a.multiplier;
  }
  return a.multiplier / scale;
}

// Bytes of rows `row` and `row` + 8 of a tile, from byte `column` on, over the rows themselves. kClean: infinities become NaN.
template <bool kClean>
WHET_DEVICE void put_bytes(const Rows<2>& rows, unsigned char* tile, int row, int column,
                           float factor) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    unsigned char* const to = tile + row_offset(row + 8 * r) + column;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      float v[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        v[i] = rows.at(b, i / 2, 2 * r + i % 2);
        if (kClean && infinite(v[i])) v[i] = nan();
        v[i] *= factor;
      }
      *reinterpret_cast<Uint32*>(to + 16 * b) = encode4(v[0], v[1], v[2], v[3]);
    }
  }
}

// Each warp's 16 rows. Bytes are put together where the rows lay, which no other warp reads.
WHET_DEVICE void write_rows(const Arguments& a, const Block& block, const Command& command,
                            unsigned char* tile, const float* channels, int turn) {
  const int lane = static_cast<int>(thread_index()) % 32,
            warp = static_cast<int>(thread_index()) / 32;
  const int g = lane / 4, q = lane % 4;
  Rows<2> rows;
  rows.open(tile, 16 * warp, 0, SHAPE_CENTER ? channels : nullptr);
  float factor = command.factor;
  bool clean = command.clean != 0;
  if (!kHeadScale) {
    if (SHAPE_CENTER && kSeq % kRows != 0 && command.tile == kTiles - 1)
      rows.drop_rows(16 * warp, command.tile);
    float largest = rows.largest(false);
    clean = __any_sync(0xffffffffu, infinite(largest));
    if (clean) largest = rows.largest(true);
    factor = block_factor(a, block, command, turn, largest);
  }
  factor *= kNorm;
  __syncwarp();
  if (clean) {
    put_bytes<true>(rows, tile, 16 * warp + g, 4 * q, factor);
  } else {
    put_bytes<false>(rows, tile, 16 * warp + g, 4 * q, factor);
  }
  __syncwarp();
  const Int64 first = static_cast<Int64>(command.tile) * kRows + 16 * warp;
  unsigned char* const y =
      head_bytes(a, command.head) + first * static_cast<Int64>(SHAPE_Y_STRIDE_R);
#pragma unroll
  for (int i = 0; i < kBlocks / 2; ++i) {
    const int piece = 32 * i + lane;
    const int row = piece / kBlocks, channel = piece % kBlocks * 16;
    if (kSeq % 16 != 0 && first + row >= kSeq) continue;
    if (kSeq % 16 == 0 && kSeq % kRows != 0 && first >= kSeq) continue;
    store_streaming(y + row * static_cast<Int64>(SHAPE_Y_STRIDE_R) + channel,
                    *reinterpret_cast<const uint4*>(tile + row_offset(16 * warp + row) + channel));
  }
}

// Each warp's channels, eight at a time: lane (g, q) gets 16 tokens in a row of channel g, from eight matrices whose rows are every
// sixteenth pair.
WHET_DEVICE void write_transposed(const Arguments& a, const unsigned char* tile,
                                  const Command& command) {
  const int lane = static_cast<int>(thread_index()) % 32,
            warp = static_cast<int>(thread_index()) / 32;
  const int g = lane / 4, q = lane % 4;
  const int source_row = lane % 8 / 2 * 16 + lane / 8 * 2 + lane % 2;
  const Int64 first = static_cast<Int64>(command.tile) * kRows;
  unsigned char* const y = head_bytes(a, command.head) + first;
  const float factor = command.factor;
#pragma unroll
  for (int i = 0; i < kDim / 8 / kWarps; ++i) {
    const int channels = 8 * (warp + kWarps * i);
#pragma unroll
    for (int rows = 0; rows < kRows; rows += 64) {
      // Row r + 8 is in the group of 16 of row r for r % 16 < 8: a fixed distance.
      const Uint32 address =
          sm90::shared_address(tile + row_offset(rows + source_row) + 2 * channels);
      Uint32 low[4], high[4];
      load_transposed(low, address);
      load_transposed(high, address + 8 * kPitch);
      Uint32 words[8] = {low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]};
      if (command.clean) {
#pragma unroll
        for (int w = 0; w < 8; ++w) {
          if ((words[w] & 0x7fffu) == 0x7f80u) words[w] |= 0x40u;
          if ((words[w] & 0x7fff0000u) == 0x7f800000u) words[w] |= 0x400000u;
        }
      }
      Uint32 bytes[4];
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        bytes[w] = encode4(float_from_bits(words[2 * w] << 16) * factor,
                           float_from_bits(words[2 * w] & 0xffff0000u) * factor,
                           float_from_bits(words[2 * w + 1] << 16) * factor,
                           float_from_bits(words[2 * w + 1] & 0xffff0000u) * factor);
      }
      const Int64 token = first + rows + 16 * q;
      unsigned char* const to =
          y + (channels + g) * static_cast<Int64>(SHAPE_Y_STRIDE_R) + rows + 16 * q;
      if (kSeq % kRows == 0 || token + 16 <= kSeq) {
        store_streaming(to, make_uint4(bytes[0], bytes[1], bytes[2], bytes[3]));
      } else {
#pragma unroll
        for (int t = 0; t < 16; ++t) {
          if (token + t < kSeq) to[t] = static_cast<unsigned char>(bytes[t / 4] >> (t % 4 * 8));
        }
      }
    }
  }
}

}  // namespace quantize
}  // namespace whet
