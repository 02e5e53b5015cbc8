// Attention forward on the host: problems from q, k and v, and the float64 reference.
//
//   o = softmax(scale * q k^T) v for each head; key j is visible to row i of a causal problem when
//   j <= i + seq_kv - seq_q. A row with no visible key is 0, its log-sum-exp -infinity.
#pragma once

#include <string>
#include <vector>

#include "src/ops/attention_reference.h"
#include "src/ops/operation.h"

namespace whet {

class AttentionForward final : public Operation {
 public:
  absl::string_view name() const override { return "attention_forward"; }
  std::vector<std::string> InputNames() const override { return {"q", "k", "v"}; }
  // BF16, causal, 8 heads of 128, 1024 tokens.
  FieldValues ExampleFields() const override;
  // seq_kv = seq_q, heads_kv = heads_q, dv = dqk, causal = 0; contiguous [batch, heads, seq, dim].
  FieldValues CompleteFields(FieldValues fields) const override;
  // q, k and v, each [batch, heads, seq, dim]; transposed views are fine.
  absl::StatusOr<FieldValues> FieldsFromTensors(const NamedTensors& tensors,
                                                FieldValues fields) const override;
  // scale = 1 / sqrt(dqk)
  double DefaultScalar(const Problem& problem, absl::string_view argument) const override;
  absl::StatusOr<std::vector<OutputCheck>> Check(const Problem& problem,
                                                 const OperationTensors& before,
                                                 const OperationTensors& after,
                                                 const CheckOptions& options) const override;
  // 2 (dqk + dv) for each visible pair of each query head.
  OperationWork Work(const Problem& problem) const override;
};

}  // namespace whet
