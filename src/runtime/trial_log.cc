#include "src/runtime/trial_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "src/base/files.h"
#include "src/base/hash.h"
#include "src/tune/evidence.h"

namespace whet {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostBytes = 64 << 20;

std::string HostName() {
  std::array<char, 256> name = {};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

// When the process was started, in ticks since the boot: tells a process from a later one with its
// number. Empty when there is none.
std::string StartOf(int64_t pid) {
  const absl::StatusOr<std::string> stat = ReadFile(absl::StrCat("/proc/", pid, "/stat"), 1 << 16);
  if (!stat.ok()) return "";
  // The name in parentheses may hold anything; the fields are counted behind it.
  const size_t name_end = stat->rfind(')');
  if (name_end == std::string::npos) return "";
  const std::vector<std::string> fields =
      absl::StrSplit(stat->substr(name_end + 1), ' ', absl::SkipEmpty());
  constexpr size_t kStart = 19;
  return fields.size() > kStart ? fields[kStart] : "";
}

std::string TextOf(const Json& json, const char* name) {
  const auto it = json.find(name);
  return it != json.end() && it->is_string() ? it->get<std::string>() : "";
}

std::vector<Json> ReadLines(const std::string& path) {
  std::vector<Json> lines;
  const absl::StatusOr<std::string> text = ReadFile(path, kMostBytes);
  if (!text.ok()) return lines;
  for (const absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
    // A line that a crash cut off is no line.
    Json json = Json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
    if (json.is_object()) lines.push_back(std::move(json));
  }
  return lines;
}

}  // namespace

TrialLog::TrialLog(TrialLogOptions options) : options_(std::move(options)) {
  if (options_.directory.empty()) return;
  blocked_path_ = JoinPath(options_.directory, "blocked.jsonl");
  const std::string folder = JoinPath(options_.directory, "trials");
  // What another compiler's code did says nothing of this one's.
  const std::string name = HashBytes(absl::StrCat(options_.tuning_key, "\n", options_.toolchain,
                                                  "\n", options_.operation))
                               .ToHex();
  trials_path_ = JoinPath(folder, absl::StrCat(name, ".jsonl"));
  myself_ = absl::StrCat(HostName(), " ", getpid(), " ", StartOf(getpid()));
  ReadBlocked();
  ReadTrials();
  if (!MakeDirectories(folder).ok()) return;
  trials_fd_ = Open(trials_path_);
}

TrialLog::~TrialLog() {
  if (trials_fd_ >= 0) close(trials_fd_);
}

int TrialLog::Open(const std::string& path) const {
  return open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
}

void TrialLog::Append(int fd, const std::string& line) const {
  if (fd < 0) return;
  const std::string whole = line + "\n";
  // One write: lines of two processes do not mix. What does not fit on the disk is not kept.
  (void)!write(fd, whole.data(), whole.size());
}

void TrialLog::ReadBlocked() {
  for (const Json& line : ReadLines(blocked_path_)) {
    if (TextOf(line, "target") != options_.target ||
        TextOf(line, "toolchain") != options_.toolchain ||
        TextOf(line, "operation") != options_.operation) {
      continue;
    }
    absl::StatusOr<Variant> variant = Variant::Parse(TextOf(line, "variant"));
    if (!variant.ok() || IsKnown(*variant)) continue;
    VariantEvidence evidence;
    evidence.variant = *std::move(variant);
    evidence.outcome = VariantOutcome::kFailed;
    evidence.reason = absl::StrCat("blocked: ", TextOf(line, "reason"));
    evidence.blocked = true;
    known_.push_back(std::move(evidence));
  }
}

void TrialLog::ReadTrials() {
  std::map<std::string, Variant> open;  // who is launching -> what
  for (const Json& line : ReadLines(trials_path_)) {
    if (line.contains("launching")) {
      if (auto variant = Variant::Parse(TextOf(line, "launching")); variant.ok()) {
        open[TextOf(line, "by")] = *variant;
      }
    } else if (line.contains("launched")) {
      open.erase(TextOf(line, "by"));
    } else if (auto evidence = VariantEvidenceFromJson(line.dump()); evidence.ok()) {
      known_.push_back(*std::move(evidence));
    }
  }
  for (const auto& [who, variant] : open) {
    const std::vector<std::string> parts = absl::StrSplit(who, ' ');
    // Another node's process cannot be asked; it may be at it still.
    if (parts.size() != 3 || parts[0] != HostName()) continue;
    int64_t pid = 0;
    if (!absl::SimpleAtoi(parts[1], &pid) || StartOf(pid) == parts[2]) continue;
    if (IsKnown(variant)) continue;
    VariantEvidence evidence;
    evidence.variant = variant;
    evidence.outcome = VariantOutcome::kFailed;
    evidence.reason =
        "its first launch in an earlier run did not end: it hung, or took the process with it";
    evidence.blocked = true;
    Block(evidence);
    known_.push_back(std::move(evidence));
  }
}

bool TrialLog::IsKnown(const Variant& variant) const {
  return std::any_of(known_.begin(), known_.end(),
                     [&](const VariantEvidence& e) { return e.variant == variant; });
}

void TrialLog::Block(const VariantEvidence& evidence) {
  if (!MakeDirectories(options_.directory).ok()) return;
  const int fd = Open(blocked_path_);
  Append(fd, Json({{"operation", options_.operation},
                   {"variant", evidence.variant.id()},
                   {"target", options_.target},
                   {"toolchain", options_.toolchain},
                   {"reason", evidence.reason}})
                 .dump(-1, ' ', false, Json::error_handler_t::replace));
  if (fd >= 0) close(fd);
}

void TrialLog::Launching(const Variant& variant) {
  Append(trials_fd_, Json({{"launching", variant.id()}, {"by", myself_}}).dump());
}

void TrialLog::Launched(const Variant& variant) {
  Append(trials_fd_, Json({{"launched", variant.id()}, {"by", myself_}}).dump());
}

void TrialLog::Out(const VariantEvidence& evidence) {
  Append(trials_fd_, VariantEvidenceToJson(evidence));
  if (evidence.blocked && !options_.directory.empty()) Block(evidence);
}

void TrialLog::Finish() {
  if (!trials_path_.empty()) unlink(trials_path_.c_str());
}

}  // namespace whet
