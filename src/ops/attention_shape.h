// What every attention operation derives from its shape alone, however its tensors are stored.
//
//   CompleteAttentionShape(&fields);                             // seq_kv, heads_kv, dv, causal
//   SetPackedStrides(&fields, "q", "s", heads_q, seq_q, dqk);    // q_stride_b, _h, _s
//   double flops = AttentionFlops(problem);
#pragma once

#include <cstdint>

#include "src/ops/operation.h"

namespace whet {

// Fills in what follows from the queries: as many keys and key heads as queries, dv = dqk, not
// causal. Given fields stay as they are.
void CompleteAttentionShape(FieldValues* fields);

// Fills in the strides, in elements, of a tensor [batch, heads, rows, pitch] without gaps, in the
// fields TENSOR_stride_b, TENSOR_stride_h and TENSOR_stride_ROW. Extents that overflow saturate:
// MakeProblem judges them.
void SetPackedStrides(FieldValues* fields, absl::string_view tensor, absl::string_view row,
                      int64_t heads, int64_t rows, int64_t pitch);

// 1 / sqrt(dim), the scale of the logits when the caller gives none.
double DefaultAttentionScale(int64_t dim);

// 2 (dqk + dv) for each query head and each pair of a query with a key that it sees.
double AttentionFlops(const Problem& problem);

}  // namespace whet
