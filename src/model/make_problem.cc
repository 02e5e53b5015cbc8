#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/base/hash.h"
#include "src/model/dtype.h"
#include "src/model/kernel_template.h"
#include "src/model/scopes.h"
#include "src/model/template_data.h"

namespace whet {
namespace {

absl::string_view TypeName(FieldType type) {
  switch (type) {
    case FieldType::kInteger:
      return "int";
    case FieldType::kFlag:
      return "flag";
    case FieldType::kDType:
      return "dtype";
    case FieldType::kText:
      return "text";
  }
  return "?";
}

// "1..16", ">= 0", "one of bf16, f32", or empty.
std::string RangeText(const FieldSpec& field) {
  if (field.type == FieldType::kFlag) return "0 or 1";
  if (!field.values.empty()) {
    return absl::StrCat("one of ",
                        absl::StrJoin(field.values, ", ", [](std::string* out, const Value& value) {
                          absl::StrAppend(out, ValueText(value));
                        }));
  }
  if (field.min.has_value() && field.max.has_value()) {
    return absl::StrCat(*field.min, "..", *field.max);
  }
  if (field.min.has_value()) return absl::StrCat(">= ", *field.min);
  if (field.max.has_value()) return absl::StrCat("<= ", *field.max);
  return "";
}

// What a text field may hold: it becomes a part of the canonical text and a string literal in C.
bool IsPlainText(absl::string_view text) {
  return text.size() <= 256 && std::all_of(text.begin(), text.end(), [](char c) {
           return c > ' ' && c <= '~' && c != ',' && c != '"' && c != '\\' && c != '?';
         });
}

// `given` as the field's type, or an error that says what is expected.
absl::StatusOr<Value> Convert(const FieldSpec& field, const Value& given) {
  const std::string text = ValueText(given);
  const auto refuse = [&] {
    const std::string range = RangeText(field);
    return absl::InvalidArgumentError(absl::StrCat("\"", absl::CHexEscape(text), "\" is not ",
                                                   TypeName(field.type), range.empty() ? "" : ", ",
                                                   range));
  };
  Value value = text;
  switch (field.type) {
    case FieldType::kInteger:
    case FieldType::kFlag: {
      int64_t integer = 0;
      if (!absl::SimpleAtoi(text, &integer)) return refuse();
      if (field.type == FieldType::kFlag && integer != 0 && integer != 1) return refuse();
      if (field.min.has_value() && integer < *field.min) return refuse();
      if (field.max.has_value() && integer > *field.max) return refuse();
      value = integer;
      break;
    }
    case FieldType::kDType:
      if (!ParseDType(text).ok()) return refuse();
      break;
    case FieldType::kText:
      if (!IsPlainText(text)) return refuse();
      break;
  }
  const bool listed = field.values.empty() || std::find(field.values.begin(), field.values.end(),
                                                        value) != field.values.end();
  if (!listed) return refuse();
  return value;
}

int64_t Pack(FieldType type, const Value& value) {
  if (const int64_t* integer = std::get_if<int64_t>(&value)) return *integer;
  const std::string& text = std::get<std::string>(value);
  if (type == FieldType::kDType) return static_cast<int64_t>(*ParseDType(text));
  return static_cast<int64_t>(HashBytes(text).low);
}

absl::StatusOr<Value> Unpack(FieldType type, int64_t word) {
  switch (type) {
    case FieldType::kInteger:
    case FieldType::kFlag:
      return Value(word);
    case FieldType::kDType: {
      const absl::StatusOr<DType> dtype = DTypeFromCode(word);
      if (!dtype.ok()) return dtype.status();
      return Value(std::string(DTypeName(*dtype)));
    }
    case FieldType::kText:
      break;
  }
  return absl::InvalidArgumentError("text cannot be given as a packed field");
}

}  // namespace

std::vector<std::string> KernelTemplate::FieldHelp() const {
  std::vector<std::string> out;
  for (const FieldSpec& field : data_->fields) {
    std::string line = absl::StrCat(field.name, " (", TypeName(field.type));
    const std::string range = RangeText(field);
    if (!range.empty()) absl::StrAppend(&line, ", ", range);
    if (field.default_value.has_value()) {
      absl::StrAppend(&line, ", default ", ValueText(*field.default_value));
    }
    absl::StrAppend(&line, ")", field.doc.empty() ? "" : ": ", field.doc);
    out.push_back(std::move(line));
  }
  return out;
}

absl::StatusOr<Problem> KernelTemplate::MakeProblem(const FieldValues& fields) const {
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("cannot make a problem of ", name(), ": ", why));
  };
  std::vector<const Value*> given(data_->fields.size(), nullptr);
  for (const auto& [field, value] : fields) {
    const FieldSpec* spec = data_->FindField(field);
    if (spec == nullptr) {
      return refuse(absl::StrCat(
          "unknown field \"", absl::CHexEscape(field), "\", known are ",
          absl::StrJoin(data_->fields, ", ", [](std::string* out, const FieldSpec& known) {
            absl::StrAppend(out, known.name);
          })));
    }
    const Value*& slot = given[spec - data_->fields.data()];
    if (slot != nullptr) return refuse(absl::StrCat("field ", field, " is given twice"));
    slot = &value;
  }
  Problem problem;
  problem.operation_ = name();
  std::vector<std::string> pieces;
  for (size_t i = 0; i < given.size(); ++i) {
    const FieldSpec& spec = data_->fields[i];
    if (given[i] == nullptr) {
      if (!spec.default_value.has_value()) {
        return refuse(absl::StrCat("field ", spec.name, " is missing"));
      }
      problem.fields_.emplace_back(spec.name, *spec.default_value);
      continue;
    }
    absl::StatusOr<Value> value = Convert(spec, *given[i]);
    if (!value.ok())
      return refuse(absl::StrCat("field ", spec.name, ": ", value.status().message()));
    if (!spec.default_value.has_value() || *value != *spec.default_value) {
      pieces.push_back(absl::StrCat(spec.name, "=", ValueText(*value)));
    }
    problem.fields_.emplace_back(spec.name, *std::move(value));
  }
  for (size_t i = 0; i < given.size(); ++i) {
    problem.packed_.push_back(Pack(data_->fields[i].type, problem.fields_[i].second));
  }
  problem.text_ = absl::StrCat(name(), ":", absl::StrJoin(pieces, ","));
  const absl::StatusOr<Scope> scope = ProblemScope(*data_, problem.fields_);
  if (!scope.ok()) return refuse(scope.status().message());
  for (const Rule& rule : data_->rules) {
    const absl::StatusOr<bool> holds = rule.that.EvaluateBool(*scope);
    if (!holds.ok()) return refuse(holds.status().message());
    if (!*holds) return refuse(absl::StrCat(rule.message, " (", problem.text_, ")"));
  }
  return problem;
}

size_t KernelTemplate::field_count() const { return data_->fields.size(); }

absl::StatusOr<Problem> KernelTemplate::MakeProblem(absl::Span<const int64_t> packed) const {
  if (packed.size() != field_count()) {
    return absl::InvalidArgumentError(absl::StrCat("cannot make a problem of ", name(), ": it has ",
                                                   field_count(), " fields, not ", packed.size()));
  }
  FieldValues fields;
  for (size_t i = 0; i < packed.size(); ++i) {
    const FieldSpec& spec = data_->fields[i];
    absl::StatusOr<Value> value = Unpack(spec.type, packed[i]);
    if (!value.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("cannot make a problem of ", name(),
                                                     ": field ", spec.name, ": ",
                                                     value.status().message()));
    }
    fields.emplace_back(spec.name, *std::move(value));
  }
  return MakeProblem(fields);
}

}  // namespace whet
