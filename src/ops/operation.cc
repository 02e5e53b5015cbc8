#include "src/ops/operation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/ops/attention_forward.h"
#include "src/ops/attention_forward_fp8.h"
#include "src/ops/quantize_fp8.h"
#include "src/ops/rms_norm.h"

namespace whet {
namespace {

class GenericOperation final : public Operation {
 public:
  absl::string_view name() const override { return ""; }
  FieldValues CompleteFields(FieldValues fields) const override { return fields; }
  absl::StatusOr<FieldValues> FieldsFromTensors(const NamedTensors&,
                                                FieldValues fields) const override {
    return fields;
  }
};

absl::Status MatchArgument(const Argument& argument, const HostTensor& tensor) {
  const bool contiguous = argument.strides == ContiguousStrides(argument.shape);
  if (tensor.dtype() == argument.dtype && tensor.shape() == argument.shape &&
      (tensor.strides() == argument.strides || tensor.elements() == 0)) {
    return absl::OkStatus();
  }
  std::string expected = absl::StrCat(DTypeName(argument.dtype), " ", ShapeText(argument.shape));
  if (!contiguous) absl::StrAppend(&expected, " with strides ", ShapeText(argument.strides));
  return absl::InvalidArgumentError(absl::StrCat("cannot use the tensor given for ", argument.name,
                                                 ": the problem asks for ", expected,
                                                 ", but it is ", tensor.ToString()));
}

}  // namespace

const HostTensor& OperationTensors::Find(absl::string_view argument) const {
  static const HostTensor* const absent = new HostTensor;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name == argument) return tensors[i];
  }
  return *absent;
}

absl::StatusOr<std::vector<OutputCheck>> Operation::Check(const Problem&, const OperationTensors&,
                                                          const OperationTensors&,
                                                          const CheckOptions&) const {
  return std::vector<OutputCheck>();
}

const Operation& OperationFor(absl::string_view template_name) {
  static const AttentionForward* const attention_forward = new AttentionForward;
  static const AttentionForwardFp8* const attention_forward_fp8 = new AttentionForwardFp8;
  static const QuantizeFp8* const quantize_fp8 = new QuantizeFp8;
  static const RmsNorm* const rms_norm = new RmsNorm;
  static const GenericOperation* const generic = new GenericOperation;
  if (template_name == attention_forward->name()) return *attention_forward;
  if (template_name == attention_forward_fp8->name()) return *attention_forward_fp8;
  if (template_name == quantize_fp8->name()) return *quantize_fp8;
  if (template_name == rms_norm->name()) return *rms_norm;
  return *generic;
}

absl::StatusOr<OperationTensors> MakeTensors(
    const Operation& operation, const Problem& problem, std::vector<Argument> arguments,
    const NamedTensors& given, const std::vector<std::pair<std::string, double>>& scalars,
    const DataRequest& data) {
  OperationTensors result;
  result.tensors.reserve(arguments.size());
  for (const Argument& argument : arguments) {
    if (!argument.present) {
      result.tensors.emplace_back();
      continue;
    }
    if (argument.direction == Direction::kScalar) {
      absl::StatusOr<HostTensor> scalar = HostTensor::Make(argument.dtype, {});
      if (!scalar.ok()) return scalar.status();
      double value = operation.DefaultScalar(problem, argument.name);
      for (const auto& [name, given_value] : scalars) {
        if (name == argument.name) value = given_value;
      }
      scalar->Set(0, value);
      result.tensors.push_back(*std::move(scalar));
      continue;
    }
    const HostTensor* tensor =
        argument.direction == Direction::kOut ? nullptr : FindTensor(given, argument.name);
    if (tensor != nullptr) {
      absl::Status match = MatchArgument(argument, *tensor);
      if (!match.ok()) return match;
      result.tensors.push_back(*tensor);
      continue;
    }
    absl::StatusOr<HostTensor> made =
        HostTensor::Make(argument.dtype, argument.shape, argument.strides);
    if (!made.ok()) return made.status();
    if (argument.direction != Direction::kOut) {
      absl::Status filled = operation.FillInput(problem, data, argument, &*made);
      if (!filled.ok()) return filled;
    }
    result.tensors.push_back(*std::move(made));
  }
  result.arguments = std::move(arguments);
  if (absl::Status s = operation.CheckInputs(problem, result); !s.ok()) return s;
  return result;
}

const Value* FindField(const FieldValues& fields, absl::string_view name) {
  for (const auto& [key, value] : fields) {
    if (key == name) return &value;
  }
  return nullptr;
}

void SetDefaultField(FieldValues* fields, absl::string_view name, Value value) {
  if (FindField(*fields, name) == nullptr)
    fields->emplace_back(std::string(name), std::move(value));
}

int64_t IntegerField(const FieldValues& fields, absl::string_view name, int64_t otherwise) {
  const Value* value = FindField(fields, name);
  if (value == nullptr) return otherwise;
  if (const int64_t* integer = std::get_if<int64_t>(value)) return *integer;
  int64_t parsed = 0;
  return absl::SimpleAtoi(std::get<std::string>(*value), &parsed) ? parsed : otherwise;
}

std::string ShortProblemText(absl::string_view template_name, const FieldValues& fields) {
  const Operation& operation = OperationFor(template_name);
  FieldValues kept = fields;
  for (size_t i = kept.size(); i-- > 0;) {
    FieldValues fewer = kept;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    const FieldValues completed = operation.CompleteFields(fewer);
    const bool same = std::all_of(fields.begin(), fields.end(), [&](const auto& field) {
      const Value* value = FindField(completed, field.first);
      return value != nullptr && *value == field.second;
    });
    if (same) kept = std::move(fewer);
  }
  return absl::StrCat(template_name, ":",
                      absl::StrJoin(kept, ",", [](std::string* out, const auto& field) {
                        absl::StrAppend(out, field.first, "=", ValueText(field.second));
                      }));
}

absl::Status MergeField(FieldValues* fields, absl::string_view name, Value value,
                        absl::string_view tensor) {
  const Value* known = FindField(*fields, name);
  if (known == nullptr) {
    fields->emplace_back(std::string(name), std::move(value));
    return absl::OkStatus();
  }
  if (ValueText(*known) == ValueText(value)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("cannot make a problem of the given tensors: ", tensor, " has ", name, " = ",
                   ValueText(value), ", but ", name, " = ", ValueText(*known),
                   " was given or seen before; make the tensors agree, or leave the field out"));
}

void DifferenceSum::Add(double actual, double expected) {
  if (!std::isfinite(actual) || !std::isfinite(expected)) {
    const bool same = actual == expected || (std::isnan(actual) && std::isnan(expected));
    misplaced_ = misplaced_ || !same;
    return;
  }
  const double difference = actual - expected;
  difference_squares_ += difference * difference;
  reference_squares_ += expected * expected;
  largest_ = std::max(largest_, std::fabs(difference));
}

void DifferenceSum::Merge(const DifferenceSum& other) {
  difference_squares_ += other.difference_squares_;
  reference_squares_ += other.reference_squares_;
  largest_ = std::max(largest_, other.largest_);
  misplaced_ = misplaced_ || other.misplaced_;
}

double DifferenceSum::RelativeL2() const {
  if (misplaced_) return std::numeric_limits<double>::infinity();
  if (difference_squares_ == 0) return 0;
  return std::sqrt(difference_squares_ / reference_squares_);  // infinite for a reference of zeros
}

std::vector<int64_t> EvenSample(int64_t total, int64_t count) {
  std::vector<int64_t> sample;
  count = std::min(total, std::max<int64_t>(count, std::min<int64_t>(total, 2)));
  for (int64_t i = 0; i < count; ++i) {
    sample.push_back(
        count == 1 ? 0
                   : static_cast<int64_t>(static_cast<__int128>(i) * (total - 1) / (count - 1)));
  }
  return sample;
}

}  // namespace whet
