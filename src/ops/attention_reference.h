// Attention in float64 on the host, and the comparison of an output with it on a sample of rows: shared by every attention
// operation, whatever its tensors are stored as.
//
//   absl::StatusOr<std::vector<OutputCheck>> checks =
//       CheckAttention(problem, {.q = q, .k = k, .v = v, .scale = 0.125}, o, lse, {});
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "src/ops/operation.h"

namespace whet {

// Pairs of query row and visible key of one head.
double VisiblePairs(int64_t seq_q, int64_t seq_kv, bool causal);

// One head's keys and values in float64, and the rows of its output.
class AttentionReferenceHead {
 public:
  // `k` and `v` are [batch, heads_kv, seq_kv, dim].
  AttentionReferenceHead(const HostTensor& k, const HostTensor& v, int64_t batch, int64_t head_kv);

  // Multiplies a key's, or every value's, elements.
  void ScaleKey(int64_t row, double factor);
  void ScaleValues(double factor);

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

// What attention is computed from. Elements are multiplied by their factors as they are read.
struct AttentionInputs {
  HostTensor q, k, v;  // [batch, heads, sequence, dimension], any strides
  double scale = 1;
  // Absent: 1, and 0 for the shift. Called from several threads at once.
  std::function<double(int64_t batch, int64_t head, int64_t row)> q_factor = {};
  std::function<double(int64_t batch, int64_t head, int64_t row)> k_factor = {};
  std::function<double(int64_t batch, int64_t head)> v_factor = {};
  std::function<double(int64_t batch, int64_t head, int64_t row)> lse_shift = {};
};

// Compares `o` and, when present, `lse` with float64 mathematics on the inputs. The problem has the fields batch, heads_q,
// heads_kv, seq_q, seq_kv, dqk, dv and causal.
std::vector<OutputCheck> CheckAttention(const Problem& problem, const AttentionInputs& inputs,
                                        const HostTensor& o, const HostTensor& lse,
                                        const CheckOptions& options);

}  // namespace whet
