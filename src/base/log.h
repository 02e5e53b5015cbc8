// Where the library's few words go: by default nowhere but for warnings, and for what took longer
// than a second, which are one line each on standard error.
//
//   LogSink sink = [](LogLevel level, absl::string_view line) { ... };
//   Logger log(sink);
//   log.Warning("the cache /x/y.db is corrupt (...); it was set aside as y.db.corrupt-1 and a new
//   one is used");
#pragma once

#include <functional>
#include <utility>

#include "absl/strings/string_view.h"

namespace whet {

enum class LogLevel {
  kInfo,    // dropped by default
  kNotice,  // nothing is wrong, but it took long
  kWarning,
};

// Called from any thread, possibly from several at once. An empty function drops everything.
using LogSink = std::function<void(LogLevel, absl::string_view line)>;

// Warnings to standard error as "whet: warning: <line>", notices as "whet: <line>"; information is
// dropped.
LogSink StandardErrorSink();

class Logger {
 public:
  explicit Logger(LogSink sink = StandardErrorSink()) : sink_(std::move(sink)) {}
  void Info(absl::string_view line) const { Send(LogLevel::kInfo, line); }
  void Notice(absl::string_view line) const { Send(LogLevel::kNotice, line); }
  void Warning(absl::string_view line) const { Send(LogLevel::kWarning, line); }

 private:
  void Send(LogLevel level, absl::string_view line) const {
    if (sink_) sink_(level, line);
  }

  LogSink sink_;
};

}  // namespace whet
