// FP8 attention forward on the host: problems from e4m3 tensors, made-up inputs with sensible scales, and the float64
// reference on what the bytes and scales mean.
//
//   o = softmax(scale * (q q_scale) (k k_scale)^T) (v v_scale) for each head; v lies transposed, [batch, heads, dv, seq_kv].
#pragma once

#include <string>
#include <vector>

#include "src/ops/operation.h"

namespace whet {

class AttentionForwardFp8 final : public Operation {
 public:
  absl::string_view name() const override { return "attention_forward_fp8"; }
  std::vector<std::string> InputNames() const override;
  // e4m3, causal, 8 heads of 128, 1024 tokens.
  FieldValues ExampleFields() const override;
  // FNUZ bytes for gfx940 to gfx942.
  FieldValues ExampleFieldsFor(const Target& target) const override;
  // As for attention_forward; rows of v padded to a multiple of 16 bytes; one scale for each head.
  FieldValues CompleteFields(FieldValues fields) const override;
  // q and k [batch, heads, seq, dim], v [batch, heads_kv, dv, seq_kv], scales [batch, heads, blocks].
  // InvalidArgument when v is not transposed or a scale is missing.
  absl::StatusOr<FieldValues> FieldsFromTensors(const NamedTensors& tensors,
                                                FieldValues fields) const override;
  // scale = 1 / sqrt(dqk)
  double DefaultScalar(const Problem& problem, absl::string_view argument) const override;
  // Scales differ from block to block, and are what exact_exponents promises where it is set.
  absl::Status FillInput(const Problem& problem, const DataRequest& data, const Argument& argument,
                         HostTensor* tensor) const override;
  // Scales must be finite and positive.
  absl::Status CheckInputs(const Problem& problem, const OperationTensors& inputs) const override;
  absl::StatusOr<std::vector<OutputCheck>> Check(const Problem& problem,
                                                 const OperationTensors& before,
                                                 const OperationTensors& after,
                                                 const CheckOptions& options) const override;
  // The one formula of attention; bytes are those of e4m3 in and BF16 out.
  OperationWork Work(const Problem& problem) const override;
};

// Bytes from one channel of a transposed v to the next when nobody says otherwise: seq_kv in whole pieces of 16.
int64_t TransposedRowBytes(int64_t seq_kv);

// Index of the scale that a row of a head uses; rows_per_scale 0: one for all rows.
inline int64_t ScaleBlock(int64_t row, int64_t rows_per_scale) {
  return rows_per_scale == 0 ? 0 : row / rows_per_scale;
}

// InvalidArgument names the first scale that is not finite and positive, and says what to do.
absl::Status CheckScales(const HostTensor& scales, absl::string_view name);

}  // namespace whet
