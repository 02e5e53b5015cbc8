#include "src/model/template_reader.h"

#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace whet {
namespace {

FieldType ReadFieldType(const JsonCursor& cursor) {
  const std::string text = cursor.Text();
  if (text == "int") return FieldType::kInteger;
  if (text == "flag") return FieldType::kFlag;
  if (text == "dtype") return FieldType::kDType;
  if (text == "text") return FieldType::kText;
  cursor.Fail(absl::StrCat("\"", text, "\" is no field type: expected int, flag, dtype or text"));
  return FieldType::kInteger;
}

Value ReadFieldValue(FieldType type, const JsonCursor& cursor) {
  switch (type) {
    case FieldType::kInteger:
      return cursor.Integer();
    case FieldType::kFlag: {
      const int64_t flag = cursor.Integer();
      if (flag != 0 && flag != 1) cursor.Fail("expected 0 or 1");
      return flag;
    }
    case FieldType::kDType: {
      std::string text = cursor.Text();
      const absl::StatusOr<DType> dtype = ParseDType(text);
      if (!dtype.ok()) cursor.Fail(dtype.status().message());
      return text;
    }
    case FieldType::kText:
      return cursor.Text();
  }
  return int64_t{0};
}

FieldSpec ReadField(const JsonCursor& cursor) {
  cursor.AllowKeys({"name", "type", "default", "min", "max", "values", "doc"});
  FieldSpec field;
  field.name = cursor.Key("name").Name();
  field.type = ReadFieldType(cursor.Key("type"));
  field.doc = cursor.TextOr("doc", "");
  const bool integer = field.type == FieldType::kInteger;
  if (cursor.Has("min")) field.min = cursor.Key("min").Integer();
  if (cursor.Has("max")) field.max = cursor.Key("max").Integer();
  if (!integer && (field.min || field.max)) cursor.Fail("only an int has min and max");
  if (field.min && field.max && *field.min > *field.max) cursor.Fail("min is above max");
  if (field.type == FieldType::kFlag && cursor.Has("values")) {
    cursor.Fail("a flag is 0 or 1 and has no values");
  }
  for (const JsonCursor& value : cursor.ListOrNothing("values")) {
    field.values.push_back(ReadFieldValue(field.type, value));
  }
  if (cursor.Has("default")) {
    field.default_value = ReadFieldValue(field.type, cursor.Key("default"));
  }
  return field;
}

Direction ReadDirection(const JsonCursor& cursor) {
  const std::string text = cursor.Text();
  if (text == "in") return Direction::kIn;
  if (text == "out") return Direction::kOut;
  if (text == "inout") return Direction::kInOut;
  if (text == "scalar") return Direction::kScalar;
  cursor.Fail(absl::StrCat("\"", text, "\" is no direction: expected in, out, inout or scalar"));
  return Direction::kIn;
}

ArgumentSpec ReadArgument(const JsonCursor& cursor) {
  cursor.AllowKeys({"name", "direction", "dtype", "shape", "strides", "when", "doc"});
  ArgumentSpec argument;
  argument.name = cursor.Key("name").Name();
  argument.direction = ReadDirection(cursor.Key("direction"));
  argument.dtype = cursor.Key("dtype").Text();
  argument.doc = cursor.TextOr("doc", "");
  if (argument.direction == Direction::kScalar) {
    for (const char* key : {"shape", "strides", "when"}) {
      if (cursor.Has(key)) cursor.Key(key).Fail("a scalar has none");
    }
    return argument;
  }
  for (const JsonCursor& extent : cursor.Key("shape").List()) {
    argument.shape.push_back(extent.Formula());
  }
  for (const JsonCursor& stride : cursor.ListOrNothing("strides")) {
    argument.strides.push_back(stride.Formula());
  }
  if (cursor.Has("strides") && argument.strides.size() != argument.shape.size()) {
    cursor.Key("strides").Fail(
        absl::StrCat("expected ", argument.shape.size(), " strides, one for each extent of shape"));
  }
  if (cursor.Has("when")) argument.when = cursor.Key("when").Formula();
  return argument;
}

void ReadTolerance(const JsonCursor& cursor, KernelTemplate::Data& data) {
  for (const auto& [name, value] : cursor.Entries()) {
    const absl::StatusOr<DType> dtype = ParseDType(name);
    if (!dtype.ok()) return value.Fail(dtype.status().message());
    const double tolerance = value.Number();
    if (!std::isfinite(tolerance) || tolerance < 0) return value.Fail("expected 0 or more");
    data.tolerance[*dtype] = tolerance;
  }
}

void ReadReference(const JsonCursor& cursor, KernelTemplate::Data& data) {
  for (const auto& [name, kernel] : cursor.Entries()) {
    const absl::StatusOr<Platform> platform = ParsePlatform(name);
    if (!platform.ok()) return kernel.Fail(platform.status().message());
    data.reference[*platform] = kernel.Name();
  }
}

}  // namespace

Rule ReadRule(const JsonCursor& cursor) {
  cursor.AllowKeys({"that", "message"});
  return {.that = cursor.Key("that").Formula(), .message = cursor.Key("message").Text()};
}

absl::StatusOr<KernelTemplate::Data> ReadTemplate(const std::string& name,
                                                  const TemplateFiles& files,
                                                  std::optional<Platform> only) {
  const std::string path = absl::StrCat(name, "/", name, ".json");
  const auto text = files.find(path);
  if (text == files.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot read template ", name, ": there is no file ", path));
  }
  JsonFile file(path, text->second);
  const JsonCursor root = file.root();
  root.AllowKeys({"name", "version", "summary", "fields", "derived", "requires", "arguments",
                  "tolerance", "kernels", "reference"});
  KernelTemplate::Data data;
  data.only = only;
  data.name = root.Key("name").Name();
  if (data.name != name) root.Key("name").Fail(absl::StrCat("must be the folder's name, ", name));
  data.version = root.Key("version").Integer();
  if (data.version < 1) root.Key("version").Fail("expected 1 or more");
  data.summary = root.Key("summary").Text();
  for (const JsonCursor& field : root.Key("fields").List()) {
    data.fields.push_back(ReadField(field));
  }
  for (const JsonCursor& derived : root.ListOrNothing("derived")) {
    derived.AllowKeys({"name", "value"});
    data.derived.push_back(
        {.name = derived.Key("name").Name(), .value = derived.Key("value").Formula()});
  }
  for (const JsonCursor& rule : root.ListOrNothing("requires")) {
    data.rules.push_back(ReadRule(rule));
  }
  for (const JsonCursor& argument : root.Key("arguments").List()) {
    data.arguments.push_back(ReadArgument(argument));
  }
  ReadTolerance(root.Key("tolerance"), data);
  ReadReference(root.Key("reference"), data);
  std::vector<std::string> kernels;
  for (const JsonCursor& kernel : root.Key("kernels").List()) {
    kernels.push_back(kernel.Name());
    if (files.count(absl::StrCat(name, "/", kernels.back(), ".json")) == 0) {
      kernel.Fail(absl::StrCat("there is no file ", name, "/", kernels.back(), ".json"));
    }
  }
  if (kernels.empty()) root.Key("kernels").Fail("expected at least one kernel");
  if (!file.status().ok()) return file.status();
  for (const std::string& kernel : kernels) {
    absl::StatusOr<std::optional<KernelSpec>> spec = ReadKernel(data, kernel, files, only);
    if (!spec.ok()) return spec.status();
    if (spec->has_value()) data.kernels.push_back(**std::move(spec));
  }
  if (only.has_value()) {
    std::erase_if(data.reference, [&](const auto& entry) { return entry.first != *only; });
  }
  return data;
}

}  // namespace whet
