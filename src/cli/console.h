// Everything the tool says: results on standard output, progress and complaints on standard error.
//
//   Console console(stdout, stderr, {.json = false, .quiet = false});
//   console.Row("winner", "cpu:block_q=32");
//   runtime->SetProgressSink(console.Progress());
//
// With `json`, standard output carries one object and nothing else. Progress is a line that is
// rewritten on a terminal, a line at the first beginning and the end of each stage (and every five
// seconds) elsewhere, and nothing with `quiet`, or with `json` where there is no terminal.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/mutex.h"
#include "src/runtime/runtime.h"

namespace whet {

struct ConsoleOptions {
  bool json = false;
  bool quiet = false;
  bool terminal = false;  // standard error is one that can rewrite a line
  Clock* clock = Clock::Real();
};

// Thread-safe. The sinks it gives out must not outlive it.
class Console {
 public:
  Console(std::FILE* out, std::FILE* err, ConsoleOptions options);
  ~Console();

  bool json() const { return options_.json; }

  // A line of the result; nothing with `json`.
  void Line(absl::string_view text);
  // The same in two columns.
  void Row(absl::string_view label, absl::string_view text);
  // The result as JSON; nothing without `json`, and nothing after the first: there is one object.
  void Json(absl::string_view object);
  // "whet: error: <text>" in one line, whatever the text holds.
  void Error(absl::string_view text);

  LogSink Log();
  ProgressSink Progress();
  // Takes the progress line away, before something else is said.
  void EndProgress();

  // False when standard output could not take everything, as on a full disk.
  bool Flush();

 private:
  void ShowProgress(absl::string_view problem, absl::string_view stage, int done, int of);
  void ClearLine() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::FILE* const out_;
  std::FILE* const err_;
  const ConsoleOptions options_;
  Mutex mutex_;
  bool json_written_ ABSL_GUARDED_BY(mutex_) = false;
  bool line_shown_ ABSL_GUARDED_BY(mutex_) = false;
  std::string problem_ ABSL_GUARDED_BY(mutex_);
  int64_t problem_begin_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, bool> stages_
      ABSL_GUARDED_BY(mutex_);  // of it, and whether they have ended
  int64_t shown_ns_ ABSL_GUARDED_BY(mutex_) = 0;
};

// One printable line: runs of spaces, newlines and other control characters become one space.
std::string OneLine(absl::string_view text);

}  // namespace whet
