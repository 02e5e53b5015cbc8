// Attention forward on a CPU: tiles of keys and values are packed into the block's scratch and used
// by all rows of the block, a few rows at a time; the softmax is online, all sums are f32.
#include "common/cpu_attention/block.h"
#include "common/cpu_block.h"
#include "common/cpu_convert.h"

// Every row's dot products become binary logits by the same factor.
struct OneFactor {
  float factor;
  float Of(int64_t) const { return factor; }
};

// Keys and values of one head.
struct Tensors {
  const Element* k;
  const Element* v;
  OneFactor factor;

  void Pack(int64_t start, int count, const Scratch& scratch) const {
    PackKeys(k + start * SHAPE_K_STRIDE_S, count, scratch.keys);
    PackValues(v + start * SHAPE_V_STRIDE_S, count, scratch.values);
  }
  void Prefetch(int64_t start, int64_t count) const {
    constexpr int64_t kBytes = sizeof(Element);
    PrefetchRows(k + start * SHAPE_K_STRIDE_S, SHAPE_K_STRIDE_S * kBytes, count, kDqk * kBytes);
    PrefetchRows(v + start * SHAPE_V_STRIDE_S, SHAPE_V_STRIDE_S * kBytes, count, kDv * kBytes);
  }
  OneFactor FactorOf(int64_t) const { return factor; }
};

extern "C" void WHET_ENTRY(const WhetCpuBlock* block, void* const* args) {
  const BlockRows rows = RowsOf(*block);
  if (rows.count == 0) return;
  const Element* q = *static_cast<const Element* const*>(args[0]) + rows.batch * SHAPE_Q_STRIDE_B +
                     rows.head * SHAPE_Q_STRIDE_H;
  const Element* k = *static_cast<const Element* const*>(args[1]) + rows.batch * SHAPE_K_STRIDE_B +
                     rows.head_kv() * SHAPE_K_STRIDE_H;
  const Element* v = *static_cast<const Element* const*>(args[2]) + rows.batch * SHAPE_V_STRIDE_B +
                     rows.head_kv() * SHAPE_V_STRIDE_H;
  Element* o = *static_cast<Element* const*>(args[3]) + rows.batch * SHAPE_O_STRIDE_B +
               rows.head * SHAPE_O_STRIDE_H;
  float* lse = SHAPE_LSE != 0 ? *static_cast<float* const*>(args[4]) +
                                    (rows.batch * SHAPE_HEADS_Q + rows.head) * kSeqQ
                              : nullptr;
  const float scale = *static_cast<const float*>(args[5]);

  Scratch scratch = DivideScratch(block->shared);
#if TUNE_BF16_DOT == 2
  AcquireTiles();
#endif
  for (int64_t row = 0; row < rows.count; ++row) {
    PackQueryRow(
        q + row % kHeadsPerBlock * SHAPE_Q_STRIDE_H + rows.position(row) * SHAPE_Q_STRIDE_S,
        SignOf(scale), scratch.queries + row * kQueryStride);
  }
  RunTiles(rows, scratch, Tensors{k, v, {FactorOf(scale)}});
#if TUNE_BF16_DOT == 2
  ReleaseTiles();
#endif
  for (int64_t row = 0; row < rows.count; ++row) {
    const int64_t h = row % kHeadsPerBlock;
    WriteRow(scratch, row, 1.0f, o + h * SHAPE_O_STRIDE_H + rows.position(row) * SHAPE_O_STRIDE_S,
             lse == nullptr ? nullptr : lse + h * kSeqQ + rows.position(row), 0.0f);
  }
}
