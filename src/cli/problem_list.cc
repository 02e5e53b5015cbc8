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

absl::StatusOr<ListedProblem> ParseLine(absl::string_view line) {
  const ordered_json json =
      ordered_json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError("this is no JSON object");
  ListedProblem problem;
  std::vector<std::string> fields;
  for (const auto& [name, value] : json.items()) {
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
  return problem;
}

}  // namespace

absl::StatusOr<std::vector<ListedProblem>> ReadProblemList(const std::string& path) {
  absl::StatusOr<std::string> text = ReadFile(path, kMaxListBytes);
  if (!text.ok()) return text.status();
  std::vector<ListedProblem> problems;
  int number = 0;
  for (const absl::string_view raw : absl::StrSplit(*text, '\n')) {
    ++number;
    const absl::string_view line = absl::StripAsciiWhitespace(raw);
    if (line.empty() || line[0] == '#') continue;
    absl::StatusOr<ListedProblem> problem = ParseLine(line);
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
