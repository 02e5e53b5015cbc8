#include "src/cli/console.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace whet {
namespace {

constexpr int64_t kRewriteNs = 50'000'000;
constexpr int64_t kReassureNs = 5'000'000'000;
constexpr int kBarWidth = 24;
constexpr int kLabelWidth = 14;

// What the tuner calls its stages, said to people.
absl::string_view StageText(absl::string_view stage) {
  if (stage == "compile") return "compiling";
  if (stage == "verify") return "verifying";
  if (stage == "screen") return "screening";
  if (stage == "heats") return "racing";
  if (stage == "finals") return "timing the finalists";
  return stage;
}

void Write(std::FILE* file, absl::string_view text) {
  std::fwrite(text.data(), 1, text.size(), file);
}

}  // namespace

std::string OneLine(absl::string_view text) {
  std::string line;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool blank = byte <= 0x20 || byte == 0x7F;
    if (!blank) {
      line.push_back(c);
    } else if (!line.empty() && line.back() != ' ') {
      line.push_back(' ');
    }
  }
  if (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

Console::Console(std::FILE* out, std::FILE* err, ConsoleOptions options)
    : out_(out), err_(err), options_(options) {}

Console::~Console() { EndProgress(); }

void Console::Line(absl::string_view text) {
  if (options_.json) return;
  MutexLock lock(mutex_);
  ClearLine();
  Write(out_, absl::StrCat(text, "\n"));
  // In step with the progress on standard error, also through a pipe.
  std::fflush(out_);
}

void Console::Row(absl::string_view label, absl::string_view text) {
  Line(absl::StrFormat("%-*s %s", kLabelWidth - 1, label, text));
}

void Console::Json(absl::string_view object) {
  if (!options_.json) return;
  MutexLock lock(mutex_);
  if (json_written_) return;
  json_written_ = true;
  ClearLine();
  Write(out_, absl::StrCat(object, "\n"));
}

void Console::Error(absl::string_view text) {
  MutexLock lock(mutex_);
  ClearLine();
  std::fflush(out_);  // so that the two streams stand in the order in which they were written
  Write(err_, absl::StrCat("whet: error: ", OneLine(text), "\n"));
}

LogSink Console::Log() {
  return [this](LogLevel level, absl::string_view line) {
    if (level != LogLevel::kWarning) return;
    MutexLock lock(mutex_);
    ClearLine();
    Write(err_, absl::StrCat("whet: warning: ", OneLine(line), "\n"));
  };
}

ProgressSink Console::Progress() {
  if (options_.quiet || (options_.json && !options_.terminal)) return {};
  return [this](absl::string_view problem, absl::string_view stage, int done, int of) {
    ShowProgress(problem, stage, done, of);
  };
}

void Console::EndProgress() {
  MutexLock lock(mutex_);
  ClearLine();
  problem_.clear();
}

bool Console::Flush() { return std::fflush(out_) == 0 && std::ferror(out_) == 0; }

void Console::ClearLine() {
  if (!line_shown_) return;
  Write(err_, "\r\x1b[K");
  std::fflush(err_);
  line_shown_ = false;
}

void Console::ShowProgress(absl::string_view problem, absl::string_view stage, int done, int of) {
  const int64_t now = options_.clock->MonotonicNanoseconds();
  MutexLock lock(mutex_);
  if (problem_ != problem) {
    problem_ = std::string(problem);
    stages_.clear();
    problem_begin_ns_ = now;
  }
  auto [place, begins] = stages_.try_emplace(std::string(stage));
  // Stages may take turns, chunk by chunk; each has one beginning and one end.
  const bool ends = done >= of && !std::exchange(place->second, place->second || done >= of);
  const double seconds = static_cast<double>(now - problem_begin_ns_) / 1e9;
  if (!options_.terminal) {
    if (!begins && !ends && now - shown_ns_ < kReassureNs) return;
    shown_ns_ = now;
    const std::string when = seconds >= 0.05 ? absl::StrFormat(", after %.1f s", seconds) : "";
    Write(err_, absl::StrFormat("whet: %s %d of %d%s\n", StageText(stage), done, of, when));
    return;
  }
  if (!begins && !ends && now - shown_ns_ < kRewriteNs) return;
  shown_ns_ = now;
  const int filled = of > 0 ? std::clamp(kBarWidth * done / of, 0, kBarWidth) : 0;
  Write(err_, absl::StrFormat("\r%-20s [%s%s] %d of %d  %.1f s\x1b[K", StageText(stage),
                              std::string(static_cast<size_t>(filled), '#'),
                              std::string(static_cast<size_t>(kBarWidth - filled), '.'), done, of,
                              seconds));
  std::fflush(err_);
  line_shown_ = true;
}

}  // namespace whet
