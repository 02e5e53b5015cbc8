#include "src/base/log.h"

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"

namespace whet {

LogSink StandardErrorSink() {
  return [](LogLevel level, absl::string_view line) {
    if (level == LogLevel::kInfo) return;
    // One write per line, so that lines of several threads and processes do not mix.
    const std::string text =
        absl::StrCat("whet: ", level == LogLevel::kWarning ? "warning: " : "", line, "\n");
    std::fwrite(text.data(), 1, text.size(), stderr);
  };
}

}  // namespace whet
