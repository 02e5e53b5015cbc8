// FP8 attention forward as its definition reads, one query row at a time, in double: what other variants are verified
// against. Nothing is rounded between the bytes and the output.
#include "common/cpu_attention_reference.h"
#include "common/cpu_block.h"
#include "common/cpu_convert.h"
#include "common/cpu_fp8.h"

// Sums of products of two e4m3 values: at most 256 products of 8 significant bits each over 34 powers of two, so float
// would round; the bytes widen through a table.
struct Table {
  double value[256];
  Table() {
    for (int i = 0; i < 256; ++i) {
      value[i] = static_cast<double>(Fp8ToF32<SHAPE_DTYPE>(static_cast<uint8_t>(i)));
    }
  }
};

// The block of scales that a row or key belongs to.
template <int64_t kRowsPerScale>
WHET_CPU_FN int64_t ScaleOf(int64_t row) {
  return kRowsPerScale == 0 ? 0 : row / (kRowsPerScale + !kRowsPerScale);
}

extern "C" void WHET_ENTRY(const WhetCpuBlock* block, void* const* args) {
  const auto bytes = [&](int i) { return *static_cast<const uint8_t* const*>(args[i]); };
  const auto floats = [&](int i) { return *static_cast<const float* const*>(args[i]); };
  const double scale = static_cast<double>(*static_cast<const float*>(args[9]));
  double* const weights = static_cast<double*>(block->shared);  // of kSeqKv keys
  const Table table;
  ForEachRow(*block, [&](const ReferenceRow& row) {
    const int64_t row_q = row.batch * SHAPE_HEADS_Q + row.head;
    const int64_t row_kv = row.batch * SHAPE_HEADS_KV + row.head_kv;
    const uint8_t* q = bytes(0) + row.batch * SHAPE_Q_STRIDE_B + row.head * SHAPE_Q_STRIDE_H +
                       row.position * SHAPE_Q_STRIDE_S;
    const uint8_t* k = bytes(1) + row.batch * SHAPE_K_STRIDE_B + row.head_kv * SHAPE_K_STRIDE_H;
    const uint8_t* v = bytes(2) + row.batch * SHAPE_V_STRIDE_B + row.head_kv * SHAPE_V_STRIDE_H;
    const float* q_scale = floats(3) + row_q * SHAPE_Q_SCALE_BLOCKS;
    const float* k_scale = floats(4) + row_kv * SHAPE_K_SCALE_BLOCKS;
    const double row_scale =
        scale * static_cast<double>(q_scale[ScaleOf<SHAPE_Q_SCALE_ROWS>(row.position)]);
    double query[kDqk];
    for (int d = 0; d < kDqk; ++d) query[d] = table.value[q[d]];
    const auto logit = [&](int64_t j) {
      const uint8_t* key = k + j * SHAPE_K_STRIDE_S;
      double sum = 0.0;
      for (int d = 0; d < kDqk; ++d) sum += query[d] * table.value[key[d]];
      return sum * (row_scale * static_cast<double>(k_scale[ScaleOf<SHAPE_K_SCALE_ROWS>(j)]));
    };
    const RowWeights total = WeighKeys(row.visible, logit, weights);
    Bf16* o = *static_cast<Bf16* const*>(args[7]) + row.batch * SHAPE_O_STRIDE_B +
              row.head * SHAPE_O_STRIDE_H + row.position * SHAPE_O_STRIDE_S;
    const double v_scale = static_cast<double>(floats(5)[row_kv]);
    for (int d = 0; d < kDv; ++d) {
      const uint8_t* channel = v + d * int64_t{SHAPE_V_STRIDE_D};
      double out = 0.0;
      for (int64_t j = 0; j < row.visible; ++j) out += weights[j] * table.value[channel[j]];
      Store(Normalised(out, total) * v_scale, o + d);
    }
    if (SHAPE_LSE != 0) {
      const int64_t at = row_q * kSeqQ + row.position;
      const double shift = SHAPE_LSE_SHIFT != 0 ? static_cast<double>(floats(6)[at]) : 0.0;
      (*static_cast<float* const*>(args[8]))[at] = LogSumExp(total, shift);
    }
  });
}
