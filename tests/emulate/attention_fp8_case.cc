#include "tests/emulate/attention_fp8_case.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "src/emulate/number_formats.h"

namespace whet::emulator {
namespace {

constexpr uint16_t kUntouched = 0x429a;  // 77 in BF16; no output comes near it

// [batch, heads, rows, width] with `gap` unused bytes behind each row.
struct Bytes {
  Bytes(int batch, int heads, int rows, int width, int gap, uint8_t fill)
      : stride_s(width + gap),
        stride_h(stride_s * rows),
        stride_b(stride_h * heads),
        data(static_cast<size_t>(std::max<int64_t>(stride_b * batch, 1)), fill) {}
  uint8_t& At(int64_t b, int64_t h, int64_t s, int64_t d) {
    return data[static_cast<size_t>(b * stride_b + h * stride_h + s * stride_s + d)];
  }
  int64_t stride_s, stride_h, stride_b;
  std::vector<uint8_t> data;
};

struct Scales {
  int64_t blocks;
  int rows;
  std::vector<float> value;
  double Of(int64_t head, int64_t row) const {
    return static_cast<double>(
        value[static_cast<size_t>(head * blocks + (rows > 0 ? row / rows : 0))]);
  }
};

Scales MakeScales(int64_t heads, int64_t seq, int rows, bool random, bool powers,
                  std::mt19937* generator) {
  Scales scales;
  scales.rows = rows;
  scales.blocks = rows == 0 ? 1 : std::max<int64_t>(1, (seq + rows - 1) / rows);
  std::uniform_real_distribution<float> pick(0.5f, 2.0f);
  for (int64_t i = 0; i < heads * scales.blocks; ++i) {
    float value = random ? pick(*generator) : 1.0f;
    if (powers) value = value < 1.0f ? 0.5f : 1.0f;
    scales.value.push_back(value);
  }
  return scales;
}

}  // namespace

std::string Describe(const AttentionFp8Case& c) {
  std::string text;
  for (const auto& [name, value] : c.tune) absl::StrAppend(&text, " ", name, "=", value);
  return absl::StrCat(c.kernel, " ", c.architecture, text, " B", c.batch, " H", c.heads_q, "/",
                      c.heads_kv, " S", c.seq_q, "x", c.seq_kv, " D", c.dqk, "/", c.dv,
                      c.causal ? " causal" : "", c.exact_exponents ? " exact" : "", " scale rows ",
                      c.q_scale_rows, "/", c.k_scale_rows, " spread ", c.spread, " sink ", c.sink,
                      " late ", c.late, " mean ", c.value_mean, " growth ", c.growth);
}

absl::StatusOr<AttentionFp8Result> RunAttentionFp8(const AttentionFp8Case& c,
                                                   const Player& player) {
  const bool fnuz = c.architecture == "gfx942";
  const NumberFormat format = fnuz ? NumberFormat::kE4m3Fnuz : NumberFormat::kE4m3;
  const uint8_t nan = fnuz ? 0x80 : 0x7f;
  const float largest = fnuz ? 240.0f : 448.0f;
  const auto encode = [&](float x) {
    return static_cast<uint8_t>(EncodeFloat(format, std::clamp(x, -largest, largest)));
  };
  std::vector<double> decode(256);
  for (uint32_t i = 0; i < 256; ++i) decode[i] = static_cast<double>(DecodeFloat(format, i));

  const int padded = (c.seq_kv + 15) / 16 * 16;
  Bytes q(c.batch, c.heads_q, c.seq_q, c.dqk, c.gap, nan),
      k(c.batch, c.heads_kv, c.seq_kv, c.dqk, c.gap, nan),
      v(c.batch, c.heads_kv, c.dv, padded, 0, nan);
  std::mt19937 random(static_cast<uint32_t>(c.seq_q * 31 + c.seq_kv));
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::vector<float> direction(static_cast<size_t>(c.dqk));
  for (float& x : direction) x = normal(random);
  for (int b = 0; b < c.batch; ++b) {
    for (int h = 0; h < c.heads_q; ++h) {
      for (int i = 0; i < c.seq_q; ++i) {
        for (int d = 0; d < c.dqk; ++d) {
          const float along = c.sink != 0 || c.late != 0 ? direction[static_cast<size_t>(d)] : 0.0f;
          q.At(b, h, i, d) = encode(c.spread * normal(random) + 0.8f * along);
        }
      }
    }
    for (int h = 0; h < c.heads_kv; ++h) {
      for (int j = 0; j < c.seq_kv; ++j) {
        const float along = j == 0 ? c.sink : j == c.seq_kv - 1 ? c.late : 0.0f;
        const float size = c.spread * (1.0f + (c.growth - 1.0f) * static_cast<float>(j) /
                                                  static_cast<float>(c.seq_kv));
        for (int d = 0; d < c.dqk; ++d)
          k.At(b, h, j, d) =
              encode(size * normal(random) + along * direction[static_cast<size_t>(d)]);
        for (int d = 0; d < c.dv; ++d) {
          v.At(b, h, d, j) = encode((normal(random) + c.value_mean) * (along != 0 ? 0.05f : 1.0f));
        }
      }
      if (c.nan_key >= 0) k.At(b, h, c.nan_key, 5) = nan;
      if (c.nan_value >= 0) v.At(b, h, 3, c.nan_value) = nan;
    }
    if (c.nan_query >= 0) q.At(b, 0, c.nan_query, 7) = nan;
  }
  Scales k_scale = MakeScales(c.batch * c.heads_kv, c.seq_kv, c.k_scale_rows, c.random_scales,
                              c.exact_exponents, &random);
  if (c.nan_k_scale >= 0)
    k_scale.value[static_cast<size_t>(c.nan_k_scale)] = std::numeric_limits<float>::quiet_NaN();
  const Scales q_scale = MakeScales(c.batch * c.heads_q, c.seq_q, c.q_scale_rows, c.random_scales,
                                    c.exact_exponents, &random),
               v_scale = MakeScales(c.batch * c.heads_kv, 1, 0, c.random_scales, false, &random);
  std::vector<float> shift(static_cast<size_t>(c.batch * c.heads_q * c.seq_q));
  for (float& x : shift) x = normal(random);
  std::vector<float> lse(shift.size(), 77.0f);
  const int64_t o_row = c.dv + c.gap;
  std::vector<uint16_t> o(static_cast<size_t>(c.batch * c.heads_q * c.seq_q * o_row) + 1,
                          kUntouched);

  std::string problem = absl::StrCat(
      "attention_forward_fp8:dtype=", fnuz ? "e4m3fnuz" : "e4m3", ",batch=", c.batch,
      ",heads_q=", c.heads_q, ",heads_kv=", c.heads_kv, ",seq_q=", c.seq_q, ",seq_kv=", c.seq_kv,
      ",dqk=", c.dqk, ",dv=", c.dv, ",causal=", c.causal ? 1 : 0, ",lse=", c.lse ? 1 : 0,
      ",lse_shift=", c.lse_shift ? 1 : 0, ",exact_exponents=", c.exact_exponents ? 1 : 0,
      ",accuracy=", c.accuracy, ",q_scale_rows=", c.q_scale_rows, ",k_scale_rows=", c.k_scale_rows);
  for (const auto& [name, t] : {std::pair<const char*, const Bytes*>{"q", &q}, {"k", &k}}) {
    absl::StrAppend(&problem, ",", name, "_stride_b=", t->stride_b, ",", name,
                    "_stride_h=", t->stride_h, ",", name, "_stride_s=", t->stride_s);
  }
  absl::StrAppend(&problem, ",v_stride_b=", v.stride_b, ",v_stride_h=", v.stride_h,
                  ",v_stride_d=", v.stride_s, ",o_stride_b=", o_row * c.seq_q * c.heads_q,
                  ",o_stride_h=", o_row * c.seq_q, ",o_stride_s=", o_row);
  absl::StatusOr<EmulatedVariant> variant =
      SpecializeForEmulator(problem, c.kernel, c.tune, c.architecture);
  if (!variant.ok()) return variant.status();
  float scale = c.scale;
  if (scale == 0) {
    scale = c.exact_exponents ? 0.125f / 1.44269504f : 1.0f / std::sqrt(static_cast<float>(c.dqk));
  }
  const auto floats = [](const char* name, const std::vector<float>& x) {
    return EmulatorArgument::Buffer(name, x.data(), x.size() * 4);
  };
  variant->launch.arguments = {
      EmulatorArgument::Buffer("q", q.data.data(), q.data.size()),
      EmulatorArgument::Buffer("k", k.data.data(), k.data.size()),
      EmulatorArgument::Buffer("v", v.data.data(), v.data.size()),
      floats("q_scale", q_scale.value),
      floats("k_scale", k_scale.value),
      floats("v_scale", v_scale.value),
      c.lse_shift ? floats("lse_shift", shift) : EmulatorArgument::Buffer("lse_shift", nullptr, 0),
      EmulatorArgument::Writable("o", o.data(), o.size() * 2),
      EmulatorArgument::Writable("lse", c.lse ? lse.data() : nullptr, c.lse ? lse.size() * 4 : 0),
      EmulatorArgument::Scalar(scale)};
  absl::StatusOr<EmulatorReport> report = player(*variant);
  if (!report.ok()) return report.status();

  AttentionFp8Result result;
  result.report = *report;
  double difference = 0, norm = 0;
  std::vector<double> p(static_cast<size_t>(c.seq_kv)), want(static_cast<size_t>(c.dv)),
      query(static_cast<size_t>(c.dqk));
  for (int b = 0; b < c.batch; ++b) {
    for (int h = 0; h < c.heads_q; ++h) {
      const int kv = h / (c.heads_q / c.heads_kv);
      const int64_t head_kv = int64_t{b} * c.heads_kv + kv, head_q = int64_t{b} * c.heads_q + h;
      for (int i = 0; i < c.seq_q; ++i) {
        const int visible =
            c.causal ? std::clamp(i + 1 + c.seq_kv - c.seq_q, 0, c.seq_kv) : c.seq_kv;
        for (int d = 0; d < c.dqk; ++d) query[static_cast<size_t>(d)] = decode[q.At(b, h, i, d)];
        double top = -std::numeric_limits<double>::infinity();
        bool bad = false;
        for (int j = 0; j < visible; ++j) {
          double dot = 0;
          for (int d = 0; d < c.dqk; ++d)
            dot += query[static_cast<size_t>(d)] * decode[k.At(b, kv, j, d)];
          dot *= static_cast<double>(scale) * q_scale.Of(head_q, i) * k_scale.Of(head_kv, j);
          p[static_cast<size_t>(j)] = dot;
          top = std::max(top, dot);
          bad |= std::isnan(dot);
        }
        double sum = 0;
        std::fill(want.begin(), want.end(), 0.0);
        for (int j = 0; j < visible; ++j) {
          const double weight =
              bad ? p[static_cast<size_t>(j)] : std::exp(p[static_cast<size_t>(j)] - top);
          sum += weight;
          for (int d = 0; d < c.dv; ++d)
            want[static_cast<size_t>(d)] += weight * decode[v.At(b, kv, d, j)];
        }
        if (bad) sum = std::nan("");
        const size_t at = static_cast<size_t>((head_q * c.seq_q + i) * o_row);
        double row_difference = 0, row_norm = 0;
        for (int d = 0; d < c.dv; ++d) {
          const double expected =
              visible > 0 ? want[static_cast<size_t>(d)] / sum * v_scale.Of(head_kv, 0) : 0;
          const double got = DecodeFloat(NumberFormat::kBf16, o[at + static_cast<size_t>(d)]);
          if (std::isnan(expected) != std::isnan(got)) ++result.wrong_nans;
          if (std::isnan(expected) || std::isnan(got)) continue;
          row_difference += (got - expected) * (got - expected);
          row_norm += expected * expected;
        }
        for (int g = 0; g < c.gap; ++g)
          result.untouched_gaps &= o[at + static_cast<size_t>(c.dv + g)] == kUntouched;
        difference += row_difference;
        norm += row_norm;
        if (row_norm > 0)
          result.worst_row = std::max(result.worst_row, std::sqrt(row_difference / row_norm));
        if (!c.lse) continue;
        const double expected =
            visible > 0
                ? top + std::log(sum) +
                      (c.lse_shift
                           ? static_cast<double>(shift[static_cast<size_t>(head_q * c.seq_q + i)])
                           : 0)
                : -std::numeric_limits<double>::infinity();
        const double got = lse[static_cast<size_t>(head_q * c.seq_q + i)];
        if (std::isnan(expected) || std::isnan(got)) {
          result.wrong_nans += std::isnan(expected) != std::isnan(got);
          continue;
        }
        const double error = expected == got ? 0
                             : std::isfinite(expected) && std::isfinite(got)
                                 ? std::fabs(expected - got)
                                 : 1e30;
        result.lse_error = std::max(result.lse_error, error);
      }
    }
  }
  result.output_error = norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
  return result;
}

}  // namespace whet::emulator
