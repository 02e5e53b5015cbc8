// Cache entries for people and, with --json, for programs.
//
//   json["code"].push_back(CodeEntryJson(entry));
//   console.Line(CodeEntryText(entry));
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "cache/maintenance.h"
#include "cache/store.h"

namespace whet {

using KeyFieldList = std::vector<std::pair<std::string, std::string>>;

// Fields of a key record in order; none when it is no record.
KeyFieldList KeyFieldsOf(absl::string_view key);
// The first field of that name; empty when there is none.
std::string KeyFieldOf(const KeyFieldList& fields, absl::string_view name);
// {"template": "rms_norm", ...}; of repeated names ("option") a list.
nlohmann::ordered_json KeyFieldsJson(const KeyFieldList& fields);

// "2026-11-30 16:05" in UTC.
std::string TimeText(int64_t unix_s);

nlohmann::ordered_json CodeEntryJson(const CodeEntry& entry);
nlohmann::ordered_json WinnerEntryJson(const WinnerEntry& entry);
nlohmann::ordered_json SummaryJson(const EntrySummary& summary);
// Two lines, indented.
std::string CodeEntryText(const CodeEntry& entry);
std::string WinnerEntryText(const WinnerEntry& entry);
// One line: "code 3f9c0a12  gfx942  hip:block=64  rms_norm:..."
std::string SummaryText(const EntrySummary& summary);

}  // namespace whet
