// FP8 attention forward as its definition reads, one query row at a time, in double: what other variants are verified
// against. Nothing is rounded between the bytes and the output.
#include "common/cpu_block.h"
#include "common/cpu_convert.h"
#include "common/cpu_fp8.h"

constexpr int64_t kSeqQ = SHAPE_SEQ_Q;
constexpr int64_t kSeqKv = SHAPE_SEQ_KV;
constexpr int kDqk = SHAPE_DQK;
constexpr int kDv = SHAPE_DV;
constexpr int kRowsPerBlock = 16;
constexpr int64_t kQScaleRows = SHAPE_Q_SCALE_ROWS;
constexpr int64_t kKScaleRows = SHAPE_K_SCALE_ROWS;

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

static void Store(double value, Bf16* out) {
  const float rounded = static_cast<float>(value);
  uint32_t bits;
  __builtin_memcpy(&bits, &rounded, sizeof(bits));
  out->bits = static_cast<uint16_t>(
      rounded == rounded ? (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16 : (bits >> 16) | 0x40u);
}

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

// One head's inputs. Scales are those of this head.
struct Head {
  const uint8_t* k;
  const uint8_t* v;
  const float* k_scale;
  double v_scale;
};

// scores has room for kSeqKv doubles.
static void Row(const Table& table, const uint8_t* q, const Head& head, int64_t visible,
                double scale, double shift, double* scores, Bf16* o, float* lse) {
  double query[kDqk];
  for (int d = 0; d < kDqk; ++d) query[d] = table.value[q[d]];
  double top = -__builtin_inf();
  for (int64_t j = 0; j < visible; ++j) {
    const uint8_t* key = head.k + j * SHAPE_K_STRIDE_S;
    double sum = 0.0;
    for (int d = 0; d < kDqk; ++d) sum += query[d] * table.value[key[d]];
    const float k_scale = head.k_scale[kKScaleRows == 0 ? 0 : j / (kKScaleRows + !kKScaleRows)];
    scores[j] = sum * (scale * static_cast<double>(k_scale));
    if (!(scores[j] <= top)) top = scores[j];
  }
  if (top == -__builtin_inf()) top = 0.0;
  double sum = 0.0;
  for (int64_t j = 0; j < visible; ++j) {
    scores[j] = Exp(scores[j] - top);
    sum += scores[j];
  }
  for (int d = 0; d < kDv; ++d) {
    const uint8_t* channel = head.v + d * int64_t{SHAPE_V_STRIDE_D};
    double out = 0.0;
    for (int64_t j = 0; j < visible; ++j) out += scores[j] * table.value[channel[j]];
    Store(sum == 0.0 ? out : out / sum * head.v_scale, o + d);
  }
  if (lse != nullptr) {
    *lse = sum == 0.0   ? -__builtin_inff()
           : sum == sum ? static_cast<float>(top + Log(sum) + shift)
                        : static_cast<float>(sum);
  }
}

extern "C" void WHET_ENTRY(const WhetCpuBlock* block, void* const* args) {
  const int64_t batch = block->index[0] / SHAPE_HEADS_Q;
  const int64_t head_q = block->index[0] % SHAPE_HEADS_Q;
  if (batch >= SHAPE_BATCH) return;  // an empty problem has a grid of 1
  const int64_t head_kv = head_q / SHAPE_GROUP;
  const int64_t row_q = batch * SHAPE_HEADS_Q + head_q;
  const int64_t row_kv = batch * SHAPE_HEADS_KV + head_kv;
  const auto bytes = [&](int i) { return *static_cast<const uint8_t* const*>(args[i]); };
  const auto floats = [&](int i) { return *static_cast<const float* const*>(args[i]); };
  const uint8_t* q = bytes(0) + batch * SHAPE_Q_STRIDE_B + head_q * SHAPE_Q_STRIDE_H;
  const float* q_scale = floats(3) + row_q * SHAPE_Q_SCALE_BLOCKS;
  const Head head = {bytes(1) + batch * SHAPE_K_STRIDE_B + head_kv * SHAPE_K_STRIDE_H,
                     bytes(2) + batch * SHAPE_V_STRIDE_B + head_kv * SHAPE_V_STRIDE_H,
                     floats(4) + row_kv * SHAPE_K_SCALE_BLOCKS,
                     static_cast<double>(floats(5)[row_kv])};
  Bf16* o =
      *static_cast<Bf16* const*>(args[7]) + batch * SHAPE_O_STRIDE_B + head_q * SHAPE_O_STRIDE_H;
  const double scale = static_cast<double>(*static_cast<const float*>(args[9]));
  const Table table;
  const int64_t first = int64_t{block->index[1]} * kRowsPerBlock;
  for (int64_t i = first; i < first + kRowsPerBlock && i < kSeqQ; ++i) {
    int64_t visible = SHAPE_CAUSAL != 0 ? i + kSeqKv - kSeqQ + 1 : kSeqKv;
    if (visible < 0) visible = 0;
    if (visible > kSeqKv) visible = kSeqKv;
    const double row_scale =
        static_cast<double>(q_scale[kQScaleRows == 0 ? 0 : i / (kQScaleRows + !kQScaleRows)]);
    float* lse =
        SHAPE_LSE != 0 ? *static_cast<float* const*>(args[8]) + row_q * kSeqQ + i : nullptr;
    const double shift =
        SHAPE_LSE_SHIFT != 0 ? static_cast<double>(floats(6)[row_q * kSeqQ + i]) : 0.0;
    Row(table, q + i * SHAPE_Q_STRIDE_S, head, visible, scale * row_scale, shift,
        static_cast<double*>(block->shared), o + i * SHAPE_O_STRIDE_S, lse);
  }
}
