#include "tests/support/wave_emulator/template_source.h"

#include <fstream>
#include <set>
#include <sstream>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace whet::emulator {
namespace {

absl::Status Append(const std::string& root, const std::string& name, std::set<std::string>* seen,
                    std::string* out) {
  std::ifstream file(absl::StrCat(root, "/", name));
  if (!file.good())
    return absl::NotFoundError(absl::StrCat("read ", root, "/", name, ": no such file"));
  absl::StrAppend(out, "#line 1 \"", name, "\"\n");
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    absl::string_view rest = line;
    if (absl::ConsumePrefix(&rest, "#include \"")) {
      const std::string included(rest.substr(0, rest.find('"')));
      if (seen->insert(included).second) {
        const absl::Status status = Append(root, included, seen, out);
        if (!status.ok()) return status;
      }
      absl::StrAppend(out, "#line ", number + 1, " \"", name, "\"\n");
    } else if (line != "#pragma once") {
      absl::StrAppend(out, line, "\n");
    } else {
      absl::StrAppend(out, "\n");
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string EntryName(const TemplateSource& source) {
  std::string name = source.file.substr(0, source.file.rfind('.'));
  for (char& c : name) {
    if (c == '/') c = '_';
  }
  return name;
}

absl::StatusOr<std::string> BuildSource(const TemplateSource& source) {
  std::string out =
      absl::StrCat("#define WHET_PLATFORM_HIP 1\n#define WHET_ARCH_", source.architecture,
                   " 1\n#define WHET_ENTRY ", EntryName(source), "\n");
  const char* const dtypes[] = {"F32",  "F16", "BF16", "E4M3", "E4M3FNUZ",
                                "E5M2", "I8",  "U8",   "I32",  "I64"};
  int code = 0;
  for (const char* dtype : dtypes) absl::StrAppend(&out, "#define WHET_", dtype, " ", ++code, "\n");
  for (const auto& [name, value] : source.defines)
    absl::StrAppend(&out, "#define ", name, " ", value, "\n");
  std::set<std::string> seen;
  const absl::Status status = Append(source.root, source.file, &seen, &out);
  if (!status.ok()) return status;
  return out;
}

}  // namespace whet::emulator
