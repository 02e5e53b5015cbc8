// What is kept beside a code object's bytes, as JSON in CodeEntry::attributes.
//
//   entry.attributes = CodeAttributesToJson({.entry = "rms_norm_cpu", .format = "elf-so", ...});
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/compile/compiler.h"

namespace whet {

struct CodeAttributes {
  std::string entry;
  std::string format;
  std::string template_name;
  std::string problem;
  std::string variant;
  std::string target;
  std::string compiler;  // "hiprtc 7.14.1"
  ResourceUse resources;
  std::string log;
};

std::string CodeAttributesToJson(const CodeAttributes& attributes);

// DataLoss when the text is no such object; unknown members are ignored, missing ones keep their
// default.
absl::StatusOr<CodeAttributes> CodeAttributesFromJson(absl::string_view json);

}  // namespace whet
