// FP8 attention forward on a CPU: the BF16 kernel on tiles that are decoded on the way, with a scale for each row and each tile
// of keys. Probabilities are not rounded to e4m3 (no instruction would gain by it), so this is the class of exact exponentials.
// clang-format off: this header redefines what the others stand on.
#include "attention_forward_fp8/cpu/decode.h"
// clang-format on
#include "common/cpu_attention/block.h"
#include "common/cpu_block.h"
#include "common/cpu_convert.h"

// Rows of a tile share the scale of their keys.
static_assert(SHAPE_K_SCALE_ROWS == 0 || SHAPE_K_SCALE_ROWS % kTileKv == 0 ||
                  SHAPE_K_SCALE_ROWS >= kSeqKv,
              "block_kv must not be more than k_scale_rows");

// Behind the scratch of the BF16 kernel: rows' factors, and the decoded tile.
constexpr int64_t kFactorOffset = kScratchBytes;
constexpr int64_t kDecodedKeyOffset = kFactorOffset + RoundUp(kBlockRows * 4, 64);
constexpr int64_t kDecodedValueOffset =
    kDecodedKeyOffset + RoundUp(int64_t{kTileKv} * kDqk * 2, 64);
static_assert(kDecodedValueOffset + int64_t{kTileKv} * kDv * 2 <= LAUNCH_SHARED_BYTES,
              "shared_bytes of cpu.json is too small");

// A row's factor times the scale of the tile's keys.
struct ScaledFactors {
  const float* rows;
  float key_scale;
  float Of(int64_t row) const { return rows[row] * key_scale; }
};

// Keys and values of one head, with room for a decoded tile.
struct Bytes {
  const uint8_t* k;
  const uint8_t* v;
  const float* k_scale;
  const float* row_factors;
  Bf16* decoded_keys;
  Bf16* decoded_values;

  void Pack(int64_t start, int count, const Scratch& scratch) const {
    DecodeKeys(k + start * kStoredKeyStride, count, decoded_keys);
    PackKeys(decoded_keys, count, scratch.keys);
    DecodeValues(v + start, count, decoded_values);
    PackValues(decoded_values, count, scratch.values);
  }
  void Prefetch(int64_t start, int64_t count) const {
    PrefetchRows(k + start * kStoredKeyStride, kStoredKeyStride, count, kDqk);
  }
  ScaledFactors FactorOf(int64_t start) const {
    constexpr int64_t kRowsPerScale = SHAPE_K_SCALE_ROWS + !SHAPE_K_SCALE_ROWS;
    return {row_factors, k_scale[SHAPE_K_SCALE_ROWS == 0 ? 0 : start / kRowsPerScale]};
  }
};

extern "C" void WHET_ENTRY(const WhetCpuBlock* block, void* const* args) {
  const BlockRows rows = RowsOf(*block);
  if (rows.count == 0) return;
  const auto bytes = [&](int i) { return *static_cast<const uint8_t* const*>(args[i]); };
  const auto floats = [&](int i) { return *static_cast<const float* const*>(args[i]); };
  const int64_t row_q = rows.batch * SHAPE_HEADS_Q + rows.head;
  const int64_t row_kv = rows.batch * SHAPE_HEADS_KV + rows.head_kv();
  const uint8_t* q = bytes(0) + rows.batch * SHAPE_Q_STRIDE_B + rows.head * SHAPE_Q_STRIDE_H;
  const uint8_t* k = bytes(1) + rows.batch * SHAPE_K_STRIDE_B + rows.head_kv() * SHAPE_K_STRIDE_H;
  const uint8_t* v = bytes(2) + rows.batch * SHAPE_V_STRIDE_B + rows.head_kv() * SHAPE_V_STRIDE_H;
  const float* q_scale = floats(3) + row_q * SHAPE_Q_SCALE_BLOCKS;
  const float* k_scale = floats(4) + row_kv * SHAPE_K_SCALE_BLOCKS;
  const float value_scale = floats(5)[row_kv];
  const float* lse_shift = SHAPE_LSE_SHIFT != 0 ? floats(6) + row_q * kSeqQ : nullptr;
  Bf16* o = *static_cast<Bf16* const*>(args[7]) + rows.batch * SHAPE_O_STRIDE_B +
            rows.head * SHAPE_O_STRIDE_H;
  float* lse = SHAPE_LSE != 0 ? *static_cast<float* const*>(args[8]) + row_q * kSeqQ : nullptr;
  const float scale = *static_cast<const float*>(args[9]);

  Scratch scratch = DivideScratch(block->shared);
  char* const base = static_cast<char*>(block->shared);
  float* const factors = reinterpret_cast<float*>(base + kFactorOffset);
#if TUNE_BF16_DOT == 2
  AcquireTiles();
#endif
  for (int64_t row = 0; row < rows.count; ++row) {
    const int64_t position = rows.position(row);
    const int64_t h = row % kHeadsPerBlock;
    Bf16 query[kDqk];
    DecodeRow(q + h * SHAPE_Q_STRIDE_H + position * SHAPE_Q_STRIDE_S, kDqk, query);
    PackQueryRow(query, SignOf(scale), scratch.queries + row * kQueryStride);
    const int64_t scale_block =
        SHAPE_Q_SCALE_ROWS == 0 ? 0 : position / (SHAPE_Q_SCALE_ROWS + !SHAPE_Q_SCALE_ROWS);
    factors[row] = FactorOf(scale) * q_scale[h * SHAPE_Q_SCALE_BLOCKS + scale_block];
  }
  for (int64_t row = rows.count; row < rows.worked; ++row) factors[row] = 0.0f;
  RunTiles(rows, scratch,
           Bytes{k, v, k_scale, factors, reinterpret_cast<Bf16*>(base + kDecodedKeyOffset),
                 reinterpret_cast<Bf16*>(base + kDecodedValueOffset)});
#if TUNE_BF16_DOT == 2
  ReleaseTiles();
#endif
  for (int64_t row = 0; row < rows.count; ++row) {
    const int64_t at = row % kHeadsPerBlock * kSeqQ + rows.position(row);
    WriteRow(scratch, row, value_scale,
             o + row % kHeadsPerBlock * SHAPE_O_STRIDE_H + rows.position(row) * SHAPE_O_STRIDE_S,
             lse == nullptr ? nullptr : lse + at, lse_shift == nullptr ? 0.0f : lse_shift[at]);
  }
}
