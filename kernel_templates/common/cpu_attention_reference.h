// What the references of attention on a CPU share: one query row at a time, in double, as the definition reads.
//
//   ForEachRow(*block, [&](const ReferenceRow& row) {
//     const RowWeights w = WeighKeys(row.visible, [&](int64_t j) { return ...logit of key j...; }, weights);
//     ...                                        // sums of weights[j] times values
//     Store(Normalised(sum, w), o);
//     *lse = LogSumExp(w, 0.0);
//   });
#ifndef WHET_CPU_ATTENTION_REFERENCE_H_
#define WHET_CPU_ATTENTION_REFERENCE_H_

#include "common/cpu_block.h"
#include "common/cpu_convert.h"

constexpr int64_t kSeqQ = SHAPE_SEQ_Q;
constexpr int64_t kSeqKv = SHAPE_SEQ_KV;
constexpr int kDqk = SHAPE_DQK;
constexpr int kDv = SHAPE_DV;
constexpr int kRowsPerBlock = 16;

// e^x for x <= 0 (or NaN), relative error below 1e-14. Not libm's: none may be in scope here.
WHET_CPU_FN double Exp(double x) {
  if (x < -700.0) return 0.0;
  // Adding 1.5 * 2^52 leaves the nearest integer in the low bits of the sum.
  const double shifted = x * 1.4426950408889634 + 6755399441055744.0;
  const double whole = shifted - 6755399441055744.0;
  const double f = (x - whole * 6.93147180369123816490e-01) - whole * 1.90821492927058770002e-10;
  double term = 1.0;
  double sum = 1.0;
  for (int i = 1; i <= 13; ++i) {
    term *= f / i;
    sum += term;
  }
  if (!(x == x)) return x;
  const uint64_t bits = static_cast<uint64_t>(static_cast<int64_t>(whole) + 1023) << 52;
  double power;
  __builtin_memcpy(&power, &bits, sizeof(power));
  return sum * power;
}

// ln(x) for finite x > 0: Newton's method on Exp.
WHET_CPU_FN double Log(double x) {
  uint64_t bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  double y = (static_cast<double>(bits >> 52) - 1022.5) * 0.6931471805599453;
  for (int i = 0; i < 6; ++i) y += x * (y > 0 ? Exp(-y) : 1.0 / Exp(y)) - 1.0;
  return y;
}

[[maybe_unused]] WHET_CPU_FN void Store(double value, float* out) {
  *out = static_cast<float>(value);
}

[[maybe_unused]] WHET_CPU_FN void Store(double value, Bf16* out) {
  const float rounded = static_cast<float>(value);
  uint32_t bits;
  __builtin_memcpy(&bits, &rounded, sizeof(bits));
  out->bits = static_cast<uint16_t>(
      rounded == rounded ? (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16 : (bits >> 16) | 0x40u);
}

// The keys' weights are relative to the largest logit, `top`; `sum` is theirs: 0 where no key is visible.
struct RowWeights {
  double top;
  double sum;
};

// Fills the first `visible` of `weights` from logit(key).
template <class Logit>
WHET_CPU_FN RowWeights WeighKeys(int64_t visible, const Logit& logit, double* weights) {
  RowWeights row = {-__builtin_inf(), 0.0};
  for (int64_t j = 0; j < visible; ++j) {
    weights[j] = logit(j);
    if (!(weights[j] <= row.top)) row.top = weights[j];
  }
  if (row.top == -__builtin_inf()) row.top = 0.0;
  for (int64_t j = 0; j < visible; ++j) {
    weights[j] = Exp(weights[j] - row.top);
    row.sum += weights[j];
  }
  return row;
}

WHET_CPU_FN double Normalised(double sum_of_values, const RowWeights& row) {
  return row.sum == 0.0 ? sum_of_values : sum_of_values / row.sum;
}

WHET_CPU_FN float LogSumExp(const RowWeights& row, double shift) {
  if (row.sum == 0.0) return -__builtin_inff();
  return static_cast<float>(row.sum == row.sum ? row.top + Log(row.sum) + shift : row.sum);
}

struct ReferenceRow {
  int64_t batch;
  int64_t head;
  int64_t head_kv;
  int64_t position;
  int64_t visible;  // keys
};

// Calls each(row) for every row of the block; none for the grid of 1 that an empty problem has.
template <class Each>
WHET_CPU_FN void ForEachRow(const WhetCpuBlock& block, const Each& each) {
  const int64_t batch = block.index[0] / SHAPE_HEADS_Q;
  const int64_t head = block.index[0] % SHAPE_HEADS_Q;
  if (batch >= SHAPE_BATCH) return;
  const int64_t first = int64_t{block.index[1]} * kRowsPerBlock;
  for (int64_t i = first; i < first + kRowsPerBlock && i < kSeqQ; ++i) {
    int64_t visible = SHAPE_CAUSAL != 0 ? i + kSeqKv - kSeqQ + 1 : kSeqKv;
    if (visible < 0) visible = 0;
    if (visible > kSeqKv) visible = kSeqKv;
    each(ReferenceRow{batch, head, head / SHAPE_GROUP, i, visible});
  }
}

#endif  // WHET_CPU_ATTENTION_REFERENCE_H_
