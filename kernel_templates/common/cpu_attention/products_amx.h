// The two matrix products on AMX tiles: 32 rows by 32 columns at a time, from factors packed as pairs of bf16.
//
// Tiles 0..3 accumulate (two of rows by two of columns), 4 and 5 hold rows, 6 and 7 columns.
#ifndef WHET_CPU_ATTENTION_PRODUCTS_AMX_H_
#define WHET_CPU_ATTENTION_PRODUCTS_AMX_H_

#include "common/cpu_attention/shape.h"
#include "common/cpu_vec.h"

// Gives this thread the tile registers, all of 16 rows of 64 bytes, until ReleaseTiles.
WHET_CPU_FN void AcquireTiles() {
  // Linux grants the tile state on request: arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA), a quick no-op from
  // the second time on. No libc here to call it through.
  constexpr int64_t kArchPrctl = 158;
  constexpr int64_t kRequestPermission = 0x1023;
  constexpr int64_t kTileData = 18;
  int64_t result = kArchPrctl;
  asm volatile("syscall"
               : "+a"(result)
               : "D"(kRequestPermission), "S"(kTileData)
               : "rcx", "r11", "memory");
  struct alignas(64) {
    uint8_t palette = 1;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } config;
  _tile_loadconfig(&config);
}

WHET_CPU_FN void ReleaseTiles() { _tile_release(); }

// GCC's tile loads do not tell the compiler that they read memory.
WHET_CPU_FN void OrderMemory() { asm volatile("" : : : "memory"); }

// scores[r][j] = q_r . k_j for 32 rows and the steps of keys that hold keys 0 .. count-1.
WHET_CPU_FN void TileScores(const float* q, const float* keys, int count, float* scores) {
  constexpr int64_t kRowBytes = int64_t{kDqkWords} * 4;
  constexpr int64_t kScoreRowBytes = int64_t{kTileKv} * 4;
  OrderMemory();
  for (int j = 0; j < count; j += 32) {
    const float* panel = keys + int64_t{j} * kDqkWords;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int w = 0; w < kDqkWords; w += 16) {
      _tile_loadd(4, q + w, kRowBytes);
      _tile_loadd(6, panel + w * 32, 128);
      _tile_loadd(7, panel + w * 32 + 16, 128);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_loadd(5, q + 16 * kDqkWords + w, kRowBytes);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, scores + j, kScoreRowBytes);
    _tile_stored(1, scores + j + 16, kScoreRowBytes);
    _tile_stored(2, scores + 16 * kTileKv + j, kScoreRowBytes);
    _tile_stored(3, scores + 16 * kTileKv + j + 16, kScoreRowBytes);
  }
}

// out[r] += sum over the first `count` keys (whole steps) of weights[r][j] * v_j, for 32 rows and a panel of
// one or two vectors of columns.
template <int kVectors>
WHET_CPU_FN void TileOutputPanel(const float* weights, const float* values, int count, float* out) {
  constexpr int64_t kWeightRowBytes = int64_t{kTileKv} * 4;
  constexpr int64_t kOutRowBytes = int64_t{kDvPadded} * 4;
  constexpr int64_t kValueRowBytes = int64_t{kVectors} * 64;
  _tile_loadd(0, out, kOutRowBytes);
  _tile_loadd(2, out + 16 * kDvPadded, kOutRowBytes);
  if constexpr (kVectors == 2) {
    _tile_loadd(1, out + 16, kOutRowBytes);
    _tile_loadd(3, out + 16 * kDvPadded + 16, kOutRowBytes);
  }
  for (int word = 0; word * 2 < count; word += 16) {
    _tile_loadd(4, weights + word, kWeightRowBytes);
    _tile_loadd(6, values + word * kVectors * 16, kValueRowBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, weights + 16 * kTileKv + word, kWeightRowBytes);
    _tile_dpbf16ps(2, 5, 6);
    if constexpr (kVectors == 2) {
      _tile_loadd(7, values + word * kVectors * 16 + 16, kValueRowBytes);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, out, kOutRowBytes);
  _tile_stored(2, out + 16 * kDvPadded, kOutRowBytes);
  if constexpr (kVectors == 2) {
    _tile_stored(1, out + 16, kOutRowBytes);
    _tile_stored(3, out + 16 * kDvPadded + 16, kOutRowBytes);
  }
}

WHET_CPU_FN void TileOutputs(const float* weights, const float* values, int count, float* out) {
  constexpr int kColumns = ValuePanels::kWidth * kLanes;
  OrderMemory();
  for (int panel = 0; panel + 1 < ValuePanels::kCount; ++panel) {
    TileOutputPanel<ValuePanels::kWidth>(
        weights, values + int64_t{panel} * kColumns * (kTileKv / 2), count, out + panel * kColumns);
  }
  constexpr int kLast = ValuePanels::kCount - 1;
  TileOutputPanel<ValuePanels::kLastWidth>(
      weights, values + int64_t{kLast} * kColumns * (kTileKv / 2), count, out + kLast * kColumns);
}

// Whether the packed values of `count` keys are all finite, so that a weight of 0 makes them vanish.
WHET_CPU_FN bool ValuesAreFinite(const float* values, int count) {
  VecI infinite = {};
  for (int panel = 0; panel < ValuePanels::kCount; ++panel) {
    const int width =
        panel + 1 < ValuePanels::kCount ? ValuePanels::kWidth : ValuePanels::kLastWidth;
    const float* words = values + int64_t{panel} * ValuePanels::kWidth * kLanes * (kTileKv / 2);
    const int vectors = (count + 1) / 2 * width;
    for (int i = 0; i < vectors; ++i) {
      const VecU pair = (VecU)LoadVec(words + i * kLanes);
      infinite |= (pair & 0x7f800000u) == 0x7f800000u;
      infinite |= (pair & 0x7f80u) == 0x7f80u;
    }
  }
  int any = 0;
  for (int i = 0; i < kLanes; ++i) any |= infinite[i];
  return any == 0;
}

// out += sum over keys first (a whole step) .. count-1 of weights[j] * v_j, for one row and nothing but these.
WHET_CPU_FN void OutputRowRest(const float* weights, const float* values, int first, int count,
                               float* out) {
  for (int column = 0; column < kDvPadded; column += kLanes) {
    const int panel = column / (ValuePanels::kWidth * kLanes);
    const int width =
        panel + 1 < ValuePanels::kCount ? ValuePanels::kWidth : ValuePanels::kLastWidth;
    const int within = column - panel * ValuePanels::kWidth * kLanes;
    const float* words =
        values + int64_t{panel} * ValuePanels::kWidth * kLanes * (kTileKv / 2) + within;
    VecF sum = LoadVec(out + column);
    for (int j = first; j < count; j += 2) {
      VecF value = LoadVec(words + j / 2 * width * kLanes);
      if (j + 1 == count) value = FirstOfWord(value);
      sum = MultiplyAdd(Broadcast(weights[j / 2]), value, sum);
    }
    StoreVec(out + column, sum);
  }
}

// As Outputs of products.h, for 32 rows. All weights up to the end of the last step are there, 0 where a row
// does not see the key.
WHET_CPU_FN void TileRowsOutputs(const float* weights, const float* values, bool finite,
                                 const RowLimits<32>& limits, const float* correction, float* out) {
  for (int r = 0; r < 32; ++r) {
    if (correction[r] == 1.0f) continue;
    const VecF factor = Broadcast(correction[r]);
    for (int d = 0; d < kDvPadded; d += kLanes) {
      StoreVec(out + r * kDvPadded + d, LoadVec(out + r * kDvPadded + d) * factor);
    }
  }
  if (finite) {
    TileOutputs(weights, values, static_cast<int>(RoundUp(limits.most(), kKeyStep)), out);
    return;
  }
  // 0 times a NaN that a row must not see would be NaN.
  const int common = limits.least() / kKeyStep * kKeyStep;
  TileOutputs(weights, values, common, out);
  for (int r = 0; r < 32; ++r) {
    OutputRowRest(weights + r * kTileKv, values, common, limits.count[r], out + r * kDvPadded);
  }
}

#endif  // WHET_CPU_ATTENTION_PRODUCTS_AMX_H_
