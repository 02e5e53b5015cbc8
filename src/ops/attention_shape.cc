#include "src/ops/attention_shape.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "src/ops/attention_reference.h"

namespace whet {
namespace {

int64_t SaturatedProduct(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<int64_t>::max() : product;
}

}  // namespace

void CompleteAttentionShape(FieldValues* fields) {
  SetDefaultField(fields, "seq_kv", IntegerField(*fields, "seq_q", 0));
  SetDefaultField(fields, "heads_kv", IntegerField(*fields, "heads_q", 0));
  SetDefaultField(fields, "dv", IntegerField(*fields, "dqk", 0));
  SetDefaultField(fields, "causal", int64_t{0});
}

void SetPackedStrides(FieldValues* fields, absl::string_view tensor, absl::string_view row,
                      int64_t heads, int64_t rows, int64_t pitch) {
  const int64_t head = SaturatedProduct(rows, pitch);
  SetDefaultField(fields, absl::StrCat(tensor, "_stride_b"), SaturatedProduct(heads, head));
  SetDefaultField(fields, absl::StrCat(tensor, "_stride_h"), head);
  SetDefaultField(fields, absl::StrCat(tensor, "_stride_", row), pitch);
}

double DefaultAttentionScale(int64_t dim) {
  return 1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, dim)));
}

double AttentionFlops(const Problem& problem) {
  const double pairs = VisiblePairs(problem.Integer("seq_q"), problem.Integer("seq_kv"),
                                    problem.Integer("causal") != 0);
  const double dims =
      static_cast<double>(problem.Integer("dqk")) + static_cast<double>(problem.Integer("dv"));
  return 2 * dims * static_cast<double>(problem.Integer("batch")) *
         static_cast<double>(problem.Integer("heads_q")) * pairs;
}

}  // namespace whet
