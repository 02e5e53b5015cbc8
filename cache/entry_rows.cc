#include "cache/entry_rows.h"

#include <utility>

#include "absl/container/flat_hash_set.h"
#include "cache/entry_codec.h"
#include "cache/schema.h"

namespace whet {
namespace {

CodeEntry ReadCode(Query& query) {
  CodeEntry entry;
  entry.key = std::string(query.Bytes(kCodeKey));
  entry.request = std::string(query.Bytes(kCodeRequest));
  entry.attributes = std::string(query.Bytes(kCodeAttributes));
  entry.created_unix_s = query.Int(kCodeCreated);
  entry.facts = {.used_unix_s = query.Int(kCodeUsed),
                 .generation = query.Int(kCodeGeneration),
                 .object_bytes = query.Int(kCodeObjectBytes),
                 .stored_bytes = query.Int(kCodeStoredBytes)};
  return entry;
}

WinnerEntry ReadWinner(Query& query) {
  WinnerEntry entry;
  entry.key = std::string(query.Bytes(kWinnerKey));
  entry.variant = std::string(query.Bytes(kWinnerVariant));
  entry.code_key = std::string(query.Bytes(kWinnerCodeKey));
  entry.evidence = std::string(query.Bytes(kWinnerEvidence));
  entry.created_unix_s = query.Int(kWinnerCreated);
  entry.protocol = query.Int(kWinnerProtocol);
  entry.evidence_count = query.Int(kWinnerEvidenceCount);
  const int64_t bytes = static_cast<int64_t>(entry.key.size() + entry.variant.size() +
                                             entry.code_key.size() + entry.evidence.size());
  entry.facts = {.used_unix_s = query.Int(kWinnerUsed),
                 .generation = query.Int(kWinnerGeneration),
                 .object_bytes = bytes,
                 .stored_bytes = bytes};
  return entry;
}

absl::Status RunWith(Database& db, const char* sql, absl::string_view hash) {
  Query query(db, sql);
  query.BindBytes(1, hash);
  return query.Run();
}

template <typename Entry>
absl::StatusOr<std::vector<Entry>> ReadAll(Database& db, const char* select,
                                           Entry (*read)(Query&)) {
  std::vector<Entry> entries;
  Query query(db, select);
  while (true) {
    absl::StatusOr<bool> row = query.Step();
    if (!row.ok()) return row.status();
    if (!*row) return entries;
    entries.push_back(read(query));
  }
}

template <typename Entry>
std::vector<Entry> SalvageAll(Database& db, const char* forward, const char* backward,
                              Entry (*read)(Query&)) {
  std::vector<Entry> entries;
  absl::flat_hash_set<std::string> seen;
  for (const char* const select : {forward, backward}) {
    Query query(db, select);
    while (query.Step().value_or(false)) {
      Entry entry = read(query);
      if (seen.insert(entry.key).second) entries.push_back(std::move(entry));
    }
  }
  return entries;
}

}  // namespace

absl::StatusOr<std::optional<CodeRow>> FindCodeRow(Database& db, const char* select,
                                                   absl::string_view hash) {
  Query query(db, select);
  query.BindBytes(1, hash);
  absl::StatusOr<bool> found = query.Step();
  if (!found.ok()) return found.status();
  if (!*found) return std::optional<CodeRow>();
  CodeRow row{.entry = ReadCode(query),
              .codec = query.Int(kCodeCodec),
              .checksum = std::string(query.Bytes(kCodeChecksum)),
              .stored = std::string(query.Bytes(kCodeStored))};
  return std::optional<CodeRow>(std::move(row));
}

absl::StatusOr<std::optional<WinnerRow>> FindWinnerRow(Database& db, const char* select,
                                                       absl::string_view hash) {
  Query query(db, select);
  query.BindBytes(1, hash);
  absl::StatusOr<bool> found = query.Step();
  if (!found.ok()) return found.status();
  if (!*found) return std::optional<WinnerRow>();
  WinnerRow row{.entry = ReadWinner(query), .checksum = std::string(query.Bytes(kWinnerChecksum))};
  return std::optional<WinnerRow>(std::move(row));
}

std::vector<bool> HaveWinnerRows(Database& db, const std::vector<std::string>& keys) {
  std::vector<bool> have(keys.size());
  std::string hashes;
  for (const std::string& key : keys) hashes += HashColumn(key);
  Query query(db, sql::kHaveWinners);
  query.BindBytes(1, hashes);
  while (query.Step().value_or(false)) {
    const size_t i = static_cast<size_t>(query.Int(0));
    have[i] = query.Bytes(1) == keys[i];
  }
  return have;
}

absl::StatusOr<CodeEntry> DecodeRow(CodeRow row, int64_t object_limit_bytes) {
  absl::StatusOr<std::string> object =
      DecodeObject(row.codec, row.stored, row.entry.facts.object_bytes, object_limit_bytes);
  if (!object.ok()) return object.status();
  row.entry.object = *std::move(object);
  if (CodeChecksum(row.entry) != row.checksum) {
    return absl::DataLossError("the entry's checksum is wrong");
  }
  return std::move(row.entry);
}

bool IsIntact(const WinnerRow& row) { return WinnerChecksum(row.entry) == row.checksum; }

absl::Status EraseCodeRow(Database& db, absl::string_view hash) {
  absl::Status status = RunWith(db, sql::kRemoveObject, hash);
  if (status.ok()) status = RunWith(db, sql::kRemoveCode, hash);
  return status;
}

absl::Status EraseWinnerRow(Database& db, absl::string_view hash) {
  return RunWith(db, sql::kRemoveWinner, hash);
}

absl::StatusOr<std::vector<CodeEntry>> ListCodeRows(Database& db, const char* select) {
  return ReadAll<CodeEntry>(db, select, &ReadCode);
}

absl::StatusOr<std::vector<WinnerEntry>> ListWinnerRows(Database& db, const char* select) {
  return ReadAll<WinnerEntry>(db, select, &ReadWinner);
}

std::vector<CodeEntry> SalvageCodeRows(Database& db) {
  return SalvageAll<CodeEntry>(db, sql::kSalvageCode, sql::kSalvageCodeBackward, &ReadCode);
}

std::vector<WinnerEntry> SalvageWinnerRows(Database& db) {
  return SalvageAll<WinnerEntry>(db, sql::kSalvageWinners, sql::kSalvageWinnersBackward,
                                 &ReadWinner);
}

}  // namespace whet
