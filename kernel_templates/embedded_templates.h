// The kernel templates that the library carries: every file below kernel_templates/, as text.
//
//   TemplateFiles files;
//   for (const auto& [path, text] : EmbeddedTemplates()) files.emplace(path, text);
#pragma once

#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace whet {

// Path from the templates' root ("rms_norm/rms_norm.json") and text, sorted by path. The views are
// of constants and stay valid for ever.
std::vector<std::pair<absl::string_view, absl::string_view>> EmbeddedTemplates();

}  // namespace whet
