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

// The operations among pairs of path and text, sorted by path.
template <typename Files>
std::vector<std::string> NamesIn(const Files& files) {
  std::vector<std::string> names;
  for (const auto& [path, text] : files) {
    const absl::string_view name = absl::string_view(path).substr(0, path.find('/'));
    if (path == absl::StrCat(name, "/", name, ".json")) names.emplace_back(name);
  }
  return names;
}

template <typename Wanted>
TemplateFiles EmbeddedFilesThat(Wanted wanted) {
  TemplateFiles files;
  for (const auto& [path, text] : EmbeddedTemplates()) {
    if (wanted(path)) files.emplace_hint(files.end(), path, text);
  }
  return files;
}

}  // namespace

TemplateFiles BuiltinTemplateFiles() {
  return EmbeddedFilesThat([](absl::string_view) { return true; });
}

TemplateFiles BuiltinTemplateFilesOf(absl::string_view operation) {
  return EmbeddedFilesThat([&](absl::string_view path) {
    const absl::string_view folder = path.substr(0, path.find('/'));
    return folder == operation || folder == "common";
  });
}

std::vector<std::string> BuiltinOperationNames() { return NamesIn(EmbeddedTemplates()); }

absl::StatusOr<TemplateFiles> ReadTemplateDirectory(const std::string& directory) {
  TemplateFiles files;
  int64_t bytes_left = kMaxTemplateBytes;
  if (absl::Status s = ReadInto(directory, "", 0, bytes_left, files); !s.ok()) {
    return absl::Status(
        s.code(), absl::StrCat("cannot read kernel templates from ", directory, ": ", s.message()));
  }
  return files;
}

std::vector<std::string> OperationNames(const TemplateFiles& files) { return NamesIn(files); }

}  // namespace whet
