#include "src/ops/attention_forward.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "src/ops/attention_shape.h"

namespace whet {
namespace {

constexpr absl::string_view kDimensions = "[batch, heads, sequence, head dimension]";

}  // namespace

FieldValues AttentionForward::ExampleFields() const {
  return {{"dtype", "bf16"},        {"batch", int64_t{1}}, {"heads_q", int64_t{8}},
          {"seq_q", int64_t{1024}}, {"dqk", int64_t{128}}, {"causal", int64_t{1}}};
}

FieldValues AttentionForward::CompleteFields(FieldValues fields) const {
  CompleteAttentionShape(&fields);
  const int64_t seq_q = IntegerField(fields, "seq_q", 0);
  const int64_t seq_kv = IntegerField(fields, "seq_kv", 0);
  const int64_t heads_q = IntegerField(fields, "heads_q", 0);
  const int64_t heads_kv = IntegerField(fields, "heads_kv", 0);
  const int64_t dqk = IntegerField(fields, "dqk", 0);
  const int64_t dv = IntegerField(fields, "dv", 0);
  SetPackedStrides(&fields, "q", "s", heads_q, seq_q, dqk);
  SetPackedStrides(&fields, "k", "s", heads_kv, seq_kv, dqk);
  SetPackedStrides(&fields, "v", "s", heads_kv, seq_kv, dv);
  SetPackedStrides(&fields, "o", "s", heads_q, seq_q, dv);
  return fields;
}

absl::StatusOr<FieldValues> AttentionForward::FieldsFromTensors(const NamedTensors& tensors,
                                                                FieldValues fields) const {
  static constexpr absl::string_view kFields[3][4] = {
      {"batch", "heads_q", "seq_q", "dqk"},
      {"batch", "heads_kv", "seq_kv", "dqk"},
      {"batch", "heads_kv", "seq_kv", "dv"},
  };
  static constexpr absl::string_view kNames[3] = {"q", "k", "v"};
  for (size_t t = 0; t < 3; ++t) {
    const HostTensor* tensor = FindTensor(tensors, kNames[t]);
    if (tensor == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot make an attention problem of the given tensors: ", kNames[t],
                       " is missing; give q, k and v"));
    }
    if (tensor->shape().size() != 4) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot make an attention problem: ", kNames[t], " has ",
                       tensor->shape().size(), " dimensions, ", ShapeText(tensor->shape()),
                       ", but must have 4, ", kDimensions, "; reshape it"));
    }
    if (tensor->strides()[3] != 1 && tensor->shape()[3] > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot make an attention problem: the last dimension of ", kNames[t],
                       " must be contiguous, but its strides are ", ShapeText(tensor->strides())));
    }
    absl::Status merged =
        MergeField(&fields, "dtype", std::string(DTypeName(tensor->dtype())), kNames[t]);
    for (size_t d = 0; merged.ok() && d < 4; ++d) {
      merged = MergeField(&fields, kFields[t][d], tensor->shape()[d], kNames[t]);
    }
    static constexpr absl::string_view kStrides[3] = {"_stride_b", "_stride_h", "_stride_s"};
    for (size_t d = 0; merged.ok() && d < 3; ++d) {
      merged = MergeField(&fields, absl::StrCat(kNames[t], kStrides[d]), tensor->strides()[d],
                          kNames[t]);
    }
    if (!merged.ok()) return merged;
  }
  return fields;
}

double AttentionForward::DefaultScalar(const Problem& problem, absl::string_view argument) const {
  if (argument != "scale") return 1;
  return DefaultAttentionScale(problem.Integer("dqk"));
}

OperationWork AttentionForward::Work(const Problem& problem) const {
  const auto extent = [&](absl::string_view name) {
    return static_cast<double>(problem.Integer(name));
  };
  const double dims = extent("dqk") + extent("dv");
  const Value* dtype_text = problem.Find("dtype");
  double element = 2;
  if (dtype_text != nullptr) {
    if (absl::StatusOr<DType> dtype = ParseDType(ValueText(*dtype_text)); dtype.ok()) {
      element = static_cast<double>(DTypeBytes(*dtype));
    }
  }
  return {.flops = AttentionFlops(problem),
          .bytes = element * extent("batch") * dims *
                   (extent("heads_q") * extent("seq_q") + extent("heads_kv") * extent("seq_kv"))};
}

absl::StatusOr<std::vector<OutputCheck>> AttentionForward::Check(
    const Problem& problem, const OperationTensors& before, const OperationTensors& after,
    const CheckOptions& options) const {
  const AttentionInputs inputs = {.q = before.Find("q"),
                                  .k = before.Find("k"),
                                  .v = before.Find("v"),
                                  .scale = before.Find("scale").At(0)};
  return CheckAttention(problem, inputs, after.Find("o"), after.Find("lse"), options);
}

}  // namespace whet
