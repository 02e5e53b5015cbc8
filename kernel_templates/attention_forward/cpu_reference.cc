// Attention forward as its definition reads, one query row at a time, in double: what other variants are
// verified against. Plain loops; the only care for speed is that the compiler can vectorise the inner ones.
#include "common/cpu_attention_reference.h"
#include "common/cpu_block.h"
#include "common/cpu_convert.h"

using Element = StorageOf<SHAPE_DTYPE>::Type;

// In eight partial sums, so that the additions may be done side by side.
static double Dot(const double* a, const Element* b) {
  double part[8] = {};
  int d = 0;
  for (; d + 8 <= kDqk; d += 8) {
    for (int i = 0; i < 8; ++i) part[i] += a[d + i] * static_cast<double>(ToF32(b[d + i]));
  }
  for (; d < kDqk; ++d) part[0] += a[d] * static_cast<double>(ToF32(b[d]));
  return ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
}

extern "C" void WHET_ENTRY(const WhetCpuBlock* block, void* const* args) {
  const auto tensor = [&](int i) { return *static_cast<const Element* const*>(args[i]); };
  const double scale = static_cast<double>(*static_cast<const float*>(args[5]));
  double* const weights = static_cast<double*>(block->shared);  // of kSeqKv keys
  ForEachRow(*block, [&](const ReferenceRow& row) {
    const Element* q = tensor(0) + row.batch * SHAPE_Q_STRIDE_B + row.head * SHAPE_Q_STRIDE_H +
                       row.position * SHAPE_Q_STRIDE_S;
    const Element* k = tensor(1) + row.batch * SHAPE_K_STRIDE_B + row.head_kv * SHAPE_K_STRIDE_H;
    const Element* v = tensor(2) + row.batch * SHAPE_V_STRIDE_B + row.head_kv * SHAPE_V_STRIDE_H;
    double query[kDqk];
    for (int d = 0; d < kDqk; ++d) query[d] = static_cast<double>(ToF32(q[d]));
    const RowWeights total = WeighKeys(
        row.visible, [&](int64_t j) { return Dot(query, k + j * SHAPE_K_STRIDE_S) * scale; },
        weights);
    double out[kDv] = {};
    for (int64_t j = 0; j < row.visible; ++j) {
      const Element* value = v + j * SHAPE_V_STRIDE_S;
      for (int d = 0; d < kDv; ++d) out[d] += weights[j] * static_cast<double>(ToF32(value[d]));
    }
    Element* o = *static_cast<Element* const*>(args[3]) + row.batch * SHAPE_O_STRIDE_B +
                 row.head * SHAPE_O_STRIDE_H + row.position * SHAPE_O_STRIDE_S;
    for (int d = 0; d < kDv; ++d) Store(Normalised(out[d], total), o + d);
    if (SHAPE_LSE != 0) {
      float* lse = *static_cast<float* const*>(args[4]);
      lse[(row.batch * SHAPE_HEADS_Q + row.head) * kSeqQ + row.position] = LogSumExp(total, 0.0);
    }
  });
}
