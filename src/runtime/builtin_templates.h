// The templates that the library carries, and those of a directory.
//
//   TemplateFiles files = BuiltinTemplateFiles();          // "rms_norm/rms_norm.json" -> text
//   std::vector<std::string> names = OperationNames(files);  // "attention_forward", "rms_norm"
//   KernelTemplate t = *KernelTemplate::Parse("rms_norm", BuiltinTemplateFilesOf("rms_norm"));
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/model/kernel_template.h"

namespace whet {

TemplateFiles BuiltinTemplateFiles();
// What one operation is made of: its folder and common/. Common/ alone when there is no such operation.
TemplateFiles BuiltinTemplateFilesOf(absl::string_view operation);
// OperationNames of BuiltinTemplateFiles, without copying these.
std::vector<std::string> BuiltinOperationNames();

// Reads `directory` as a templates' root: every regular file one folder deep or two. At most 16 MiB
// in all.
absl::StatusOr<TemplateFiles> ReadTemplateDirectory(const std::string& directory);

// Every x for which there is x/x.json, sorted.
std::vector<std::string> OperationNames(const TemplateFiles& files);

}  // namespace whet
