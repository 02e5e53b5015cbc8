#include "src/runtime/builtin_templates.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernel_templates/embedded_templates.h"
#include "src/base/files.h"

namespace whet {
namespace {

constexpr int64_t kMaxTemplateBytes = 16 << 20;
constexpr int kMaxDepth = 3;

absl::Status ReadInto(const std::string& root, const std::string& relative, int depth,
                      int64_t& bytes_left, TemplateFiles& files) {
  const std::string directory = relative.empty() ? root : JoinPath(root, relative);
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(directory);
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    const std::string path = relative.empty() ? name : JoinPath(relative, name);
    const std::string full_path = JoinPath(root, path);
    if (IsDirectory(full_path)) {
      if (depth == kMaxDepth) continue;
      if (absl::Status s = ReadInto(root, path, depth + 1, bytes_left, files); !s.ok()) return s;
    } else if (IsRegularFile(full_path)) {
      absl::StatusOr<std::string> text = ReadFile(full_path, bytes_left);
      if (!text.ok()) return text.status();
      bytes_left -= static_cast<int64_t>(text->size());
      files[path] = *std::move(text);
    }
  }
  return absl::OkStatus();
}

}  // namespace

TemplateFiles BuiltinTemplateFiles() {
  TemplateFiles files;
  for (const auto& [path, text] : EmbeddedTemplates()) {
    files[std::string(path)] = std::string(text);
  }
  return files;
}

absl::StatusOr<TemplateFiles> ReadTemplateDirectory(const std::string& directory) {
  TemplateFiles files;
  int64_t bytes_left = kMaxTemplateBytes;
  if (absl::Status s = ReadInto(directory, "", 0, bytes_left, files); !s.ok()) {
    return absl::Status(
        s.code(), absl::StrCat("cannot read kernel templates from ", directory, ": ", s.message()));
  }
  return files;
}

std::vector<std::string> OperationNames(const TemplateFiles& files) {
  std::vector<std::string> names;
  for (const auto& [path, text] : files) {
    const size_t slash = path.find('/');
    if (slash == std::string::npos) continue;
    const std::string name = path.substr(0, slash);
    if (path == absl::StrCat(name, "/", name, ".json")) names.push_back(name);
  }
  return names;
}

}  // namespace whet
