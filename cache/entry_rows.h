// Entries as rows: read from any file of ours, cache or pack, and checked.
//
//   auto row = FindCodeRow(db, SelectsOf(version).find_code, HashColumn(key));
//   if (row.ok() && row->has_value()) entry = DecodeRow(**std::move(row), limit);
//
// Not thread-safe, as the Database is not; DecodeRow and IsIntact are pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cache/sqlite_db.h"
#include "cache/store.h"

namespace whet {

struct CodeRow {
  CodeEntry entry;  // without its object
  int64_t codec = 0;
  std::string checksum;
  std::string stored;
};

struct WinnerRow {
  WinnerEntry entry;
  std::string checksum;
};

absl::StatusOr<std::optional<CodeRow>> FindCodeRow(Database& db, const char* select,
                                                   absl::string_view hash);
absl::StatusOr<std::optional<WinnerRow>> FindWinnerRow(Database& db, const char* select,
                                                       absl::string_view hash);

// Which of `keys` have a winner, in one statement. What cannot be read has none.
std::vector<bool> HaveWinnerRows(Database& db, const std::vector<std::string>& keys);

// With its object, once size and checksum are right; otherwise DataLoss.
absl::StatusOr<CodeEntry> DecodeRow(CodeRow row, int64_t object_limit_bytes);
bool IsIntact(const WinnerRow& row);

// Inside a transaction. OK when there is none.
absl::Status EraseCodeRow(Database& db, absl::string_view hash);
absl::Status EraseWinnerRow(Database& db, absl::string_view hash);

absl::StatusOr<std::vector<CodeEntry>> ListCodeRows(Database& db, const char* select);
absl::StatusOr<std::vector<WinnerEntry>> ListWinnerRows(Database& db, const char* select);

// The same of a damaged file: every entry whose key can still be reached from one of its ends. The
// entries hold little but their keys, by which they can then be looked up one by one.
std::vector<CodeEntry> SalvageCodeRows(Database& db);
std::vector<WinnerEntry> SalvageWinnerRows(Database& db);

}  // namespace whet
