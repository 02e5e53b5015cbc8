// Reads a template's JSON files into template_data.h; the inside of KernelTemplate::Parse.
//
//   absl::StatusOr<KernelTemplate::Data> data = ReadTemplate("rms_norm", files);
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "src/model/json_cursor.h"
#include "src/model/kernel_template.h"
#include "src/model/template_data.h"

namespace whet {

// Everything that the files say, each key of the right kind; InvalidArgument names file and key.
// CheckTemplate must follow: names and expressions are not looked into yet.
// With `only` kernels for other platforms are left out, and the references to them.
absl::StatusOr<KernelTemplate::Data> ReadTemplate(const std::string& name,
                                                  const TemplateFiles& files,
                                                  std::optional<Platform> only);

// One kernel of `data`, whose fields and arguments are read already. Nothing when it is not for
// `only`.
absl::StatusOr<std::optional<KernelSpec>> ReadKernel(const KernelTemplate::Data& data,
                                                     const std::string& kernel,
                                                     const TemplateFiles& files,
                                                     std::optional<Platform> only);

// {"that", "message"}; shared by both kinds of file.
Rule ReadRule(const JsonCursor& cursor);

// Every expression knows its names and their types, names are unique, references exist.
absl::Status CheckTemplate(const KernelTemplate::Data& data);

}  // namespace whet
