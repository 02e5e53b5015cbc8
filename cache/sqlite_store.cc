#include "cache/sqlite_store.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "cache/entry_codec.h"
#include "cache/entry_rows.h"
#include "cache/schema.h"

namespace whet {
namespace {

// An entry's use is stamped at most this often.
constexpr int64_t kTouchIntervalSeconds = 3600;
// What an entry takes besides its own bytes: row headers, index entries, half-filled pages.
constexpr int64_t kEntryOverheadBytes = 16 << 10;

// While it lives, commits are not synced: for what may be lost.
class Relaxed {
 public:
  explicit Relaxed(Database& db) : db_(db) {
    db_.Execute("PRAGMA synchronous = NORMAL").IgnoreError();
  }
  ~Relaxed() { db_.Execute("PRAGMA synchronous = FULL").IgnoreError(); }

 private:
  Database& db_;
};

}  // namespace

SqliteStore::SqliteStore(const StoreOptions& options, const Logger& log)
    : options_(options), log_(log), pid_(getpid()) {}

std::unique_ptr<SqliteStore> SqliteStore::Open(const StoreOptions& options, const Logger& log,
                                               absl::string_view why_memory) {
  std::unique_ptr<SqliteStore> store(new SqliteStore(options, log));
  MutexLock lock(store->mutex_);
  if (why_memory.empty()) {
    store->Attach();
  } else {
    store->AttachMemory(why_memory);
  }
  return store;
}

SqliteStore::~SqliteStore() {
  MutexLock lock(mutex_);
  if (getpid() != pid_ && file_.db != nullptr) file_.db->Abandon();
}

void SqliteStore::Emit(CacheEvent event) const {
  if (!options_.on_event) return;
  event.layer = "user";
  options_.on_event(event);
}

int64_t SqliteStore::NowUnixSeconds() const { return absl::ToUnixSeconds(options_.clock->Now()); }

bool SqliteStore::TouchIsDue(int64_t used_unix_s) const {
  if (file_.read_only || file_.db == nullptr) return false;
  const int64_t now = NowUnixSeconds();
  // Also when it lies ahead: the clock has jumped back since.
  return now - used_unix_s >= kTouchIntervalSeconds || used_unix_s > now + kTouchIntervalSeconds;
}

void SqliteStore::Touch(const char* sql, absl::string_view hash) {
  // A lost stamp only makes eviction a little less fair: nothing waits for it.
  file_.db->set_patient(false);
  {
    Relaxed relaxed(*file_.db);
    Query query(*file_.db, sql);
    query.BindBytes(1, hash);
    query.BindInt(2, NowUnixSeconds());
    query.Run().IgnoreError();
  }
  file_.db->set_patient(true);
}

void SqliteStore::ReportIfSlow(int64_t started_ns) const {
  const int64_t took_ns = options_.clock->MonotonicNanoseconds() - started_ns;
  if (took_ns < 1'000'000'000) return;
  log_.Warning(
      absl::StrCat("writing to the cache ", options_.path, " took ", took_ns / 1'000'000, " ms"));
}

absl::Status SqliteStore::Durably(absl::FunctionRef<absl::Status(Database&)> write) {
  const int64_t started_ns = options_.clock->MonotonicNanoseconds();
  absl::Status status;
  // Once more when the file was set aside or removed by another process meanwhile: what was
  // written there would be lost, so it is written again to the file that the path means now.
  for (int attempt = 0; attempt < 3; ++attempt) {
    if (!Ready()) {
      status = absl::ResourceExhaustedError("cannot write the cache: out of memory");
      break;
    }
    if (!file_.read_only && !file_.StillInPlace()) {
      file_ = CacheFile();
      Attach();
      if (file_.db == nullptr) continue;
    }
    if (file_.read_only) {
      status = absl::UnavailableError(
          absl::StrCat("cannot write the cache ", options_.path, ": it is read-only"));
      break;
    }
    {
      Transaction transaction(*file_.db);
      status = transaction.status();
      if (status.ok()) status = write(*file_.db);
      if (status.ok()) status = transaction.Commit();
    }
    if (status.ok() && file_.StillInPlace()) {
      ReportIfSlow(started_ns);
      return status;
    }
    if (status.ok()) {
      status = absl::UnavailableError("cannot write the cache: its file is replaced all the time");
      continue;
    }
    if (!absl::IsDataLoss(status)) break;
    Recover(status);
  }
  ReportIfSlow(started_ns);
  ++counters_.failed_writes;
  if (absl::IsFailedPrecondition(status)) return absl::UnavailableError(status.message());
  return status;
}

std::optional<CodeEntry> SqliteStore::Find(bool by_request, absl::string_view wanted) {
  std::optional<CodeRow> row;
  {
    MutexLock lock(mutex_);
    if (Ready()) {
      const Selects& selects = SelectsOf(file_.version);
      absl::StatusOr<std::optional<CodeRow>> read =
          FindCodeRow(*file_.db, by_request ? selects.find_code_by_request : selects.find_code,
                      HashColumn(wanted));
      if (read.ok()) {
        row = *std::move(read);
      } else {
        Recover(read.status());
      }
    }
    if (!row.has_value() || wanted != (by_request ? row->entry.request : row->entry.key)) {
      ++counters_.code_misses;
      return std::nullopt;
    }
  }
  const std::string hash = HashColumn(row->entry.key);
  const std::string checksum = row->checksum;
  absl::StatusOr<CodeEntry> entry = DecodeRow(*std::move(row), options_.object_limit_bytes);
  MutexLock lock(mutex_);
  if (!entry.ok()) {
    DropDamaged(hash, checksum, /*code=*/true);
    return std::nullopt;
  }
  ++counters_.code_hits;
  counters_.bytes_read += static_cast<int64_t>(entry->object.size());
  if (TouchIsDue(entry->facts.used_unix_s)) Touch(sql::kTouchCode, hash);
  return *std::move(entry);
}

std::optional<CodeEntry> SqliteStore::FindCode(absl::string_view key) {
  return Find(/*by_request=*/false, key);
}

std::optional<CodeEntry> SqliteStore::FindCodeByRequest(absl::string_view request) {
  return Find(/*by_request=*/true, request);
}

void SqliteStore::Quarantine(absl::string_view hash, absl::string_view reason) {
  Query query(*file_.db, sql::kQuarantine);
  query.BindBytes(1, hash);
  query.BindBytes(2, reason);
  query.BindInt(3, NowUnixSeconds());
  query.Run().IgnoreError();
}

// Only while it still has the damaged checksum: meanwhile another process may have rebuilt it.
void SqliteStore::DropDamaged(absl::string_view hash, absl::string_view checksum, bool code) {
  if (!file_.read_only) {
    Durably([&](Database& db) ABSL_NO_THREAD_SAFETY_ANALYSIS -> absl::Status {
      if (code) {
        Query object(db, sql::kRemoveObjectExact);
        object.BindBytes(1, hash);
        object.BindBytes(2, checksum);
        if (absl::Status removed = object.Run(); !removed.ok()) return removed;
      }
      Query query(db, code ? sql::kRemoveCodeExact : sql::kRemoveWinnerExact);
      query.BindBytes(1, hash);
      query.BindBytes(2, checksum);
      absl::Status removed = query.Run();
      if (removed.ok()) Quarantine(hash, "wrong checksum or size");
      return removed;
    }).IgnoreError();
  }
  ++(code ? counters_.code_misses : counters_.winner_misses);
  Emit({.kind = CacheEventKind::kDamaged, .key_hash = absl::BytesToHexString(hash)});
  if (++counters_.damaged_entries > 1) return;
  log_.Warning(absl::StrCat("an entry of the cache ", options_.path,
                            " was damaged and is made again (key ", absl::BytesToHexString(hash),
                            "; further ones are only counted)"));
}

absl::Status SqliteStore::PutCode(const CodeEntry& given) {
  if (absl::Status limits = CheckCodeLimits(given, options_.object_limit_bytes); !limits.ok()) {
    return limits;
  }
  CodeEntry entry = given;
  if (entry.created_unix_s == 0) entry.created_unix_s = NowUnixSeconds();
  const StoredObject stored = EncodeObject(entry.object);
  const std::string key_hash = HashColumn(entry.key);
  const std::string request_hash = HashColumn(entry.request);
  const std::string checksum = CodeChecksum(entry);
  const int64_t room =
      static_cast<int64_t>(stored.bytes.size() + entry.attributes.size()) + kEntryOverheadBytes;
  if (options_.size_limit_bytes > 0 && room > options_.size_limit_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot store a code object of ", entry.object.size(),
                     " bytes: the whole cache may use ", options_.size_limit_bytes));
  }
  MutexLock lock(mutex_);
  absl::Status status = Durably([&](Database& db) -> absl::Status {
    Query put(db, sql::kPutCode);
    put.BindBytes(1, key_hash);
    put.BindBytes(2, request_hash);
    put.BindBytes(3, entry.key);
    put.BindBytes(4, entry.request);
    put.BindInt(5, static_cast<int64_t>(entry.object.size()));
    put.BindInt(6, static_cast<int64_t>(stored.codec));
    put.BindBytes(7, checksum);
    put.BindInt(8, entry.created_unix_s);
    put.BindInt(9, NowUnixSeconds());
    put.BindInt(10, options_.generation);
    absl::StatusOr<bool> row = put.Step();
    if (!row.ok()) return row.status();
    const int64_t id = put.Int(0);
    if (absl::Status rest = put.Run(); !rest.ok()) return rest;
    Query object(db, sql::kPutObject);
    object.BindInt(1, id);
    object.BindBytes(2, entry.attributes);
    object.BindBytes(3, stored.bytes);
    return object.Run();
  });
  if (!status.ok()) return status;
  ++counters_.code_writes;
  counters_.bytes_written += static_cast<int64_t>(entry.object.size());
  EvictAfterPut(key_hash);
  return status;
}

void SqliteStore::RemoveCode(absl::string_view key, absl::string_view reason) {
  const std::string hash = HashColumn(key);
  MutexLock lock(mutex_);
  absl::Status status = Durably([&](Database& db) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    absl::Status erased = EraseCodeRow(db, hash);
    if (erased.ok()) Quarantine(hash, reason);
    return erased;
  });
  ++counters_.load_failures;
  Emit({.kind = CacheEventKind::kLoadFailure,
        .key_hash = absl::BytesToHexString(hash),
        .detail = std::string(reason)});
  log_.Warning(absl::StrCat("a code object of the cache ", options_.path,
                            status.ok() ? " was dropped: " : " is unusable and stays: ", reason));
}

absl::Status SqliteStore::EraseCode(absl::string_view key) {
  MutexLock lock(mutex_);
  return Durably([&](Database& db) { return EraseCodeRow(db, HashColumn(key)); });
}

std::optional<WinnerEntry> SqliteStore::FindWinner(absl::string_view key) {
  const std::string hash = HashColumn(key);
  MutexLock lock(mutex_);
  std::optional<WinnerRow> row;
  if (Ready()) {
    absl::StatusOr<std::optional<WinnerRow>> read =
        FindWinnerRow(*file_.db, SelectsOf(file_.version).find_winner, hash);
    if (read.ok()) {
      row = *std::move(read);
    } else {
      Recover(read.status());
    }
  }
  if (!row.has_value() || row->entry.key != key) {
    ++counters_.winner_misses;
    return std::nullopt;
  }
  if (!IsIntact(*row)) {
    DropDamaged(hash, row->checksum, /*code=*/false);
    return std::nullopt;
  }
  ++counters_.winner_hits;
  if (TouchIsDue(row->entry.facts.used_unix_s)) Touch(sql::kTouchWinner, hash);
  return std::move(row->entry);
}

std::vector<bool> SqliteStore::HaveWinners(const std::vector<std::string>& keys) {
  MutexLock lock(mutex_);
  if (!Ready()) return std::vector<bool>(keys.size());
  return HaveWinnerRows(*file_.db, keys);
}

absl::Status SqliteStore::PutWinner(const WinnerEntry& given) {
  if (absl::Status limits = CheckWinnerLimits(given); !limits.ok()) return limits;
  WinnerEntry entry = given;
  if (entry.created_unix_s == 0) entry.created_unix_s = NowUnixSeconds();
  const std::string hash = HashColumn(entry.key);
  const std::string checksum = WinnerChecksum(entry);
  MutexLock lock(mutex_);
  absl::Status status = Durably([&](Database& db) {
    Query query(db, sql::kPutWinner);
    query.BindBytes(1, hash);
    query.BindBytes(2, entry.key);
    query.BindBytes(3, entry.variant);
    query.BindBytes(4, entry.code_key);
    query.BindBytes(5, entry.evidence);
    query.BindBytes(6, checksum);
    query.BindInt(7, entry.created_unix_s);
    query.BindInt(8, NowUnixSeconds());
    query.BindInt(9, options_.generation);
    query.BindInt(10, entry.protocol);
    query.BindInt(11, entry.evidence_count);
    return query.Run();
  });
  if (!status.ok()) return status;
  ++counters_.winner_writes;
  EvictAfterPut(hash);
  return status;
}

absl::Status SqliteStore::EraseWinner(absl::string_view key) {
  MutexLock lock(mutex_);
  return Durably([&](Database& db) { return EraseWinnerRow(db, HashColumn(key)); });
}

StoreCounters SqliteStore::counters() const {
  MutexLock lock(mutex_);
  return counters_;
}

}  // namespace whet
