#include "src/cli/problem_list.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "src/base/files.h"

namespace whet {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kMaxListBytes = 16 << 20;

// What a problem is tuned on, as against what it is. False when `name` is nothing of the kind.
absl::StatusOr<bool> ReadTensorsMember(const std::string& name, const ordered_json& value,
                                       const std::string& folder, ListedProblem* problem) {
  const auto wants = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("\"", name, "\" must be ", what));
  };
  if (name == "data" || name == "safetensors" || name == "layout") {
    if (!value.is_string()) return wants("text");
    const auto text = value.get<std::string>();
    if (name == "data") problem->data = text;
    if (name == "layout") problem->layout = text;
    if (name == "safetensors") problem->safetensors = JoinPath(folder, text);
    return true;
  }
  if (name == "seed") {
    if (!value.is_number_unsigned()) return wants("a whole number from 0");
    problem->seed = value.get<uint64_t>();
    return true;
  }
  if (name == "convert") {
    if (!value.is_boolean()) return wants("true or false");
    problem->convert = value.get<bool>();
    return true;
  }
  if (name != "inputs") return false;
  if (!value.is_object()) return wants("an object from input to file");
  for (const auto& [input, file] : value.items()) {
    if (!file.is_string()) return wants("an object from input to file");
    problem->inputs.push_back(absl::StrCat(input, "=", JoinPath(folder, file.get<std::string>())));
  }
  return true;
}

absl::StatusOr<ListedProblem> ParseLine(absl::string_view line, const std::string& folder) {
  const ordered_json json =
      ordered_json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError("this is no JSON object");
  ListedProblem problem;
  std::vector<std::string> fields;
  for (const auto& [name, value] : json.items()) {
    const absl::StatusOr<bool> taken = ReadTensorsMember(name, value, folder, &problem);
    if (!taken.ok()) return taken.status();
    if (*taken) continue;
    if (value.is_string()) {
      const auto text = value.get<std::string>();
      if (name == "operation") {
        problem.operation = text;
      } else if (name == "problem") {
        problem.text = text;
      } else {
        fields.push_back(absl::StrCat(name, "=", text));
      }
    } else if (value.is_boolean()) {
      fields.push_back(absl::StrCat(name, "=", value.get<bool>() ? 1 : 0));
    } else if (value.is_number_integer()) {
      fields.push_back(absl::StrCat(name, "=", value.dump()));
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", name, "\" is neither a whole number, true or false, nor text"));
    }
  }
  if (!problem.text.empty() && !fields.empty()) {
    return absl::InvalidArgumentError("\"problem\" holds the fields already; leave out the others");
  }
  if (problem.text.empty()) problem.text = absl::StrJoin(fields, ",");
  if (problem.operation.empty()) problem.operation = problem.text.substr(0, problem.text.find(':'));
  if (problem.operation.empty() || problem.operation.find('=') != std::string::npos) {
    return absl::InvalidArgumentError("\"operation\" is missing");
  }
  const bool files = !problem.inputs.empty() || !problem.safetensors.empty();
  if (problem.data == "captured" && !files) {
    return absl::InvalidArgumentError(
        "\"data\" is captured, but neither \"inputs\" nor \"safetensors\" names a file");
  }
  return problem;
}

}  // namespace

absl::StatusOr<std::vector<ListedProblem>> ReadProblemList(const std::string& path) {
  absl::StatusOr<std::string> text = ReadFile(path, kMaxListBytes);
  if (!text.ok()) return text.status();
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash + 1);
  std::vector<ListedProblem> problems;
  int number = 0;
  for (const absl::string_view raw : absl::StrSplit(*text, '\n')) {
    ++number;
    const absl::string_view line = absl::StripAsciiWhitespace(raw);
    if (line.empty() || line[0] == '#') continue;
    absl::StatusOr<ListedProblem> problem = ParseLine(line, folder);
    if (!problem.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot read ", path, ":", number, ": ", problem.status().message()));
    }
    problem->origin = absl::StrCat(path, ":", number);
    problems.push_back(*std::move(problem));
  }
  if (problems.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot read ", path, ": there is no problem in it"));
  }
  return problems;
}

}  // namespace whet
