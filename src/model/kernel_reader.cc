#include <algorithm>
#include <array>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "src/model/key.h"
#include "src/model/names.h"
#include "src/model/source.h"
#include "src/model/template_reader.h"

namespace whet {
namespace {

constexpr absl::string_view kAnyArchitecture = "*";

std::vector<int64_t> ReadIntegers(const JsonCursor& cursor) {
  std::vector<int64_t> out;
  for (const JsonCursor& item : cursor.List()) {
    const int64_t value = item.Integer();
    if (std::find(out.begin(), out.end(), value) != out.end()) item.Fail("is there twice");
    out.push_back(value);
  }
  return out;
}

// A plain value, or an object from architecture glob to value.
template <typename T, typename Read>
ByArchitecture<T> ReadByArchitecture(const JsonCursor& cursor, Read read) {
  ByArchitecture<T> out;
  if (!cursor.IsObject()) {
    out.emplace_back(std::string(kAnyArchitecture), read(cursor));
    return out;
  }
  for (const auto& [glob, value] : cursor.Entries()) out.emplace_back(glob, read(value));
  if (out.empty()) cursor.Fail("expected at least one architecture");
  return out;
}

ParameterSpec ReadParameter(const JsonCursor& cursor) {
  cursor.AllowKeys({"name", "values", "default", "doc"});
  ParameterSpec parameter;
  parameter.name = cursor.Key("name").Name();
  parameter.doc = cursor.TextOr("doc", "");
  parameter.values =
      ReadByArchitecture<std::vector<int64_t>>(cursor.Key("values"), [](const JsonCursor& c) {
        std::vector<int64_t> values = ReadIntegers(c);
        if (values.empty()) c.Fail("expected at least one integer");
        return values;
      });
  parameter.default_value = ReadByArchitecture<Expression>(
      cursor.Key("default"), [](const JsonCursor& c) { return c.Formula(); });
  const bool plain = !cursor.Key("values").IsObject() && !cursor.Key("default").IsObject();
  if (plain && !parameter.values.empty() && !parameter.default_value.empty()) {
    const std::vector<int64_t>& values = parameter.values[0].second;
    // What needs a problem or a target to be known is looked at when there is one.
    const absl::StatusOr<int64_t> constant =
        parameter.default_value[0].second.EvaluateInteger(Scope());
    if (constant.ok() && std::find(values.begin(), values.end(), *constant) == values.end()) {
      cursor.Key("default").Fail("is not one of the values");
    }
  }
  return parameter;
}

std::vector<Expression> ReadThree(const JsonCursor& cursor) {
  std::vector<Expression> out;
  for (const JsonCursor& item : cursor.List()) out.push_back(item.Formula());
  if (out.size() != 3) cursor.Fail("expected three expressions: x, y, z");
  return out;
}

LaunchSpec ReadLaunch(const JsonCursor& cursor) {
  cursor.AllowKeys({"grid", "block", "shared_bytes", "cluster"});
  LaunchSpec launch;
  launch.grid = ReadThree(cursor.Key("grid"));
  launch.block = ReadThree(cursor.Key("block"));
  launch.shared_bytes = cursor.Key("shared_bytes").Formula();
  if (cursor.Has("cluster")) launch.cluster = ReadThree(cursor.Key("cluster"));
  return launch;
}

TensorMapSpec ReadTensorMap(const KernelTemplate::Data& data, const JsonCursor& cursor) {
  cursor.AllowKeys({"name", "argument", "box", "swizzle", "interleave"});
  TensorMapSpec map;
  map.name = cursor.Key("name").Name();
  const JsonCursor argument = cursor.Key("argument");
  map.argument = data.ArgumentIndex(argument.Text());
  for (const JsonCursor& extent : cursor.Key("box").List()) map.box.push_back(extent.Formula());
  if (map.argument < 0) {
    argument.Fail(absl::StrCat("\"", argument.Text(), "\" is no argument of the operation"));
  } else if (data.arguments[map.argument].direction == Direction::kScalar) {
    argument.Fail("a scalar has no tensor map");
  } else if (map.box.size() != data.arguments[map.argument].shape.size() || map.box.size() > 5) {
    cursor.Key("box").Fail("expected one extent for each dimension of the argument, at most 5");
  }
  constexpr std::array<int64_t, 4> kSwizzles = {0, 32, 64, 128};
  const int64_t swizzle = cursor.Key("swizzle").Integer();
  if (std::find(kSwizzles.begin(), kSwizzles.end(), swizzle) == kSwizzles.end()) {
    cursor.Key("swizzle").Fail("expected 0, 32, 64 or 128");
  }
  map.swizzle_bytes = static_cast<int>(swizzle);
  if (cursor.Has("interleave")) {
    map.interleave = cursor.Key("interleave").Formula();
    if (map.box.size() < 2 || map.box.size() > 4) {
      cursor.Key("interleave").Fail("only an argument of 2 to 4 dimensions has room for one more");
    }
  }
  return map;
}

void ReadPlatforms(const JsonCursor& root, KernelSpec& kernel) {
  for (const JsonCursor& item : root.Key("platforms").List()) {
    const absl::StatusOr<Platform> platform = ParsePlatform(item.Text());
    if (!platform.ok()) {
      item.Fail(platform.status().message());
      return;
    }
    if (kernel.IsFor(*platform)) item.Fail("is there twice");
    kernel.platforms.push_back(*platform);
  }
  if (kernel.platforms.empty()) root.Key("platforms").Fail("expected at least one platform");
}

void ReadOptions(const JsonCursor& root, KernelSpec& kernel) {
  if (!root.Has("options")) return;
  for (const auto& [compiler, list] : root.Key("options").Entries()) {
    if (!IsName(compiler)) list.Fail("this key is not a compiler's name");
    for (const JsonCursor& option : list.List()) {
      kernel.options[compiler].push_back(option.Text());
    }
  }
}

}  // namespace

bool KernelSpec::IsFor(Platform platform) const {
  return std::find(platforms.begin(), platforms.end(), platform) != platforms.end();
}

absl::StatusOr<std::optional<KernelSpec>> ReadKernel(const KernelTemplate::Data& data,
                                                     const std::string& name,
                                                     const TemplateFiles& files,
                                                     std::optional<Platform> only) {
  const std::string path = absl::StrCat(data.name, "/", name, ".json");
  if (only.has_value()) {
    const std::vector<std::string> platforms = PeekTexts(files.at(path), "platforms");
    const bool wanted =
        std::find(platforms.begin(), platforms.end(), PlatformName(*only)) != platforms.end();
    // Without a list it is read whole, to say what is wrong with it.
    if (!platforms.empty() && !wanted) return std::nullopt;
  }
  JsonFile file(path, files.at(path));
  const JsonCursor root = file.root();
  root.AllowKeys({"name", "platforms", "targets", "source", "when", "parameters", "constraints",
                  "launch", "tensor_maps", "options", "cost"});
  KernelSpec kernel;
  kernel.name = root.Key("name").Name();
  if (kernel.name != name) root.Key("name").Fail(absl::StrCat("must be the file's name, ", name));
  ReadPlatforms(root, kernel);
  for (const JsonCursor& glob : root.ListOrNothing("targets")) {
    kernel.targets.push_back(glob.Text());
  }
  if (root.Has("targets") && kernel.targets.empty()) {
    root.Key("targets").Fail("expected at least one architecture; leave it out for all");
  }
  if (root.Has("when")) kernel.when = root.Key("when").Formula();
  for (const JsonCursor& parameter : root.ListOrNothing("parameters")) {
    kernel.parameters.push_back(ReadParameter(parameter));
  }
  for (const JsonCursor& rule : root.ListOrNothing("constraints")) {
    kernel.constraints.push_back(ReadRule(rule));
  }
  kernel.launch = ReadLaunch(root.Key("launch"));
  for (const JsonCursor& map : root.ListOrNothing("tensor_maps")) {
    kernel.tensor_maps.push_back(ReadTensorMap(data, map));
  }
  if (!kernel.tensor_maps.empty() && kernel.platforms != std::vector{Platform::kCuda}) {
    root.Key("tensor_maps").Fail("only a kernel for cuda alone has tensor maps");
  }
  ReadOptions(root, kernel);
  if (root.Has("cost")) kernel.cost = root.Key("cost").Formula();
  const std::string source = root.Key("source").Text();
  if (!file.status().ok()) return file.status();
  absl::StatusOr<std::string> expanded =
      ExpandIncludes(files, absl::StrCat(data.name, "/", source));
  if (!expanded.ok()) {
    root.Key("source").Fail(expanded.status().message());
    return file.status();
  }
  kernel.source = *std::move(expanded);
  kernel.digest =
      KeyRecord("kernel").Add("description", file.Canonical()).Add("source", kernel.source).hash();
  return std::optional<KernelSpec>(std::move(kernel));
}

}  // namespace whet
