#include "src/ops/quantize_fp8.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "src/base/parallel.h"
#include "src/ops/attention_forward_fp8.h"
#include "src/ops/attention_shape.h"

namespace whet {
namespace {

constexpr double kSmallestScale = 0x1p-120;

DType DTypeField(const Problem& problem, absl::string_view name) {
  return *ParseDType(ValueText(*problem.Find(name)));
}

// One head's elements in float64, as they are before they are rounded.
class Head {
 public:
  Head(const Problem& problem, const OperationTensors& inputs, int64_t index)
      : x_(inputs.Find("x")),
        rows_(problem.Integer("seq")),
        dim_(problem.Integer("dim")),
        rotate_(problem.Integer("rotate") != 0) {
    const int64_t heads = problem.Integer("heads");
    offset_ = index / heads * x_.strides()[0] + index % heads * x_.strides()[1];
    mean_.assign(static_cast<size_t>(dim_), 0.0);
    const int64_t center = problem.Integer("center");
    if (center == 2) {
      const HostTensor& given = inputs.Find("mean_in");
      for (int64_t d = 0; d < dim_; ++d) mean_[static_cast<size_t>(d)] = given.At(index * dim_ + d);
    }
    if (center != 1 || rows_ == 0) return;
    const bool sampled = problem.Integer("sampled_mean") != 0;
    int64_t counted = 0;
    for (int64_t row = 0; row < rows_; ++row) {
      if (sampled && !InSampledMean(row, rows_)) continue;
      const std::vector<double> values = Raw(row);
      for (size_t d = 0; d < values.size(); ++d) mean_[d] += values[d];
      ++counted;
    }
    for (double& m : mean_) {
      m /= static_cast<double>(counted);
      if (!std::isfinite(static_cast<float>(m))) m = 0;
    }
  }

  const std::vector<double>& mean() const { return mean_; }

  std::vector<double> Raw(int64_t row) const {
    std::vector<double> values(static_cast<size_t>(dim_));
    for (int64_t d = 0; d < dim_; ++d) {
      values[static_cast<size_t>(d)] = x_.At(offset_ + row * x_.strides()[2] + d * x_.RowStride());
    }
    return values;
  }

  std::vector<double> Row(int64_t row) const {
    std::vector<double> values = Raw(row);
    for (size_t d = 0; d < values.size(); ++d) values[d] -= mean_[d];
    if (rotate_) RotateRow(&values);
    return values;
  }

  // Of the finite elements of rows [first, last).
  double Largest(int64_t first, int64_t last) const {
    double largest = 0;
    for (int64_t row = first; row < last; ++row) {
      for (const double value : Row(row)) {
        if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
      }
    }
    return largest;
  }

 private:
  const HostTensor& x_;
  int64_t rows_;
  int64_t dim_;
  bool rotate_;
  int64_t offset_ = 0;
  std::vector<double> mean_;
};

// What is compared of one head.
struct HeadSums {
  DifferenceSum y = {}, scale = {}, mean = {}, lse_shift = {};
};

void CompareRow(const Problem& problem, const Head& head, int64_t index, int64_t row, double scale,
                const HostTensor& y, DType to, DifferenceSum* sum) {
  const int64_t heads = problem.Integer("heads");
  const bool transpose = problem.Integer("transpose") != 0;
  const std::vector<int64_t>& strides = y.strides();
  const int64_t offset = index / heads * strides[0] + index % heads * strides[1];
  const std::vector<double> values = head.Row(row);
  for (size_t d = 0; d < values.size(); ++d) {
    std::byte byte[8];
    EncodeElement(to, std::isfinite(values[d]) ? values[d] / scale : std::nan(""), byte);
    const int64_t place = transpose ? static_cast<int64_t>(d) * strides[2] + row
                                    : row * strides[2] + static_cast<int64_t>(d);
    sum->Add(y.At(offset + place), DecodeElement(to, byte));
  }
}

}  // namespace

bool CanRotate(int64_t dim) { return dim == 64 || dim == 128 || dim == 192 || dim == 256; }

void RotateRow(std::vector<double>* row) {
  std::vector<double>& x = *row;
  const size_t dim = x.size();
  const size_t transform = dim == 192 ? 64 : dim;
  for (size_t d = 0; d < dim; ++d) {
    if ((static_cast<uint32_t>((d & ~size_t{24}) + 1) * 0x9E3779B1u) >> 31 != 0) x[d] = -x[d];
  }
  for (size_t stride = 1; stride < transform; stride *= 2) {
    for (size_t i = 0; i < dim; ++i) {
      if ((i & stride) != 0) continue;
      const double a = x[i], b = x[i + stride];
      x[i] = a + b;
      x[i + stride] = a - b;
    }
  }
  for (double& value : x) value /= std::sqrt(static_cast<double>(transform));
  if (dim != 192) return;
  for (size_t i = 0; i < 64; ++i) {
    const double part = (x[i] + x[64 + i] + x[128 + i]) * (2.0 / 3);
    for (size_t j = i; j < dim; j += 64) x[j] -= part;
  }
}

bool InSampledMean(int64_t row, int64_t rows) {
  const auto chunk = static_cast<uint32_t>(row / 256);
  int64_t first = int64_t{chunk} * 256 + int64_t{chunk * 0x9e3779b1u >> 28} * 16;
  if (first >= rows) first = int64_t{chunk} * 256;
  return row >= first && row < first + 16;
}

double ScaleForLargest(double largest, double multiplier, DType to, bool power_of_two) {
  largest *= multiplier;
  if (!(largest > 0)) return multiplier;
  double scale = largest / (to == DType::kE4M3Fnuz ? 240 : 448);
  if (power_of_two) {
    int exponent = 0;
    const double mantissa = std::frexp(scale, &exponent);  // in [0.5, 1)
    scale = std::ldexp(1.0, mantissa == 0.5 ? exponent - 1 : exponent);
  }
  return std::max(scale, kSmallestScale);
}

FieldValues QuantizeFp8::ExampleFields() const {
  return {{"dtype", "bf16"},           {"to", "e4m3"},
          {"batch", int64_t{1}},       {"heads", int64_t{8}},
          {"seq", int64_t{4096}},      {"dim", int64_t{128}},
          {"scale_rows", int64_t{64}}, {"power_of_two", int64_t{1}}};
}

FieldValues QuantizeFp8::CompleteFields(FieldValues fields) const {
  const int64_t heads = IntegerField(fields, "heads", 0);
  const int64_t seq = IntegerField(fields, "seq", 0);
  const int64_t dim = IntegerField(fields, "dim", 0);
  const bool transpose = IntegerField(fields, "transpose", 0) != 0;
  const int64_t rows = transpose ? dim : seq;
  const int64_t pitch = transpose ? TransposedRowBytes(seq) : dim;
  SetPackedStrides(&fields, "x", "s", heads, seq, dim);
  SetPackedStrides(&fields, "y", "r", heads, rows, pitch);
  return fields;
}

absl::StatusOr<FieldValues> QuantizeFp8::FieldsFromTensors(const NamedTensors& tensors,
                                                           FieldValues fields) const {
  const HostTensor* x = FindTensor(tensors, "x");
  if (x == nullptr) {
    return absl::InvalidArgumentError(
        "cannot make a quantize_fp8 problem of the given tensors: x is missing");
  }
  if (x->shape().size() != 4) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot make a quantize_fp8 problem: x has ", x->shape().size(),
                     " dimensions, ", ShapeText(x->shape()),
                     ", but must have 4, [batch, heads, sequence, head dimension]; reshape it"));
  }
  if (x->strides()[3] != 1 && x->shape()[3] > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot make a quantize_fp8 problem: the last dimension of x must be "
                     "contiguous, but its strides are ",
                     ShapeText(x->strides())));
  }
  absl::Status merged = MergeField(&fields, "dtype", std::string(DTypeName(x->dtype())), "x");
  static constexpr absl::string_view kExtents[4] = {"batch", "heads", "seq", "dim"};
  static constexpr absl::string_view kStrides[3] = {"x_stride_b", "x_stride_h", "x_stride_s"};
  for (size_t d = 0; merged.ok() && d < 4; ++d) {
    merged = MergeField(&fields, kExtents[d], x->shape()[d], "x");
  }
  for (size_t d = 0; merged.ok() && d < 3; ++d) {
    merged = MergeField(&fields, kStrides[d], x->strides()[d], "x");
  }
  if (!merged.ok()) return merged;
  if (FindTensor(tensors, "mean_in") != nullptr && IntegerField(fields, "lse_shift", 0) == 0) {
    SetDefaultField(&fields, "center", int64_t{2});
  }
  return fields;
}

double QuantizeFp8::DefaultScalar(const Problem& problem, absl::string_view argument) const {
  if (argument != "logit_scale") return 1;
  return DefaultAttentionScale(problem.Integer("dim"));
}

absl::Status QuantizeFp8::FillInput(const Problem&, const DataRequest& data,
                                    const Argument& argument, HostTensor* tensor) const {
  if (argument.name != "workspace") return FillData(data, argument.name, tensor);
  for (int64_t i = 0; i < tensor->elements(); ++i) tensor->Set(i, 0);
  return absl::OkStatus();
}

absl::Status QuantizeFp8::CheckInputs(const Problem&, const OperationTensors& inputs) const {
  const double multiplier = inputs.Find("multiplier").At(0);
  if (std::isfinite(multiplier) && multiplier > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("cannot quantise with a multiplier of ",
                                                 multiplier, ": it must be finite and positive"));
}

OperationWork QuantizeFp8::Work(const Problem& problem) const {
  const double elements = static_cast<double>(problem.Integer("batch")) *
                          static_cast<double>(problem.Integer("heads")) *
                          static_cast<double>(problem.Integer("seq")) *
                          static_cast<double>(problem.Integer("dim"));
  const double from = static_cast<double>(DTypeBytes(DTypeField(problem, "dtype")));
  return {.flops = 0, .bytes = elements * (from + 1), .by_bytes = true};
}

absl::StatusOr<std::vector<OutputCheck>> QuantizeFp8::Check(const Problem& problem,
                                                            const OperationTensors& before,
                                                            const OperationTensors& after,
                                                            const CheckOptions& options) const {
  const int64_t rows = problem.Integer("seq");
  const int64_t dim = problem.Integer("dim");
  const int64_t heads = problem.Integer("batch") * problem.Integer("heads");
  const int64_t scale_rows = problem.Integer("scale_rows");
  const bool per_tensor = problem.Integer("per_tensor") != 0;
  const bool power_of_two = problem.Integer("power_of_two") != 0;
  const DType to = DTypeField(problem, "to");
  const double multiplier = before.Find("multiplier").At(0);
  const double logit_scale = before.Find("logit_scale").At(0);
  const HostTensor& mean_in = before.Find("mean_in");
  const HostTensor& y = after.Find("y");
  const HostTensor& scale = after.Find("scale");
  const HostTensor& mean = after.Find("mean");
  const HostTensor& lse_shift = after.Find("lse_shift");
  const int64_t blocks = scale.shape()[2];

  // A head is looked at whole: its mean and its largest element need every row.
  const double head_work = 60.0 * static_cast<double>(rows * dim) + 1;
  const int64_t count =
      options.work_limit > 0 && !per_tensor
          ? std::min(heads,
                     std::max<int64_t>(2, static_cast<int64_t>(options.work_limit / head_work)))
          : heads;
  const std::vector<int64_t> sample = EvenSample(heads, count);
  double tensor_largest = 0;
  if (per_tensor) {
    for (int64_t h = 0; h < heads; ++h) {
      tensor_largest = std::max(tensor_largest, Head(problem, before, h).Largest(0, rows));
    }
  }
  std::vector<HeadSums> sums(sample.size());
  ParallelFor(sample.size(), AvailableProcessors(), [&](size_t i) {
    const int64_t index = sample[i];
    const Head head(problem, before, index);
    HeadSums& sum = sums[i];
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t first = block * scale_rows;
      const int64_t last = scale_rows == 0 ? rows : std::min(rows, first + scale_rows);
      const double largest = per_tensor ? tensor_largest : head.Largest(first, last);
      const double written = scale.At(index * blocks + block);
      sum.scale.Add(written, ScaleForLargest(largest, multiplier, to, power_of_two) / multiplier);
      for (int64_t row = first; row < last; ++row) {
        CompareRow(problem, head, index, row, written, y, to, &sum.y);
      }
    }
    for (int64_t d = 0; d < dim && mean.present(); ++d) {
      sum.mean.Add(mean.At(index * dim + d), head.mean()[static_cast<size_t>(d)]);
    }
    if (!lse_shift.present()) return;
    const int64_t mean_head =
        index / (heads / std::max<int64_t>(1, mean_in.shape()[0] * mean_in.shape()[1]));
    for (int64_t row = 0; row < rows; ++row) {
      const std::vector<double> q = head.Raw(row);
      double dot = 0;
      for (size_t d = 0; d < q.size(); ++d) {
        dot += q[d] * mean_in.At(mean_head * dim + static_cast<int64_t>(d));
      }
      sum.lse_shift.Add(lse_shift.At(index * rows + row), logit_scale * dot);
    }
  });
  std::vector<OutputCheck> checks;
  const auto add = [&](const char* name, const HostTensor& tensor, DifferenceSum HeadSums::*part) {
    if (!tensor.present()) return;
    DifferenceSum total;
    for (const HeadSums& sum : sums) total.Merge(sum.*part);
    checks.push_back({.argument = name,
                      .relative_l2 = total.RelativeL2(),
                      .largest_difference = total.largest(),
                      .rows_compared = static_cast<int64_t>(sample.size()) * rows,
                      .rows_total = heads * rows});
  };
  if (const HostTensor& workspace = after.Find("workspace"); workspace.present()) {
    DifferenceSum total;
    for (int64_t i = 0; i < workspace.elements(); ++i) total.Add(workspace.At(i), 0);
    checks.push_back({.argument = "workspace",
                      .relative_l2 = total.RelativeL2(),
                      .largest_difference = total.largest(),
                      .rows_compared = 1,
                      .rows_total = 1});
  }
  add("y", y, &HeadSums::y);
  add("scale", scale, &HeadSums::scale);
  add("mean", mean, &HeadSums::mean);
  add("lse_shift", lse_shift, &HeadSums::lse_shift);
  return checks;
}

}  // namespace whet
