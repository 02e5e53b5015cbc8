#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "src/model/template_data.h"

namespace whet {
namespace {

absl::StatusOr<std::vector<int64_t>> EvaluateAll(const std::vector<Expression>& expressions,
                                                 absl::string_view what, const Scope& scope) {
  std::vector<int64_t> out;
  for (const Expression& expression : expressions) {
    const absl::StatusOr<int64_t> value = expression.EvaluateInteger(scope);
    if (!value.ok()) return value.status();
    if (*value < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("a ", what, " is ", *value, ", below 0 (", expression.text(), ")"));
    }
    out.push_back(*value);
  }
  return out;
}

absl::Status TooLarge() {
  return absl::InvalidArgumentError("it spans more bytes than 63 bits can count");
}

absl::StatusOr<std::vector<int64_t>> ContiguousStrides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) {
    if (__builtin_mul_overflow(strides[i], shape[i], &strides[i - 1])) return TooLarge();
  }
  return strides;
}

absl::StatusOr<int64_t> SpanBytes(const Argument& argument) {
  int64_t last = 0;  // offset of the last element
  for (size_t i = 0; i < argument.shape.size(); ++i) {
    if (argument.shape[i] == 0) return 0;
  }
  for (size_t i = 0; i < argument.shape.size(); ++i) {
    int64_t reach = 0;
    if (__builtin_mul_overflow(argument.shape[i] - 1, argument.strides[i], &reach) ||
        __builtin_add_overflow(last, reach, &last)) {
      return TooLarge();
    }
  }
  int64_t bytes = 0;
  if (last == std::numeric_limits<int64_t>::max() ||
      __builtin_mul_overflow(last + 1, DTypeBytes(argument.dtype), &bytes)) {
    return TooLarge();
  }
  return bytes;
}

}  // namespace

absl::StatusOr<Argument> EvaluateArgument(const ArgumentSpec& spec, const Problem& problem,
                                          const Scope& scope) {
  Argument argument;
  argument.name = spec.name;
  argument.direction = spec.direction;
  const Value* field = problem.Find(spec.dtype);
  const absl::StatusOr<DType> dtype = ParseDType(field == nullptr ? spec.dtype : ValueText(*field));
  if (!dtype.ok()) return dtype.status();
  argument.dtype = *dtype;
  if (spec.when.has_value()) {
    const absl::StatusOr<bool> present = spec.when->EvaluateBool(scope);
    if (!present.ok()) return present.status();
    argument.present = *present;
  }
  absl::StatusOr<std::vector<int64_t>> shape = EvaluateAll(spec.shape, "extent", scope);
  if (!shape.ok()) return shape.status();
  argument.shape = *std::move(shape);
  absl::StatusOr<std::vector<int64_t>> strides = spec.strides.empty()
                                                     ? ContiguousStrides(argument.shape)
                                                     : EvaluateAll(spec.strides, "stride", scope);
  if (!strides.ok()) return strides.status();
  argument.strides = *std::move(strides);
  const absl::StatusOr<int64_t> span = SpanBytes(argument);
  if (!span.ok()) return span.status();
  argument.span_bytes = *span;
  return argument;
}

}  // namespace whet
