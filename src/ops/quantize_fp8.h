// Quantisation to e4m3 on the host: problems from tensors, the definition in float64, and checks against it.
//
//   bytes = e4m3((x - mean) R * multiplier / s),  scale = s / multiplier
//
// so that a byte's value times its scale is the element of (x - mean) R. docs/fp8.md says what each part is for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/ops/operation.h"

namespace whet {

class QuantizeFp8 final : public Operation {
 public:
  absl::string_view name() const override { return "quantize_fp8"; }
  std::vector<std::string> InputNames() const override { return {"x", "mean_in"}; }
  // BF16 to e4m3, 8 heads of 128, 4096 tokens, one power-of-two scale for each 64 rows.
  FieldValues ExampleFields() const override;
  // Contiguous strides; rows of a transposed y padded to a multiple of 16 bytes.
  FieldValues CompleteFields(FieldValues fields) const override;
  // x [batch, heads, seq, dim]; mean_in [batch, heads, dim] means center=2 unless the problem says lse_shift.
  absl::StatusOr<FieldValues> FieldsFromTensors(const NamedTensors& tensors,
                                                FieldValues fields) const override;
  // multiplier = 1, logit_scale = 1 / sqrt(dim)
  double DefaultScalar(const Problem& problem, absl::string_view argument) const override;
  absl::Status FillInput(const Problem& problem, const DataRequest& data, const Argument& argument,
                         HostTensor* tensor) const override;
  // The multiplier must be finite and positive.
  absl::Status CheckInputs(const Problem& problem, const OperationTensors& inputs) const override;
  // Bytes are compared with those that the written scales ask for, scales and means with float64.
  absl::StatusOr<std::vector<OutputCheck>> Check(const Problem& problem,
                                                 const OperationTensors& before,
                                                 const OperationTensors& after,
                                                 const CheckOptions& options) const override;
  OperationWork Work(const Problem& problem) const override;
};

// Whether `dim` has a rotation.
bool CanRotate(int64_t dim);

// row <- row R, R the orthogonal matrix of docs/fp8.md: the sign of each channel, then a Hadamard transform of 64, 128 or 256,
// for 192 one of 64 and the reflection I - 2/3 J over the three parts. REQUIRES: CanRotate(row->size()).
void RotateRow(std::vector<double>* row);

// Whether the mean of a sample (the field sampled_mean) is taken over this of `rows` rows: 16 of every 256, in a row, at places
// that a hash scatters.
bool InSampledMean(int64_t row, int64_t rows);

// s for the largest magnitude of (x - mean) R * multiplier among the elements that share it: largest / 448 (240 for e4m3fnuz),
// rounded up to a power of two where asked. `multiplier` when there is nothing but zeros, so that the scale is 1.
double ScaleForLargest(double largest, double multiplier, DType to, bool power_of_two);

}  // namespace whet
