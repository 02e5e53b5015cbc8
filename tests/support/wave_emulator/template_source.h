// Puts a kernel of a template together as the library does: prelude, then the source with its quoted includes in place.
//
//   TemplateSource s{.root = "kernel_templates", .file = "rms_norm/gpu.cu", .architecture = "gfx950"};
//   s.defines = {{"SHAPE_ROWS", "4"}, {"TUNE_THREADS", "256"}};
//   EmulatorSource source = {.source = *BuildSource(s), .entry = EntryName(s), .architecture = s.architecture};
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace whet::emulator {

struct TemplateSource {
  std::string root;  // of the templates; includes are looked for here
  std::string file;  // "<template>/<kernel>.<extension>"
  std::string architecture;
  std::vector<std::pair<std::string, std::string>> defines;
};

// "<template>_<kernel>".
std::string EntryName(const TemplateSource& source);

// NotFound where a file cannot be read.
absl::StatusOr<std::string> BuildSource(const TemplateSource& source);

}  // namespace whet::emulator
