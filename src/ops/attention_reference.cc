#include "src/ops/attention_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/base/parallel.h"

namespace whet {
namespace {

std::vector<double> RowValues(const HostTensor& tensor, int64_t offset, int64_t length) {
  std::vector<double> values(static_cast<size_t>(length));
  for (int64_t i = 0; i < length; ++i) {
    values[static_cast<size_t>(i)] = tensor.At(offset + i * tensor.RowStride());
  }
  return values;
}

std::vector<double> HeadValues(const HostTensor& tensor, int64_t batch, int64_t head) {
  const std::vector<int64_t>& shape = tensor.shape();
  const std::vector<int64_t>& strides = tensor.strides();
  std::vector<double> values;
  values.reserve(static_cast<size_t>(shape[2] * shape[3]));
  for (int64_t s = 0; s < shape[2]; ++s) {
    const int64_t offset = batch * strides[0] + head * strides[1] + s * strides[2];
    for (int64_t d = 0; d < shape[3]; ++d) values.push_back(tensor.At(offset + d * strides[3]));
  }
  return values;
}

// A head (over batch and query heads) and the rows of it that are compared.
struct SampledHead {
  int64_t index = 0;
  DifferenceSum o = {};
  DifferenceSum lse = {};
};

}  // namespace

double VisiblePairs(int64_t seq_q, int64_t seq_kv, bool causal) {
  if (!causal) return static_cast<double>(seq_q) * static_cast<double>(seq_kv);
  // Row i sees clamp(i + seq_kv - seq_q + 1, 0, seq_kv) keys: an arithmetic series up to seq_kv.
  const double first = std::max<double>(0, static_cast<double>(seq_kv - seq_q + 1));
  const double last = static_cast<double>(seq_kv);
  const double rows = seq_q == 0 ? 0 : last - first + 1;
  return rows <= 0 ? 0 : rows * (first + last) / 2;
}

AttentionReferenceHead::AttentionReferenceHead(const HostTensor& k, const HostTensor& v,
                                               int64_t batch, int64_t head_kv)
    : seq_kv_(k.shape()[2]),
      dqk_(k.shape()[3]),
      dv_(v.shape()[3]),
      k_(HeadValues(k, batch, head_kv)),
      v_(HeadValues(v, batch, head_kv)) {}

double AttentionReferenceHead::Row(const std::vector<double>& q, double scale, int64_t visible,
                                   std::vector<double>* o) const {
  o->assign(static_cast<size_t>(dv_), 0.0);
  visible = std::clamp<int64_t>(visible, 0, seq_kv_);
  if (visible == 0) return -std::numeric_limits<double>::infinity();
  std::vector<double> logits(static_cast<size_t>(visible));
  for (int64_t j = 0; j < visible; ++j) {
    const double* key = k_.data() + j * dqk_;
    double sum = 0;
    for (int64_t d = 0; d < dqk_; ++d) sum += q[static_cast<size_t>(d)] * key[d];
    logits[static_cast<size_t>(j)] = scale * sum;
  }
  const double largest = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (int64_t j = 0; j < visible; ++j) {
    const double weight = std::exp(logits[static_cast<size_t>(j)] - largest);
    total += weight;
    const double* value = v_.data() + j * dv_;
    for (int64_t d = 0; d < dv_; ++d) (*o)[static_cast<size_t>(d)] += weight * value[d];
  }
  for (double& x : *o) x /= total;
  return largest + std::log(total);
}

void AttentionReferenceHead::ScaleKey(int64_t row, double factor) {
  for (int64_t d = 0; d < dqk_; ++d) k_[static_cast<size_t>(row * dqk_ + d)] *= factor;
}

void AttentionReferenceHead::ScaleValues(double factor) {
  for (double& x : v_) x *= factor;
}

std::vector<OutputCheck> CheckAttention(const Problem& problem, const AttentionInputs& inputs,
                                        const HostTensor& o, const HostTensor& lse,
                                        const CheckOptions& options) {
  const HostTensor& q = inputs.q;
  const int64_t heads_q = problem.Integer("heads_q");
  const int64_t group = heads_q / problem.Integer("heads_kv");
  const int64_t seq_q = problem.Integer("seq_q");
  const int64_t seq_kv = problem.Integer("seq_kv");
  const int64_t dqk = problem.Integer("dqk");
  const int64_t dv = problem.Integer("dv");
  const bool causal = problem.Integer("causal") != 0;
  const int64_t heads = problem.Integer("batch") * heads_q;

  // Half of the limit may go into more heads, since a head costs a decode of its keys and values.
  const double row_work = static_cast<double>(std::max<int64_t>(1, seq_kv * (dqk + dv)));
  const double row_limit = options.work_limit > 0 ? std::max(1.0, options.work_limit / row_work)
                                                  : std::numeric_limits<double>::max();
  const bool all = row_limit >= static_cast<double>(heads) * static_cast<double>(seq_q);
  const int64_t head_count =
      all ? heads
          : std::min<int64_t>(heads, std::max<int64_t>(2, static_cast<int64_t>(row_limit / 32)));
  const int64_t row_count =
      all ? seq_q : static_cast<int64_t>(row_limit / static_cast<double>(head_count)) + 1;
  const std::vector<int64_t> rows = EvenSample(seq_q, row_count);
  std::vector<SampledHead> sampled;
  for (const int64_t head : EvenSample(heads, head_count)) sampled.push_back({.index = head});

  ParallelFor(sampled.size(), AvailableProcessors(), [&](size_t i) {
    SampledHead& head = sampled[i];
    const int64_t b = head.index / heads_q;
    const int64_t h = head.index % heads_q;
    AttentionReferenceHead reference(inputs.k, inputs.v, b, h / group);
    if (inputs.k_factor) {
      for (int64_t j = 0; j < seq_kv; ++j) reference.ScaleKey(j, inputs.k_factor(b, h / group, j));
    }
    if (inputs.v_factor) reference.ScaleValues(inputs.v_factor(b, h / group));
    std::vector<double> expected;
    for (const int64_t s : rows) {
      const int64_t q_offset = b * q.strides()[0] + h * q.strides()[1] + s * q.strides()[2];
      const int64_t visible = causal ? s + seq_kv - seq_q + 1 : seq_kv;
      const double scale = inputs.scale * (inputs.q_factor ? inputs.q_factor(b, h, s) : 1);
      double expected_lse = reference.Row(RowValues(q, q_offset, dqk), scale, visible, &expected);
      if (inputs.lse_shift) expected_lse += inputs.lse_shift(b, h, s);
      const int64_t o_offset = b * o.strides()[0] + h * o.strides()[1] + s * o.strides()[2];
      for (int64_t d = 0; d < dv; ++d) {
        head.o.Add(o.At(o_offset + d), expected[static_cast<size_t>(d)]);
      }
      if (lse.present()) {
        head.lse.Add(lse.At(b * lse.strides()[0] + h * lse.strides()[1] + s), expected_lse);
      }
    }
  });

  DifferenceSum o_sum;
  DifferenceSum lse_sum;
  for (const SampledHead& head : sampled) {
    o_sum.Merge(head.o);
    lse_sum.Merge(head.lse);
  }
  const int64_t compared = static_cast<int64_t>(rows.size() * sampled.size());
  std::vector<OutputCheck> checks = {{.argument = "o",
                                      .relative_l2 = o_sum.RelativeL2(),
                                      .largest_difference = o_sum.largest(),
                                      .rows_compared = compared,
                                      .rows_total = heads * seq_q}};
  if (lse.present()) {
    checks.push_back({.argument = "lse",
                      .relative_l2 = lse_sum.RelativeL2(),
                      .largest_difference = lse_sum.largest(),
                      .rows_compared = compared,
                      .rows_total = heads * seq_q});
  }
  return checks;
}

}  // namespace whet
