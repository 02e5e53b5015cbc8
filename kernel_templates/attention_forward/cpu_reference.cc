// Attention forward as its definition reads, one query row at a time, in double: what other variants are
// verified against. Plain loops; the only care for speed is that the compiler can vectorise the inner ones.
#include "common/cpu_block.h"
#include "common/cpu_convert.h"

using Element = StorageOf<SHAPE_DTYPE>::Type;

constexpr int64_t kSeqQ = SHAPE_SEQ_Q;
constexpr int64_t kSeqKv = SHAPE_SEQ_KV;
constexpr int kDqk = SHAPE_DQK;
constexpr int kDv = SHAPE_DV;
constexpr int kRowsPerBlock = 16;

// e^x for x <= 0 (or NaN), relative error below 1e-14. Not libm's: none may be in scope here.
static double Exp(double x) {
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
static double Log(double x) {
  uint64_t bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  double y = (static_cast<double>(bits >> 52) - 1022.5) * 0.6931471805599453;
  for (int i = 0; i < 6; ++i) y += x * (y > 0 ? Exp(-y) : 1.0 / Exp(y)) - 1.0;
  return y;
}

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

[[maybe_unused]] static void Store(double value, float* out) { *out = static_cast<float>(value); }

[[maybe_unused]] static void Store(double value, Bf16* out) {
  const float rounded = static_cast<float>(value);
  uint32_t bits;
  __builtin_memcpy(&bits, &rounded, sizeof(bits));
  out->bits = static_cast<uint16_t>(
      rounded == rounded ? (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16 : (bits >> 16) | 0x40u);
}

// scores has room for kSeqKv doubles.
static void Row(const Element* q, const Element* k, const Element* v, int64_t visible, double scale,
                double* scores, Element* o, float* lse) {
  double query[kDqk];
  for (int d = 0; d < kDqk; ++d) query[d] = static_cast<double>(ToF32(q[d]));
  double top = -__builtin_inf();
  for (int64_t j = 0; j < visible; ++j) {
    scores[j] = Dot(query, k + j * SHAPE_K_STRIDE_S) * scale;
    if (!(scores[j] <= top)) top = scores[j];
  }
  if (top == -__builtin_inf()) top = 0.0;
  double sum = 0.0;
  double out[kDv] = {};
  for (int64_t j = 0; j < visible; ++j) {
    const double weight = Exp(scores[j] - top);
    sum += weight;
    const Element* value = v + j * SHAPE_V_STRIDE_S;
    for (int d = 0; d < kDv; ++d) out[d] += weight * static_cast<double>(ToF32(value[d]));
  }
  for (int d = 0; d < kDv; ++d) Store(sum == 0.0 ? out[d] : out[d] / sum, o + d);
  if (lse != nullptr) {
    *lse = sum == 0.0   ? -__builtin_inff()
           : sum == sum ? static_cast<float>(top + Log(sum))
                        : static_cast<float>(sum);
  }
}

extern "C" void WHET_ENTRY(const WhetCpuBlock* block, void* const* args) {
  const int64_t batch = block->index[0] / SHAPE_HEADS_Q;
  const int64_t head = block->index[0] % SHAPE_HEADS_Q;
  if (batch >= SHAPE_BATCH) return;  // an empty problem has a grid of 1
  const int64_t head_kv = head / SHAPE_GROUP;
  const Element* q = *static_cast<const Element* const*>(args[0]) + batch * SHAPE_Q_STRIDE_B +
                     head * SHAPE_Q_STRIDE_H;
  const Element* k = *static_cast<const Element* const*>(args[1]) + batch * SHAPE_K_STRIDE_B +
                     head_kv * SHAPE_K_STRIDE_H;
  const Element* v = *static_cast<const Element* const*>(args[2]) + batch * SHAPE_V_STRIDE_B +
                     head_kv * SHAPE_V_STRIDE_H;
  Element* o =
      *static_cast<Element* const*>(args[3]) + batch * SHAPE_O_STRIDE_B + head * SHAPE_O_STRIDE_H;
  const double scale = static_cast<double>(*static_cast<const float*>(args[5]));
  const int64_t first = int64_t{block->index[1]} * kRowsPerBlock;
  for (int64_t i = first; i < first + kRowsPerBlock && i < kSeqQ; ++i) {
    int64_t visible = SHAPE_CAUSAL != 0 ? i + kSeqKv - kSeqQ + 1 : kSeqKv;
    if (visible < 0) visible = 0;
    if (visible > kSeqKv) visible = kSeqKv;
    float* lse = nullptr;
    if (SHAPE_LSE != 0) {
      lse = *static_cast<float* const*>(args[4]) + (batch * SHAPE_HEADS_Q + head) * kSeqQ + i;
    }
    Row(q + i * SHAPE_Q_STRIDE_S, k, v, visible, scale, static_cast<double*>(block->shared),
        o + i * SHAPE_O_STRIDE_S, lse);
  }
}
