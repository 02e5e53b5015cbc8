#include "tests/emulate/attention_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "src/emulate/number_formats.h"

namespace whet::emulator {
namespace {

constexpr float kUntouched = 77.0f;  // exact in BF16; no output comes near it

class Tensor {
 public:
  Tensor(bool bf16, int batch, int heads, int seq, int width, bool rows_first, int gap)
      : bf16_(bf16) {
    const int64_t row = width + gap;
    stride_s = rows_first ? row * heads : row;
    stride_h = rows_first ? row : row * seq;
    stride_b = row * heads * seq;
    count_ = static_cast<size_t>(stride_b * batch);
    bytes_.resize(std::max<size_t>(count_, 1) * ElementBytes());
  }
  size_t ElementBytes() const { return bf16_ ? 2 : 4; }
  size_t count() const { return count_; }
  size_t bytes() const { return count_ * ElementBytes(); }
  void* data() { return bytes_.data(); }
  int64_t At(int64_t b, int64_t h, int64_t s) const {
    return b * stride_b + h * stride_h + s * stride_s;
  }
  float Get(int64_t i) const {
    if (bf16_) {
      uint16_t bits;
      std::memcpy(&bits, &bytes_[static_cast<size_t>(i) * 2], 2);
      return DecodeFloat(NumberFormat::kBf16, bits);
    }
    float value;
    std::memcpy(&value, &bytes_[static_cast<size_t>(i) * 4], 4);
    return value;
  }
  void Set(int64_t i, float value) {
    if (bf16_) {
      const auto bits = static_cast<uint16_t>(EncodeFloat(NumberFormat::kBf16, value));
      std::memcpy(&bytes_[static_cast<size_t>(i) * 2], &bits, 2);
    } else {
      std::memcpy(&bytes_[static_cast<size_t>(i) * 4], &value, 4);
    }
  }

  int64_t stride_b, stride_h, stride_s;

 private:
  bool bf16_;
  size_t count_;
  std::vector<unsigned char> bytes_;
};

}  // namespace

std::string Describe(const AttentionCase& c) {
  std::string tune;
  for (const auto& [name, value] : c.tune) absl::StrAppend(&tune, " ", name, "=", value);
  return absl::StrCat(c.kernel, " ", c.architecture, tune, c.bf16 ? " bf16" : " f32", " B", c.batch,
                      " H", c.heads_q, "/", c.heads_kv, " S", c.seq_q, "x", c.seq_kv, " D", c.dqk,
                      "/", c.dv, c.causal ? " causal" : "", c.lse ? " lse" : "",
                      c.rows_first ? " bshd" : "", c.hidden_values ? " hidden values" : "",
                      c.nan_query >= 0 ? " NaN query" : "", " gap ", c.gap);
}

absl::StatusOr<AttentionResult> RunAttention(const AttentionCase& c, const Player& player) {
  Tensor q(c.bf16, c.batch, c.heads_q, c.seq_q, c.dqk, c.rows_first, c.gap),
      k(c.bf16, c.batch, c.heads_kv, c.seq_kv, c.dqk, c.rows_first, c.gap),
      v(c.bf16, c.batch, c.heads_kv, c.seq_kv, c.dv, c.rows_first, c.gap),
      o(c.bf16, c.batch, c.heads_q, c.seq_q, c.dv, c.rows_first, c.gap);
  std::mt19937 random(static_cast<uint32_t>(c.seq_q * 31 + c.seq_kv));
  std::normal_distribution<float> normal(0.0f, c.spread);
  for (Tensor* t : {&q, &k, &v}) {
    for (size_t i = 0; i < t->count(); ++i) t->Set(static_cast<int64_t>(i), normal(random));
  }
  for (int head = 0; c.nan_query >= 0 && head < c.batch * c.heads_q; ++head) {
    q.Set(q.At(head / c.heads_q, head % c.heads_q, c.nan_query) + 5,
          std::numeric_limits<float>::quiet_NaN());
  }
  if (c.hidden_values) {
    for (int b = 0; b < c.batch; ++b) {
      for (int h = 0; h < c.heads_kv; ++h) {
        for (int d = 0; d < c.dv; ++d) {
          v.Set(v.At(b, h, c.seq_kv - 1) + d, d % 2 == 0 ? std::numeric_limits<float>::quiet_NaN()
                                                         : std::numeric_limits<float>::infinity());
        }
      }
    }
  }
  for (size_t i = 0; i < o.count(); ++i) o.Set(static_cast<int64_t>(i), kUntouched);
  std::vector<float> lse(static_cast<size_t>(c.batch * c.heads_q * c.seq_q), kUntouched);

  std::string problem =
      absl::StrCat("attention_forward:dtype=", c.bf16 ? "bf16" : "f32", ",batch=", c.batch,
                   ",heads_q=", c.heads_q, ",heads_kv=", c.heads_kv, ",seq_q=", c.seq_q,
                   ",seq_kv=", c.seq_kv, ",dqk=", c.dqk, ",dv=", c.dv, ",causal=", c.causal ? 1 : 0,
                   ",lse=", c.lse ? 1 : 0, ",alignment=", c.alignment);
  const std::pair<const char*, const Tensor*> tensors[] = {
      {"q", &q}, {"k", &k}, {"v", &v}, {"o", &o}};
  for (const auto& [name, tensor] : tensors) {
    absl::StrAppend(&problem, ",", name, "_stride_b=", tensor->stride_b, ",", name,
                    "_stride_h=", tensor->stride_h, ",", name, "_stride_s=", tensor->stride_s);
  }
  absl::StatusOr<EmulatedVariant> variant =
      SpecializeForEmulator(problem, c.kernel, c.tune, c.architecture);
  if (!variant.ok()) return variant.status();
  const float scale = c.scale != 0 ? c.scale : 1.0f / std::sqrt(static_cast<float>(c.dqk));
  EmulatorLaunch& launch = variant->launch;
  launch.blocks = c.blocks;
  launch.arguments = {
      EmulatorArgument::Buffer("q", q.data(), q.bytes()),
      EmulatorArgument::Buffer("k", k.data(), k.bytes()),
      EmulatorArgument::Buffer("v", v.data(), v.bytes()),
      EmulatorArgument::Writable("o", o.data(), o.bytes()),
      EmulatorArgument::Writable("lse", c.lse ? lse.data() : nullptr, c.lse ? lse.size() * 4 : 0),
      EmulatorArgument::Scalar(scale)};
  absl::StatusOr<EmulatorReport> report = player(*variant);
  if (!report.ok()) return report.status();

  AttentionResult result;
  result.report = *report;
  double difference = 0, norm = 0;
  std::vector<double> p(static_cast<size_t>(c.seq_kv));
  std::vector<double> expected(static_cast<size_t>(c.dv));
  for (int b = 0; b < c.batch; ++b) {
    for (int h = 0; h < c.heads_q; ++h) {
      const int kv = h / (c.heads_q / c.heads_kv);
      for (int i = 0; i < c.seq_q; ++i) {
        const int64_t out = o.At(b, h, i);
        for (int g = 0; g < c.gap; ++g)
          result.untouched_gaps &= o.Get(out + c.dv + g) == kUntouched;
        bool untouched = true;
        for (int d = 0; d < c.dv; ++d) untouched &= o.Get(out + d) == kUntouched;
        if (untouched && !c.blocks.empty()) continue;
        ++result.rows;
        double top = -std::numeric_limits<double>::infinity();
        const int visible =
            c.causal ? std::clamp(i + 1 + c.seq_kv - c.seq_q, 0, c.seq_kv) : c.seq_kv;
        for (int j = 0; j < visible; ++j) {
          double dot = 0;
          for (int d = 0; d < c.dqk; ++d)
            dot += static_cast<double>(q.Get(q.At(b, h, i) + d)) * k.Get(k.At(b, kv, j) + d);
          p[static_cast<size_t>(j)] = dot * scale;
          top = std::max(top, dot * scale);
        }
        double sum = 0;
        std::fill(expected.begin(), expected.end(), 0.0);
        for (int j = 0; j < visible; ++j) {
          const double weight = std::exp(p[static_cast<size_t>(j)] - top);
          sum += weight;
          for (int d = 0; d < c.dv; ++d)
            expected[static_cast<size_t>(d)] += weight * v.Get(v.At(b, kv, j) + d);
        }
        for (int d = 0; d < c.dv; ++d) {
          const double want = visible > 0 ? expected[static_cast<size_t>(d)] / sum : 0;
          const double got = o.Get(out + d);
          if (!std::isfinite(want)) {
            if (std::isfinite(got)) difference = std::numeric_limits<double>::infinity();
            continue;
          }
          difference += (got - want) * (got - want);
          norm += want * want;
        }
        if (c.lse) {
          const double want =
              visible > 0 ? top + std::log(sum) : -std::numeric_limits<double>::infinity();
          const double got = lse[static_cast<size_t>((b * c.heads_q + h) * c.seq_q + i)];
          const double error = want == got || (std::isnan(want) && std::isnan(got)) ? 0
                               : std::isfinite(want) && std::isfinite(got) ? std::fabs(want - got)
                                                                           : 1e30;
          result.lse_error = std::max(result.lse_error, error);
        }
      }
    }
  }
  result.output_error = std::sqrt(difference / std::max(norm, 1e-30));
  if (norm == 0) result.output_error = std::sqrt(difference);
  if (std::isnan(difference)) result.output_error = std::numeric_limits<double>::infinity();
  return result;
}

}  // namespace whet::emulator
