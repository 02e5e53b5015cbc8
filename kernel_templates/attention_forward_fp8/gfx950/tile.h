// Tiles of K and V on their way to LDS, and fragments of them on their way to registers.
#pragma once

#include "attention_forward_fp8/gfx950/shape.h"

namespace {

// Where this lane's 16 bytes of the wave's i-th line come from, relative to the tile. Rows and columns that a panel has and the matrix has
// not repeat the last: what loads to LDS do beyond a buffer is not documented. Columns that repeat K's meet zeros of Q, and hold a NaN
// only where the key has one anyway; rows that repeat V's are channels that are not stored.
template <int kLoads>
WHET_DEVICE void panel_offsets(unsigned (&offset)[kLoads], const Panel& panel, unsigned stride,
                               int rows, int columns, int wave, int lane) {
  WHET_UNROLL
  for (int i = 0; i < kLoads; ++i) {
    const int line = wave * kLoads + i;
    int row =
        line / panel.lines() * 64 + line % panel.lines() + lane / panel.chunks() * panel.lines();
    int chunk = lane % panel.chunks();
    if (rows < panel.rows && row >= rows) row = rows - 1;
    if (columns < panel.width && chunk >= columns / 16) chunk = columns / 16 - 1;
    offset[i] = static_cast<unsigned>(row) * stride + static_cast<unsigned>(chunk) * 16u;
  }
}

// Loads tiles of K and V to LDS, this wave's lines of them, one at a time: each costs the wave a few scalar instructions, which are best
// spread among matrix instructions.
struct Loader {
  const char* k;
  const char* v;
  WHET_LDS(char) * lds;
  int wave;
  int key_end;  // what lies behind is not needed, or not there
  unsigned k_offset[kKeyLoads];
  unsigned k_offset2[kKeyLoads2 > 0 ? kKeyLoads2 : 1];
  unsigned v_offset[kValueLoads];
  // Of the tile at hand.
  whet::Buffer keys, keys2, values;
  WHET_LDS(char) * to;

  // Chooses a tile. What lies behind the last key becomes zeros or is left alone, whatever loads to LDS do: scores are hidden and bytes of
  // V masked, see clear_tail. The last 16 bytes of a row of V may reach beyond its last key, but not beyond the
  // 16 bytes that hold it.
  __device__ __attribute__((always_inline)) void aim(int tile, int stage) {
    const int key0 = tile * kTileKeys;
    const int left = key_end - key0;
    const int rows = left < kTileKeys ? left : kTileKeys;
    int records = left > 0 ? (rows - 1) * static_cast<int>(SHAPE_K_STRIDE_S) + kDqk : 0;
    WHET_PIN_SCALAR(records);
    const char* const base = k + static_cast<Int64>(key0) * SHAPE_K_STRIDE_S;
    keys = whet::make_buffer(base, static_cast<unsigned>(records));
    if (kHasKeyPanel2)
      keys2 =
          whet::make_buffer(base + 128, records > 128 ? static_cast<unsigned>(records) - 128u : 0u);
    const int bytes = (left + 15) / 16 * 16;
    const int row_bytes = bytes < kTileKeys ? bytes : kTileKeys;
    int value_records =
        left > 0
            ? static_cast<int>((kDv - 1u) * static_cast<unsigned>(SHAPE_V_STRIDE_D)) + row_bytes
            : 0;
    WHET_PIN_SCALAR(value_records);
    values = whet::make_buffer(v + key0, static_cast<unsigned>(value_records));
    to = lds + stage * kStageBytes + wave * 1040;
  }
  // Starts the number-th of the tile's kLoadsOfTile loads: K's come first.
  template <int kNumber>
  __device__ __attribute__((always_inline)) void load() const {
    if constexpr (kNumber < kKeyLoads) {
      whet::load_to_lds_16(keys, k_offset[kNumber],
                           to + wave * (kKeyLoads - 1) * 1040 + kNumber * 1040);
    } else if constexpr (kNumber < kKeyLoads + kKeyLoads2) {
      constexpr int i = kNumber - kKeyLoads;
      whet::load_to_lds_16(keys2, k_offset2[i],
                           to + wave * (kKeyLoads2 - 1) * 1040 + kPanel2At + i * 1040);
    } else {
      constexpr int i = kNumber - kKeyLoads - kKeyLoads2;
      whet::load_to_lds_16(values, v_offset[i],
                           to + wave * (kValueLoads - 1) * 1040 + kValuesAt + i * 1040);
    }
  }
  template <int kBegin, int kEnd>
  __device__ __attribute__((always_inline)) void load_some() const {
    whet::for_each<kBegin, kEnd>([&](auto number) __attribute__((always_inline)) {
      load<decltype(number)::kValue>();
    });
  }
};

// Where the last of `tiles` tiles is not whole and none has been in its place before, zeros: else LDS that was never written would be read.
WHET_DEVICE void clear_tail(WHET_LDS(char) * lds, int tiles) {
  if (kSeqKv % kTileKeys == 0 || tiles > kStages || tiles * kTileKeys <= kSeqKv) return;
  WHET_LDS(char)* const stage = lds + (tiles - 1) * kStageBytes;
  for (int at = static_cast<int>(whet::thread_index()) * 16; at < kStageBytes;
       at += LAUNCH_BLOCK_X * 16)
    *(WHET_LDS(Uint4)*)(stage + at) = Uint4{};
  whet::barrier();
}

// This lane's places in a stage: of its row in the panels of K and in V. Rows of K and of V lie alike where both have 128 bytes.
struct Places {
  const WHET_LDS(char) * keys;
  const WHET_LDS(char) * keys2;
  const WHET_LDS(char) * values;
};

WHET_DEVICE Int8 read_fragment(const WHET_LDS(char) * at) {
  const Int4 low = *(const WHET_LDS(Int4)*)at;
  const Int4 high = *(const WHET_LDS(Int4)*)(at + 32);
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
}
// Fragments as the matrix instructions take them: 32 keys by 64 columns of K, and 32 channels by 64 keys of V.
WHET_DEVICE Int8 read_keys(const Places& at, int key_block, int depth) {
  if (depth < 2) return read_fragment(at.keys + kKeyPanel.row_at(32 * key_block) + 64 * depth);
  return read_fragment(at.keys2 + kKeyPanel2.row_at(32 * key_block));
}
WHET_DEVICE Int8 read_values(const Places& at, int column, int half_tile) {
  return read_fragment(at.values + kValuesAt + kValuePanel.row_at(32 * column) + 64 * half_tile);
}

}  // namespace
