// Row-wise RMS normalisation on the host: problems from x and weight, and the float64 reference.
//
//   y = x / sqrt(mean(x^2) + epsilon) * weight; with a residual, h = x + residual is rounded to the
//   dtype, written back, and takes the place of x.
#pragma once

#include <string>
#include <vector>

#include "src/ops/operation.h"

namespace whet {

class RmsNorm final : public Operation {
 public:
  absl::string_view name() const override { return "rms_norm"; }
  std::vector<std::string> InputNames() const override { return {"x", "residual", "weight"}; }
  // BF16, 4096 rows of 4096.
  FieldValues ExampleFields() const override;
  // residual = 0, x_stride = columns
  FieldValues CompleteFields(FieldValues fields) const override;
  // x [rows, columns], weight [columns], and residual [rows, columns] for the fused form.
  absl::StatusOr<FieldValues> FieldsFromTensors(const NamedTensors& tensors,
                                                FieldValues fields) const override;
  // epsilon = 1e-6
  double DefaultScalar(const Problem& problem, absl::string_view argument) const override;
  absl::StatusOr<std::vector<OutputCheck>> Check(const Problem& problem,
                                                 const OperationTensors& before,
                                                 const OperationTensors& after,
                                                 const CheckOptions& options) const override;
  OperationWork Work(const Problem& problem) const override;
};

}  // namespace whet
