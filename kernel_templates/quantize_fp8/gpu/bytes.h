// The later phases of a head: the largest rotated magnitude, and the bytes.
#pragma once

#include "quantize_fp8/gpu/open_rows.h"
#include "quantize_fp8/gpu/scale.h"

namespace {

WHET_DEVICE void take_largest(const Arguments& a, const Shared& s, Int64 head, Int64 tile,
                              const whet::Raw& raw) {
  if (SHAPE_CENTER == 1) wait_for(head_word(a, head, kReady), 1);
  load_channels(a, s, head);
  whet::Row row;
  open_row(a, s, head, tile * kRows + thread() / 4, thread() % 4, raw, row);
  const float largest = group_max<kThreads>(row.largest() * whet::Row::kNorm, s.part);
  if (thread() != 0) return;
  const int bits = static_cast<int>(whet::float_bits(largest));
  whet::raise_to(SHAPE_PER_TENSOR ? a.workspace + kTensorLargest : head_word(a, head, kLargest),
                 bits);
  whet::publish();
  whet::add(SHAPE_PER_TENSOR ? a.workspace + kTensorDone : head_word(a, head, kLargestDone), 1);
}

WHET_DEVICE void store_tile(const Arguments& a, const Shared& s, Int64 head, Int64 first) {
  unsigned char* const to =
      a.y + head / SHAPE_HEADS * SHAPE_Y_STRIDE_B + head % SHAPE_HEADS * SHAPE_Y_STRIDE_H + first;
  constexpr int kPiecesOfChannel = kRows / 16;
  for (int i = thread(); i < kDim * kPiecesOfChannel; i += kThreads) {
    const int d = i / kPiecesOfChannel;
    const int row = i % kPiecesOfChannel * 16;
    const unsigned char* const from = s.tile + d * kTilePitch + row;
    unsigned char* const at = to + d * static_cast<Int64>(SHAPE_Y_STRIDE_R) + row;
    if (kVectorStores && first + row + 16 <= kSeq) {
      whet::Words4 words;
      for (int w = 0; w < 4; ++w) words.word[w] = reinterpret_cast<const unsigned*>(from)[w];
      *reinterpret_cast<whet::Words4*>(at) = words;
    } else {
      for (int b = 0; b < 16 && first + row + b < kSeq; ++b) at[b] = from[b];
    }
  }
}

WHET_DEVICE void write_bytes(const Arguments& a, const Shared& s, Int64 head, Int64 tile,
                             const whet::Raw& raw) {
  if (SHAPE_PER_TENSOR) {
    wait_for(a.workspace + kTensorDone,
             static_cast<int>(kRotatedLargest ? kHeads * kTiles : kHeads));
  } else if (kRotatedLargest) {
    wait_for(head_word(a, head, kLargestDone), static_cast<int>(kTiles));
  }
  if (kChannels && !SHAPE_PER_TENSOR) wait_for(head_word(a, head, kReady), 1);
  load_channels(a, s, head);
  const Int64 first = tile * kRows;
  const int row_in_tile = thread() / 4, lane = thread() % 4;
  const Int64 row_index = first + row_in_tile;
  whet::Row row;
  open_row(a, s, head, row_index, lane, raw, row);
  const float norm = SHAPE_ROTATE ? whet::Row::kNorm : 1.0f;
  float largest = row.largest() * norm;
  if (SHAPE_SCALE_ROWS != 0) {
    largest =
        group_max < SHAPE_SCALE_ROWS == 0 ? kThreads : SHAPE_SCALE_ROWS * 4 > (largest, s.part);
  } else {
    int* const word =
        SHAPE_PER_TENSOR ? a.workspace + kTensorLargest : head_word(a, head, kLargest);
    largest = whet::float_from_bits(static_cast<unsigned>(*static_cast<volatile int*>(word)));
  }
  const float scale = whet::scale_for(largest * a.multiplier, a.multiplier);
  const Int64 block =
      SHAPE_SCALE_ROWS == 0 ? 0 : row_index / (SHAPE_SCALE_ROWS + !SHAPE_SCALE_ROWS);
  const bool first_of_block = SHAPE_SCALE_ROWS == 0
                                  ? thread() == 0 && tile == 0
                                  : thread() % (SHAPE_SCALE_ROWS * 4 + !SHAPE_SCALE_ROWS) == 0;
  if (first_of_block && row_index < kSeq) {
    a.scale[head * SHAPE_SCALE_BLOCKS + block] = scale / a.multiplier;
  }
  const float factor = norm * (a.multiplier / scale);
  if (SHAPE_TRANSPOSE) whet::barrier();  // the tile of the item before is stored
  unsigned char* const to = a.y + head / SHAPE_HEADS * SHAPE_Y_STRIDE_B +
                            head % SHAPE_HEADS * SHAPE_Y_STRIDE_H + row_index * SHAPE_Y_STRIDE_R;
#pragma unroll
  for (int i = 0; i < kPiecesPerLane; ++i) {
    const int channel = 32 * i + 8 * lane;
    const float* const v = row.value[i];
    whet::Words2 bytes;
    bytes.word[0] = whet::encode4(v[0] * factor, v[1] * factor, v[2] * factor, v[3] * factor);
    bytes.word[1] = whet::encode4(v[4] * factor, v[5] * factor, v[6] * factor, v[7] * factor);
    if (SHAPE_TRANSPOSE) {
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        if (kDim % 32 != 0 && channel + e >= kDim) break;
        s.tile[(channel + e) * kTilePitch + row_in_tile] =
            static_cast<unsigned char>(bytes.word[e / 4] >> (e % 4 * 8));
      }
    } else if (row_index < kSeq) {
      if (kVectorStores) {
        if (kPieces % 4 == 0 || channel < kDim) {
          *reinterpret_cast<whet::Words2*>(to + channel) = bytes;
        }
      } else {
        for (int e = 0; e < 8 && channel + e < kDim; ++e) {
          to[channel + e] = static_cast<unsigned char>(bytes.word[e / 4] >> (e % 4 * 8));
        }
      }
    }
  }
  if (SHAPE_TRANSPOSE) {
    whet::barrier();
    store_tile(a, s, head, first);
  }
}

}  // namespace
