#include "src/cli/cache_entry.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "src/base/hash.h"
#include "src/cli/report.h"
#include "src/model/key.h"
#include "src/runtime/code_attributes.h"

namespace whet {
namespace {

using nlohmann::ordered_json;

// Enough to name an entry to `whet cache show`.
constexpr size_t kShownHashDigits = 12;

std::string ShortHash(absl::string_view key) {
  return HashBytes(key).ToHex().substr(0, kShownHashDigits);
}

}  // namespace

KeyFieldList KeyFieldsOf(absl::string_view key) {
  absl::StatusOr<ParsedKeyRecord> record = ParseKeyRecord(key);
  if (!record.ok()) return {};
  return record->fields;
}

std::string KeyFieldOf(const KeyFieldList& fields, absl::string_view name) {
  for (const auto& [key, value] : fields) {
    if (key == name) return value;
  }
  return "";
}

ordered_json KeyFieldsJson(const KeyFieldList& fields) {
  ordered_json json = ordered_json::object();
  for (const auto& [name, value] : fields) {
    if (name == "option") {
      json[name].push_back(value);
    } else {
      json[name] = value;
    }
  }
  return json;
}

std::string TimeText(int64_t unix_s) {
  if (unix_s == 0) return "-";  // packs hold no times
  return absl::FormatTime("%Y-%m-%d %H:%M", absl::FromUnixSeconds(unix_s), absl::UTCTimeZone());
}

ordered_json CodeEntryJson(const CodeEntry& entry) {
  ordered_json json = {{"key_hash", HashBytes(entry.key).ToHex()}};
  if (absl::StatusOr<CodeAttributes> a = CodeAttributesFromJson(entry.attributes); a.ok()) {
    json["problem"] = a->problem;
    json["variant"] = a->variant;
    json["target"] = a->target;
    json["compiler"] = a->compiler;
    json["format"] = a->format;
    json["entry"] = a->entry;
    json["registers"] = a->resources.registers;
    json["spill_bytes"] = a->resources.spill_bytes;
  }
  json["created_unix_s"] = entry.created_unix_s;
  json["used_unix_s"] = entry.facts.used_unix_s;
  json["object_bytes"] = entry.facts.object_bytes;
  json["stored_bytes"] = entry.facts.stored_bytes;
  return json;
}

ordered_json WinnerEntryJson(const WinnerEntry& entry) {
  ordered_json json = {{"key_hash", HashBytes(entry.key).ToHex()}};
  for (const auto& [name, value] : KeyFieldsOf(entry.key)) json[name] = value;
  json["winner"] = entry.variant;
  json["samples"] = entry.evidence_count;
  json["created_unix_s"] = entry.created_unix_s;
  json["used_unix_s"] = entry.facts.used_unix_s;
  return json;
}

ordered_json SummaryJson(const EntrySummary& summary) {
  ordered_json json = {{"kind", summary.kind == EntrySummary::kCode ? "code" : "winner"},
                       {"key_hash", summary.key_hash},
                       {"key", KeyFieldsJson(summary.fields)}};
  if (summary.kind == EntrySummary::kWinner) json["winner"] = summary.variant;
  return json;
}

std::string CodeEntryText(const CodeEntry& entry) {
  absl::StatusOr<CodeAttributes> a = CodeAttributesFromJson(entry.attributes);
  if (!a.ok()) a = CodeAttributes();
  return absl::StrFormat("  %s  %s  %9s  %s  %s  %s\n      %s", ShortHash(entry.key),
                         TimeText(entry.created_unix_s), BytesText(entry.facts.object_bytes),
                         a->target, a->compiler, a->variant, ProblemText(a->problem));
}

std::string WinnerEntryText(const WinnerEntry& entry) {
  const KeyFieldList fields = KeyFieldsOf(entry.key);
  return absl::StrFormat("  %s  %s  %s  %s\n      %s", ShortHash(entry.key),
                         TimeText(entry.created_unix_s), KeyFieldOf(fields, "product"),
                         entry.variant, ProblemText(KeyFieldOf(fields, "problem")));
}

std::string SummaryText(const EntrySummary& summary) {
  const bool code = summary.kind == EntrySummary::kCode;
  return absl::StrCat(code ? "code    " : "winner  ", summary.key_hash.substr(0, kShownHashDigits),
                      "  ", KeyFieldOf(summary.fields, code ? "target" : "product"), "  ",
                      code ? KeyFieldOf(summary.fields, "variant") : summary.variant, "  ",
                      ProblemText(KeyFieldOf(summary.fields, "problem")));
}

}  // namespace whet
