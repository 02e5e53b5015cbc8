#include "src/ops/attention_forward.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "src/base/parallel.h"

namespace whet {
namespace {

constexpr absl::string_view kDimensions = "[batch, heads, sequence, head dimension]";

// Product of field values that MakeProblem has not judged yet; what overflows is out of range there.
int64_t Product(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<int64_t>::max() : product;
}

void SetContiguousStrides(FieldValues* fields, const std::string& tensor, int64_t heads,
                          int64_t sequence, int64_t dimension) {
  SetDefaultField(fields, tensor + "_stride_b", Product(Product(heads, sequence), dimension));
  SetDefaultField(fields, tensor + "_stride_h", Product(sequence, dimension));
  SetDefaultField(fields, tensor + "_stride_s", dimension);
}

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

FieldValues AttentionForward::ExampleFields() const {
  return {{"dtype", "bf16"},        {"batch", int64_t{1}}, {"heads_q", int64_t{8}},
          {"seq_q", int64_t{1024}}, {"dqk", int64_t{128}}, {"causal", int64_t{1}}};
}

FieldValues AttentionForward::CompleteFields(FieldValues fields) const {
  const int64_t seq_q = IntegerField(fields, "seq_q", 0);
  const int64_t heads_q = IntegerField(fields, "heads_q", 0);
  const int64_t dqk = IntegerField(fields, "dqk", 0);
  SetDefaultField(&fields, "seq_kv", seq_q);
  SetDefaultField(&fields, "heads_kv", heads_q);
  SetDefaultField(&fields, "dv", dqk);
  SetDefaultField(&fields, "causal", int64_t{0});
  const int64_t seq_kv = IntegerField(fields, "seq_kv", 0);
  const int64_t heads_kv = IntegerField(fields, "heads_kv", 0);
  const int64_t dv = IntegerField(fields, "dv", 0);
  SetContiguousStrides(&fields, "q", heads_q, seq_q, dqk);
  SetContiguousStrides(&fields, "k", heads_kv, seq_kv, dqk);
  SetContiguousStrides(&fields, "v", heads_kv, seq_kv, dv);
  SetContiguousStrides(&fields, "o", heads_q, seq_q, dv);
  return fields;
}

absl::StatusOr<FieldValues> AttentionForward::FieldsFromTensors(const NamedTensors& tensors,
                                                                FieldValues fields) const {
  static constexpr absl::string_view kFields[3][4] = {
      {"batch", "heads_q", "seq_q", "dqk"},
      {"batch", "heads_kv", "seq_kv", "dqk"},
      {"batch", "heads_kv", "seq_kv", "dv"},
  };
  static constexpr absl::string_view kNames[3] = {"q", "k", "v"};
  for (size_t t = 0; t < 3; ++t) {
    const HostTensor* tensor = FindTensor(tensors, kNames[t]);
    if (tensor == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot make an attention problem of the given tensors: ", kNames[t],
                       " is missing; give q, k and v"));
    }
    if (tensor->shape().size() != 4) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot make an attention problem: ", kNames[t], " has ",
                       tensor->shape().size(), " dimensions, ", ShapeText(tensor->shape()),
                       ", but must have 4, ", kDimensions, "; reshape it"));
    }
    if (tensor->strides()[3] != 1 && tensor->shape()[3] > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot make an attention problem: the last dimension of ", kNames[t],
                       " must be contiguous, but its strides are ", ShapeText(tensor->strides())));
    }
    absl::Status merged =
        MergeField(&fields, "dtype", std::string(DTypeName(tensor->dtype())), kNames[t]);
    for (size_t d = 0; merged.ok() && d < 4; ++d) {
      merged = MergeField(&fields, kFields[t][d], tensor->shape()[d], kNames[t]);
    }
    static constexpr absl::string_view kStrides[3] = {"_stride_b", "_stride_h", "_stride_s"};
    for (size_t d = 0; merged.ok() && d < 3; ++d) {
      merged = MergeField(&fields, absl::StrCat(kNames[t], kStrides[d]), tensor->strides()[d],
                          kNames[t]);
    }
    if (!merged.ok()) return merged;
  }
  return fields;
}

double AttentionForward::DefaultScalar(const Problem& problem, absl::string_view argument) const {
  if (argument != "scale") return 1;
  return 1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, problem.Integer("dqk"))));
}

OperationWork AttentionForward::Work(const Problem& problem) const {
  const auto extent = [&](absl::string_view name) {
    return static_cast<double>(problem.Integer(name));
  };
  const double pairs = VisiblePairs(problem.Integer("seq_q"), problem.Integer("seq_kv"),
                                    problem.Integer("causal") != 0);
  const double dims = extent("dqk") + extent("dv");
  const Value* dtype_text = problem.Find("dtype");
  double element = 2;
  if (dtype_text != nullptr) {
    if (absl::StatusOr<DType> dtype = ParseDType(ValueText(*dtype_text)); dtype.ok()) {
      element = static_cast<double>(DTypeBytes(*dtype));
    }
  }
  return {.flops = 2 * dims * extent("batch") * extent("heads_q") * pairs,
          .bytes = element * extent("batch") * dims *
                   (extent("heads_q") * extent("seq_q") + extent("heads_kv") * extent("seq_kv"))};
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

absl::StatusOr<std::vector<OutputCheck>> AttentionForward::Check(
    const Problem& problem, const OperationTensors& before, const OperationTensors& after,
    const CheckOptions& options) const {
  const HostTensor& q = before.Find("q");
  const HostTensor& k = before.Find("k");
  const HostTensor& v = before.Find("v");
  const HostTensor& o = after.Find("o");
  const HostTensor& lse = after.Find("lse");
  const double scale = before.Find("scale").At(0);
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
    const AttentionReferenceHead reference(k, v, b, h / group);
    std::vector<double> expected;
    for (const int64_t s : rows) {
      const int64_t q_offset = b * q.strides()[0] + h * q.strides()[1] + s * q.strides()[2];
      const int64_t visible = causal ? s + seq_kv - seq_q + 1 : seq_kv;
      const double expected_lse =
          reference.Row(RowValues(q, q_offset, dqk), scale, visible, &expected);
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
