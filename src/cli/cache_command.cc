// whet cache: what the user cache holds.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "src/cli/command.h"
#include "src/cli/device_flags.h"
#include "src/cli/report.h"
#include "src/model/key.h"
#include "src/runtime/code_attributes.h"

namespace whet {
namespace {

using nlohmann::ordered_json;

class CacheCommand final : public Command {
 public:
  void Declare(CLI::App& app) override;
  Outcome Run(Session& session) override;
};

void CacheCommand::Declare(CLI::App& app) {
  verb_ = app.add_subcommand("cache", "Look into the kernel cache");
  verb_->require_subcommand(1);
  verb_->fallthrough();
  verb_->add_subcommand("ls", "List code objects and winners, oldest first")->fallthrough();
}

// Fields of a key record by name; none when it cannot be read.
std::vector<std::pair<std::string, std::string>> KeyFields(const std::string& key) {
  absl::StatusOr<ParsedKeyRecord> record = ParseKeyRecord(key);
  if (!record.ok()) return {};
  return record->fields;
}

std::string KeyField(const std::vector<std::pair<std::string, std::string>>& fields,
                     absl::string_view name) {
  for (const auto& [key, value] : fields) {
    if (key == name) return value;
  }
  return "";
}

std::string AgeText(int64_t unix_s) {
  return absl::FormatTime("%Y-%m-%d %H:%M", absl::FromUnixSeconds(unix_s), absl::UTCTimeZone());
}

ordered_json CodeJson(const CodeEntry& entry) {
  ordered_json json = ordered_json::object();
  if (absl::StatusOr<CodeAttributes> a = CodeAttributesFromJson(entry.attributes); a.ok()) {
    json = {{"problem", a->problem},
            {"variant", a->variant},
            {"target", a->target},
            {"compiler", a->compiler},
            {"format", a->format},
            {"entry", a->entry},
            {"registers", a->resources.registers},
            {"spill_bytes", a->resources.spill_bytes}};
  }
  json["created_unix_s"] = entry.created_unix_s;
  json["object_bytes"] = entry.facts.object_bytes;
  json["stored_bytes"] = entry.facts.stored_bytes;
  return json;
}

ordered_json WinnerJson(const WinnerEntry& entry) {
  ordered_json json = ordered_json::object();
  for (const auto& [name, value] : KeyFields(entry.key)) json[name] = value;
  json["winner"] = entry.variant;
  json["samples"] = entry.evidence_count;
  json["created_unix_s"] = entry.created_unix_s;
  return json;
}

Outcome CacheCommand::Run(Session& session) {
  Console& console = session.console;
  // Looking must not change anything, not even set a damaged file aside.
  session.options.cache_policy = CachePolicy::kReadOnly;
  absl::StatusOr<std::unique_ptr<Runtime>> runtime = OpenRuntime(session, {});
  if (!runtime.ok()) return InputFailure(runtime.status());
  Store& store = (*runtime)->store();
  absl::StatusOr<std::vector<CodeEntry>> code = store.ListCode();
  if (!code.ok()) return ExecutionFailure(code.status());
  absl::StatusOr<std::vector<WinnerEntry>> winners = store.ListWinners();
  if (!winners.ok()) return ExecutionFailure(winners.status());

  ordered_json json = {{"path", store.persistent() ? store.path() : ""},
                       {"code", ordered_json::array()},
                       {"winners", ordered_json::array()}};
  if (!code->empty()) console.Line("code objects");
  int64_t bytes = 0;
  for (const CodeEntry& entry : *code) {
    bytes += entry.facts.stored_bytes;
    json["code"].push_back(CodeJson(entry));
    absl::StatusOr<CodeAttributes> a = CodeAttributesFromJson(entry.attributes);
    if (!a.ok()) continue;
    console.Line(absl::StrFormat("  %s  %9s  %s  %s  %s\n      %s", AgeText(entry.created_unix_s),
                                 BytesText(entry.facts.object_bytes), a->target, a->compiler,
                                 a->variant, ProblemText(a->problem)));
  }
  if (!winners->empty()) console.Line("winners");
  for (const WinnerEntry& entry : *winners) {
    json["winners"].push_back(WinnerJson(entry));
    const auto fields = KeyFields(entry.key);
    console.Line(absl::StrFormat("  %s  %s  %s\n      %s", AgeText(entry.created_unix_s),
                                 KeyField(fields, "product"), entry.variant,
                                 ProblemText(KeyField(fields, "problem"))));
  }
  json["stored_bytes"] = bytes;
  console.Line(absl::StrFormat("%d code objects (%s), %d winner%s in %s", code->size(),
                               BytesText(bytes), winners->size(), winners->size() == 1 ? "" : "s",
                               store.persistent() ? store.path() : "no file"));
  console.Json(DumpJson(json));
  return {};
}

}  // namespace

std::unique_ptr<Command> MakeCacheCommand() { return std::make_unique<CacheCommand>(); }

}  // namespace whet
