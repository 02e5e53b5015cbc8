// What the store does beside finding and keeping: giving room back, and telling what it holds.
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "cache/entry_rows.h"
#include "cache/schema.h"
#include "cache/sqlite_store.h"

namespace whet {
namespace {

// Entries that give way in one transaction, and transactions after one put: what a put may cost.
constexpr int kEvictionBatch = 64;
constexpr int kEvictionBatchesPerPut = 8;

absl::StatusOr<std::vector<std::string>> HashesToEvict(Database& db, const char* sql) {
  Query query(db, sql);
  query.BindInt(1, kEvictionBatch);
  std::vector<std::string> hashes;
  while (true) {
    absl::StatusOr<bool> row = query.Step();
    if (!row.ok()) return row.status();
    if (!*row) return hashes;
    hashes.emplace_back(query.Bytes(0));
  }
}

}  // namespace

absl::StatusOr<int64_t> SqliteStore::Evict(int64_t target_bytes, int batches,
                                           absl::string_view keep) {
  int64_t evicted = 0;
  for (int batch = 0; batch < batches && Ready(); ++batch) {
    absl::StatusOr<int64_t> used = file_.db->Integer(sql::kUsedBytes);
    if (!used.ok()) return used.status();
    if (*used <= target_bytes) break;
    const int64_t before = evicted;
    absl::Status status = Durably([&](Database& db) -> absl::Status {
      evicted = before;
      // Winners are small and dear: they go only when no code is left.
      for (const bool code : {true, false}) {
        absl::StatusOr<std::vector<std::string>> hashes =
            HashesToEvict(db, code ? sql::kCodeToEvict : sql::kWinnersToEvict);
        if (!hashes.ok()) return hashes.status();
        for (const std::string& hash : *hashes) {
          if (hash == keep) continue;
          absl::Status erased = code ? EraseCodeRow(db, hash) : EraseWinnerRow(db, hash);
          if (!erased.ok()) return erased;
          ++evicted;
          absl::StatusOr<int64_t> now = db.Integer(sql::kUsedBytes);
          if (!now.ok()) return now.status();
          if (*now <= target_bytes) return absl::OkStatus();
        }
        if (evicted > before) return absl::OkStatus();
      }
      return absl::OkStatus();
    });
    if (!status.ok()) return status;
    if (evicted == before) break;
  }
  if (evicted > 0) {
    counters_.evicted_entries += evicted;
    Emit({.kind = CacheEventKind::kEvicted, .detail = absl::StrCat(evicted)});
  }
  return evicted;
}

void SqliteStore::EvictAfterPut(absl::string_view keep) {
  if (options_.size_limit_bytes <= 0) return;
  if (!Ready()) return;
  absl::StatusOr<int64_t> used = file_.db->Integer(sql::kUsedBytes);
  if (!used.ok() || *used <= options_.size_limit_bytes) return;
  // A little below the limit, so that not every put has to evict.
  Evict(options_.size_limit_bytes - options_.size_limit_bytes / 20, kEvictionBatchesPerPut, keep)
      .status()
      .IgnoreError();
}

absl::StatusOr<int64_t> SqliteStore::Shrink(int64_t target_bytes) {
  MutexLock lock(mutex_);
  if (!Ready()) return absl::ResourceExhaustedError("cannot shrink the cache: out of memory");
  if (file_.read_only) {
    return absl::UnavailableError(
        absl::StrCat("cannot shrink the cache ", options_.path, ": it is read-only"));
  }
  absl::StatusOr<int64_t> evicted = Evict(target_bytes, /*batches=*/1 << 20, /*keep=*/"");
  if (!evicted.ok()) return evicted;
  // Readers may hold pages back; then the next time gives them up.
  if (Ready()) file_.db->Execute(sql::kReleasePages).IgnoreError();
  return evicted;
}

absl::StatusOr<StoreUsage> SqliteStore::Usage() {
  MutexLock lock(mutex_);
  if (!Ready()) return absl::ResourceExhaustedError("cannot inspect the cache: out of memory");
  StoreUsage usage;
  const struct {
    const char* sql;
    int64_t* out;
  } parts[] = {{sql::kCountCode, &usage.code_entries},
               {sql::kCountWinners, &usage.winner_entries},
               {sql::kUsedBytes, &usage.used_bytes},
               {sql::kFileBytes, &usage.file_bytes}};
  for (const auto& part : parts) {
    absl::StatusOr<int64_t> value = file_.db->Integer(part.sql);
    if (!value.ok()) return value.status();
    *part.out = *value;
  }
  return usage;
}

absl::StatusOr<std::vector<CodeEntry>> SqliteStore::ListCode() {
  MutexLock lock(mutex_);
  if (!Ready()) return absl::ResourceExhaustedError("cannot list the cache: out of memory");
  absl::StatusOr<std::vector<CodeEntry>> entries =
      ListCodeRows(*file_.db, SelectsOf(file_.version).list_code);
  // Opened read-only, a damaged file stays where it is; for who wants to save what is left of it.
  if (absl::IsDataLoss(entries.status()) && file_.read_only) return SalvageCodeRows(*file_.db);
  return entries;
}

absl::StatusOr<std::vector<WinnerEntry>> SqliteStore::ListWinners() {
  MutexLock lock(mutex_);
  if (!Ready()) return absl::ResourceExhaustedError("cannot list the cache: out of memory");
  absl::StatusOr<std::vector<WinnerEntry>> entries =
      ListWinnerRows(*file_.db, SelectsOf(file_.version).list_winners);
  if (absl::IsDataLoss(entries.status()) && file_.read_only) return SalvageWinnerRows(*file_.db);
  return entries;
}

absl::StatusOr<std::vector<QuarantineRecord>> SqliteStore::ListQuarantine() {
  MutexLock lock(mutex_);
  if (!Ready()) return absl::ResourceExhaustedError("cannot list the cache: out of memory");
  std::vector<QuarantineRecord> records;
  if (file_.version == 1) return records;
  Query query(*file_.db, sql::kListQuarantine);
  while (true) {
    absl::StatusOr<bool> row = query.Step();
    if (!row.ok()) return row.status();
    if (!*row) return records;
    records.push_back({.key_hash = absl::BytesToHexString(query.Bytes(0)),
                       .reason = std::string(query.Bytes(1)),
                       .count = query.Int(2),
                       .last_unix_s = query.Int(3)});
  }
}

bool SqliteStore::UsedByOthers() {
  MutexLock lock(mutex_);
  return IsMarkedByOthers(file_.in_use_fd);
}

}  // namespace whet
