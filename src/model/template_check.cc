#include <algorithm>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "src/model/scopes.h"
#include "src/model/template_reader.h"

namespace whet {
namespace {

using Data = KernelTemplate::Data;

absl::Status Wrong(absl::string_view file, absl::string_view key, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(file, ": ", key, ": ", what));
}

bool IsDTypeName(const std::string& name) { return ParseDType(name).ok(); }

absl::Status Within(const FieldSpec& field, const Value& value) {
  const int64_t* integer = std::get_if<int64_t>(&value);
  const bool below = integer != nullptr && field.min.has_value() && *integer < *field.min;
  const bool above = integer != nullptr && field.max.has_value() && *integer > *field.max;
  const bool listed = field.values.empty() || std::find(field.values.begin(), field.values.end(),
                                                        value) != field.values.end();
  if (!below && !above && listed) return absl::OkStatus();
  return absl::InvalidArgumentError("is not a value that the field may have");
}

// The names of one kind of file, each once.
class Names {
 public:
  explicit Names(std::string file) : file_(std::move(file)) {}

  absl::Status Add(absl::string_view key, const std::string& name) {
    if (IsReservedName(name) || IsDTypeName(name)) {
      return Wrong(file_, key, absl::StrCat("the name ", name, " has a meaning of its own"));
    }
    if (!names_.insert(name).second) {
      return Wrong(file_, key, absl::StrCat("the name ", name, " is there twice"));
    }
    return absl::OkStatus();
  }

 private:
  std::string file_;
  std::set<std::string> names_;
};

// Checks the expressions of one file against one scope; keeps the first error.
class ExpressionCheck {
 public:
  ExpressionCheck(std::string file, const Scope& scope, bool features)
      : file_(std::move(file)), scope_(scope), features_(features) {}

  void Check(absl::string_view key, const Expression& expression) {
    if (!status_.ok()) return;
    const absl::Status checked = expression.CheckInteger(scope_);
    if (!checked.ok()) {
      status_ = Wrong(file_, key, checked.message());
    } else if (expression.UsesFeatures() && !features_) {
      status_ = Wrong(file_, key, "has(...) needs a target, which is not known here");
    }
  }
  void Check(absl::string_view key, const std::vector<Expression>& expressions) {
    for (const Expression& expression : expressions) Check(key, expression);
  }
  void Check(absl::string_view key, const std::vector<Rule>& rules) {
    for (const Rule& rule : rules) Check(key, rule.that);
  }

  const absl::Status& status() const { return status_; }

 private:
  std::string file_;
  const Scope& scope_;
  bool features_;
  absl::Status status_;
};

absl::Status CheckFields(const Data& data, const std::string& file) {
  Names names(file);
  for (const FieldSpec& field : data.fields) {
    const std::string key = absl::StrCat("fields: ", field.name);
    absl::Status status = names.Add(key, field.name);
    if (!status.ok()) return status;
    for (const Value& value : field.values) {
      status = Within(field, value);
      if (!status.ok())
        return Wrong(file, key, absl::StrCat(ValueText(value), " ", status.message()));
    }
    if (field.default_value.has_value()) {
      status = Within(field, *field.default_value);
      if (!status.ok()) return Wrong(file, key, absl::StrCat("the default ", status.message()));
    }
  }
  for (const DerivedSpec& derived : data.derived) {
    const absl::Status status = names.Add(absl::StrCat("derived: ", derived.name), derived.name);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// The dtypes that an argument can have; empty when its field takes all of them.
absl::StatusOr<std::vector<DType>> DTypesOf(const Data& data, const ArgumentSpec& argument) {
  std::vector<DType> out;
  if (const FieldSpec* field = data.FindField(argument.dtype)) {
    if (field->type == FieldType::kDType) {
      for (const Value& value : field->values) out.push_back(*ParseDType(ValueText(value)));
      return out;
    }
  }
  const absl::StatusOr<DType> dtype = ParseDType(argument.dtype);
  if (!dtype.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", argument.dtype, "\" is neither a dtype nor a field of type dtype"));
  }
  out.push_back(*dtype);
  return out;
}

absl::Status CheckArguments(const Data& data, const std::string& file) {
  std::set<std::string> names;
  for (const ArgumentSpec& argument : data.arguments) {
    const std::string key = absl::StrCat("arguments: ", argument.name);
    if (!names.insert(argument.name).second) return Wrong(file, key, "the name is there twice");
    const absl::StatusOr<std::vector<DType>> dtypes = DTypesOf(data, argument);
    if (!dtypes.ok()) return Wrong(file, key, dtypes.status().message());
    const bool written =
        argument.direction == Direction::kOut || argument.direction == Direction::kInOut;
    for (const DType dtype : *dtypes) {
      if (written && data.tolerance.count(dtype) == 0) {
        return Wrong(file, "tolerance",
                     absl::StrCat("there is none for ", DTypeName(dtype), ", which the output ",
                                  argument.name, " can have"));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckReferences(const Data& data, const std::string& file) {
  std::set<std::string> names;
  for (const KernelSpec& kernel : data.kernels) {
    if (!names.insert(kernel.name).second) {
      return Wrong(file, "kernels", absl::StrCat(kernel.name, " is there twice"));
    }
    for (const Platform platform : kernel.platforms) {
      if (!data.IsWanted(platform)) continue;
      if (data.reference.count(platform) == 0) {
        return Wrong(file, "reference",
                     absl::StrCat("there is none for ", PlatformName(platform), ", which kernel ",
                                  kernel.name, " is for"));
      }
    }
  }
  for (const auto& [platform, name] : data.reference) {
    const KernelSpec* kernel = data.FindKernel(name);
    if (kernel == nullptr || !kernel->IsFor(platform)) {
      return Wrong(file, absl::StrCat("reference.", PlatformName(platform)),
                   absl::StrCat("\"", name, "\" is no kernel of it for this platform"));
    }
  }
  return absl::OkStatus();
}

// Values of the right types, for expressions that are checked and not evaluated.
Value Sample(FieldType type) {
  const bool integer = type == FieldType::kInteger || type == FieldType::kFlag;
  return integer ? Value(int64_t{0}) : Value(std::string());
}

absl::Status CheckOperationExpressions(const Data& data, const std::string& file, Scope& scope) {
  for (const FieldSpec& field : data.fields) scope.Set(field.name, Sample(field.type));
  ExpressionCheck check(file, scope, /*features=*/false);
  for (const DerivedSpec& derived : data.derived) {
    check.Check(absl::StrCat("derived: ", derived.name), derived.value);
    scope.Set(derived.name, int64_t{0});
  }
  check.Check("requires", data.rules);
  for (const ArgumentSpec& argument : data.arguments) {
    const std::string key = absl::StrCat("arguments: ", argument.name);
    check.Check(key, argument.shape);
    check.Check(key, argument.strides);
    if (argument.when.has_value()) check.Check(key, *argument.when);
  }
  return check.status();
}

absl::Status CheckKernel(const Data& data, const KernelSpec& kernel, const Scope& operation) {
  const std::string file = absl::StrCat(data.name, "/", kernel.name, ".json");
  Names names(file);
  Scope scope = TargetScope(Target(), DeviceLimits(), &operation);
  ExpressionCheck check(file, scope, /*features=*/true);
  check.Check("when", kernel.when);
  for (const ParameterSpec& parameter : kernel.parameters) {
    const std::string key = absl::StrCat("parameters: ", parameter.name);
    const absl::Status status = names.Add(key, parameter.name);
    if (!status.ok()) return status;
    if (operation.Find(parameter.name) != nullptr) {
      return Wrong(file, key, "the name is that of a field or a derived value");
    }
    for (const auto& [glob, value] : parameter.default_value) {
      check.Check(absl::StrCat(key, ".default"), value);
    }
  }
  SetParameters(kernel, std::vector<int64_t>(kernel.parameters.size(), 0), scope);
  check.Check("constraints", kernel.constraints);
  check.Check("launch.grid", kernel.launch.grid);
  check.Check("launch.block", kernel.launch.block);
  check.Check("launch.cluster", kernel.launch.cluster);
  check.Check("launch.shared_bytes", kernel.launch.shared_bytes);
  for (const TensorMapSpec& map : kernel.tensor_maps) {
    check.Check(absl::StrCat("tensor_maps: ", map.name), map.box);
    if (map.interleave.has_value()) {
      check.Check(absl::StrCat("tensor_maps: ", map.name, ".interleave"), *map.interleave);
    }
  }
  if (kernel.cost.has_value()) check.Check("cost", *kernel.cost);
  return check.status();
}

}  // namespace

absl::Status CheckTemplate(const Data& data) {
  const std::string file = absl::StrCat(data.name, "/", data.name, ".json");
  for (const auto check : {CheckFields, CheckArguments, CheckReferences}) {
    const absl::Status status = check(data, file);
    if (!status.ok()) return status;
  }
  Scope operation;
  absl::Status status = CheckOperationExpressions(data, file, operation);
  for (const KernelSpec& kernel : data.kernels) {
    if (status.ok()) status = CheckKernel(data, kernel, operation);
  }
  return status;
}

}  // namespace whet
