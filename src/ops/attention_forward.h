// Attention forward on the host: problems from q, k and v, and the float64 reference.
//
//   o = softmax(scale * q k^T) v for each head; key j is visible to row i of a causal problem when
//   j <= i + seq_kv - seq_q. A row with no visible key is 0, its log-sum-exp -infinity.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

// Pairs of query row and visible key of one head.
double VisiblePairs(int64_t seq_q, int64_t seq_kv, bool causal);

// One head's keys and values in float64, and the rows of its output.
class AttentionReferenceHead {
 public:
  // `k` and `v` are [batch, heads_kv, seq_kv, dim].
  AttentionReferenceHead(const HostTensor& k, const HostTensor& v, int64_t batch, int64_t head_kv);

  // Attention of one query row over the first `visible` keys. `o` gets dv values; returns the
  // log-sum-exp, -infinity when nothing is visible.
  double Row(const std::vector<double>& q, double scale, int64_t visible,
             std::vector<double>* o) const;

 private:
  int64_t seq_kv_;
  int64_t dqk_;
  int64_t dv_;
  std::vector<double> k_;
  std::vector<double> v_;
};

}  // namespace whet
