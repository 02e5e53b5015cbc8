// One translation unit out of a template's files: quoted includes put in place.
//
//   absl::StatusOr<std::string> unit = ExpandIncludes(files, "rms_norm/cpu.cc");
//
// Every file is placed once, at its first include, between `#line` markers with its path from the
// templates' root, so that diagnostics and debuggers point into it. `#pragma once` is blanked,
// because what is placed is no longer a header. The preprocessor does not run here: an include
// inside #if is placed there textually, and then not again further down, so includes belong at the
// top of a file, outside of conditions. <...> includes stay as they are.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace whet {

// `path` and all includes are looked up in `files` (path from the templates' root -> text); an
// include is looked for from the root first, then beside the file that includes it. The result
// starts with the marker of `path`. InvalidArgument names the includer and the line: a file that is
// missing or outside of the root, a cycle, an include whose name is a macro.
absl::StatusOr<std::string> ExpandIncludes(const std::map<std::string, std::string>& files,
                                           const std::string& path);

// "a/./b/../c" -> "a/c"; empty when it is absolute or leaves the root.
std::string NormalizePath(absl::string_view path);

}  // namespace whet
