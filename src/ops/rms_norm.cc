#include "src/ops/rms_norm.h"

#include <cmath>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace whet {
namespace {

// What the operation defines as h: the sum rounded to the dtype.
double Rounded(DType dtype, double value) {
  std::byte element[8];
  EncodeElement(dtype, value, element);
  return DecodeElement(dtype, element);
}

}  // namespace

FieldValues RmsNorm::ExampleFields() const {
  return {{"dtype", "bf16"}, {"rows", int64_t{4096}}, {"columns", int64_t{4096}}};
}

FieldValues RmsNorm::CompleteFields(FieldValues fields) const {
  SetDefaultField(&fields, "residual", int64_t{0});
  SetDefaultField(&fields, "x_stride", IntegerField(fields, "columns", 0));
  return fields;
}

absl::StatusOr<FieldValues> RmsNorm::FieldsFromTensors(const NamedTensors& tensors,
                                                       FieldValues fields) const {
  const HostTensor* x = FindTensor(tensors, "x");
  if (x == nullptr) {
    return absl::InvalidArgumentError(
        "cannot make an rms_norm problem of the given tensors: x is missing");
  }
  if (x->shape().size() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot make an rms_norm problem: x has ", x->shape().size(), " dimensions, ",
                     ShapeText(x->shape()), ", but must have 2, [rows, columns]; reshape it"));
  }
  const bool fused = FindTensor(tensors, "residual") != nullptr;
  absl::Status merged = MergeField(&fields, "dtype", std::string(DTypeName(x->dtype())), "x");
  if (merged.ok()) merged = MergeField(&fields, "rows", x->shape()[0], "x");
  if (merged.ok()) merged = MergeField(&fields, "columns", x->shape()[1], "x");
  if (merged.ok()) merged = MergeField(&fields, "x_stride", x->strides()[0], "x");
  if (merged.ok() && fused) merged = MergeField(&fields, "residual", int64_t{1}, "residual");
  if (!merged.ok()) return merged;
  return fields;
}

double RmsNorm::DefaultScalar(const Problem&, absl::string_view argument) const {
  return argument == "epsilon" ? 1e-6 : 1;
}

OperationWork RmsNorm::Work(const Problem& problem) const {
  const double elements = static_cast<double>(problem.Integer("rows")) *
                          static_cast<double>(problem.Integer("columns"));
  double element_bytes = 2;
  if (absl::StatusOr<DType> dtype = ParseDType(ValueText(*problem.Find("dtype"))); dtype.ok()) {
    element_bytes = static_cast<double>(DTypeBytes(*dtype));
  }
  // Read x, write y; the residual is read and written.
  const double passes = problem.Integer("residual") != 0 ? 4 : 2;
  return {.flops = 4 * elements, .bytes = passes * elements * element_bytes, .by_bytes = true};
}

absl::StatusOr<std::vector<OutputCheck>> RmsNorm::Check(const Problem& problem,
                                                        const OperationTensors& before,
                                                        const OperationTensors& after,
                                                        const CheckOptions& options) const {
  const HostTensor& x = before.Find("x");
  const HostTensor& residual = before.Find("residual");
  const HostTensor& weight = before.Find("weight");
  const double epsilon = before.Find("epsilon").At(0);
  const HostTensor& y = after.Find("y");
  const HostTensor& updated = after.Find("residual");
  const int64_t rows = problem.Integer("rows");
  const int64_t columns = problem.Integer("columns");
  int64_t count = rows;
  if (options.work_limit > 0) {
    const double limit = options.work_limit / (8.0 * static_cast<double>(columns));
    if (limit < static_cast<double>(rows)) count = static_cast<int64_t>(limit) + 1;
  }
  DifferenceSum y_sum;
  DifferenceSum residual_sum;
  std::vector<double> h(static_cast<size_t>(columns));
  const std::vector<int64_t> sample = EvenSample(rows, count);
  for (const int64_t row : sample) {
    double squares = 0;
    for (int64_t c = 0; c < columns; ++c) {
      double value = x.At(row * x.strides()[0] + c);
      if (residual.present()) {
        value = Rounded(x.dtype(), value + residual.At(row * columns + c));
        residual_sum.Add(updated.At(row * columns + c), value);
      }
      h[static_cast<size_t>(c)] = value;
      squares += value * value;
    }
    const double scale = 1 / std::sqrt(squares / static_cast<double>(columns) + epsilon);
    for (int64_t c = 0; c < columns; ++c) {
      y_sum.Add(y.At(row * columns + c), h[static_cast<size_t>(c)] * scale * weight.At(c));
    }
  }
  const auto compared = static_cast<int64_t>(sample.size());
  std::vector<OutputCheck> checks = {{.argument = "y",
                                      .relative_l2 = y_sum.RelativeL2(),
                                      .largest_difference = y_sum.largest(),
                                      .rows_compared = compared,
                                      .rows_total = rows}};
  if (residual.present()) {
    checks.push_back({.argument = "residual",
                      .relative_l2 = residual_sum.RelativeL2(),
                      .largest_difference = residual_sum.largest(),
                      .rows_compared = compared,
                      .rows_total = rows});
  }
  return checks;
}

}  // namespace whet
