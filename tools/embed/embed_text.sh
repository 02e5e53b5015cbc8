#!/bin/sh
# Turns text files into a table of C++ raw string literals, sorted by path, for embedding.
#
#   embed_text.sh kernel_templates kernel_templates/a/b.json ... > embedded_templates.cc
#
# The first argument is the root that is taken off each path. A file that holds the literals' own
# delimiter cannot be embedded and fails the build.
set -eu
export LC_ALL=C
root=$1
shift
cat <<'HEAD'
#include "kernel_templates/embedded_templates.h"

namespace whet {
namespace {

struct File {
  absl::string_view path;
  absl::string_view text;
};

constexpr File kFiles[] = {
HEAD
printf '%s\n' "$@" | sort | while IFS= read -r file; do
  if grep -q ')WHETTEXT"' "$file"; then
    echo "embed_text.sh: $file holds the delimiter )WHETTEXT\"" >&2
    exit 1
  fi
  printf '    {"%s",\n     R"WHETTEXT(' "${file#"$root"/}"
  cat "$file"
  printf ')WHETTEXT"},\n'
done
cat <<'TAIL'
};

}  // namespace

std::vector<std::pair<absl::string_view, absl::string_view>> EmbeddedTemplates() {
  std::vector<std::pair<absl::string_view, absl::string_view>> files;
  for (const File& file : kFiles) files.emplace_back(file.path, file.text);
  return files;
}

}  // namespace whet
TAIL
