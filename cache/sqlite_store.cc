#include "cache/sqlite_store.h"

#include <unistd.h>

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "cache/entry_codec.h"
#include "cache/schema.h"

namespace whet {
namespace {

// An entry's use is stamped at most this often.
constexpr int64_t kTouchIntervalSeconds = 3600;

CodeEntry ReadCode(Query& query) {
  CodeEntry entry;
  entry.key = std::string(query.Bytes(sql::kCodeKey));
  entry.request = std::string(query.Bytes(sql::kCodeRequest));
  entry.attributes = std::string(query.Bytes(sql::kCodeAttributes));
  entry.created_unix_s = query.Int(sql::kCodeCreated);
  return entry;
}

WinnerEntry ReadWinner(Query& query) {
  WinnerEntry entry;
  entry.key = std::string(query.Bytes(sql::kWinnerKey));
  entry.variant = std::string(query.Bytes(sql::kWinnerVariant));
  entry.code_key = std::string(query.Bytes(sql::kWinnerCodeKey));
  entry.evidence = std::string(query.Bytes(sql::kWinnerEvidence));
  entry.created_unix_s = query.Int(sql::kWinnerCreated);
  return entry;
}

}  // namespace

struct SqliteStore::CodeRow {
  CodeEntry entry;  // without its object
  int64_t object_bytes = 0;
  int64_t codec = 0;
  std::string checksum;
  int64_t used_unix_s = 0;
  std::string stored;
};

SqliteStore::SqliteStore(const StoreOptions& options, const Logger& log)
    : options_(options), log_(log), pid_(getpid()) {}

std::unique_ptr<SqliteStore> SqliteStore::Open(const StoreOptions& options, const Logger& log) {
  std::unique_ptr<SqliteStore> store(new SqliteStore(options, log));
  MutexLock lock(store->mutex_);
  store->Attach();
  return store;
}

SqliteStore::~SqliteStore() {
  MutexLock lock(mutex_);
  if (getpid() != pid_ && file_.db != nullptr) file_.db->Abandon();
}

void SqliteStore::Attach() {
  if (options_.path.empty()) {
    AttachMemory("");
    return;
  }
  // Runs inside a use of the connection, so under mutex_; the analysis cannot see that.
  auto count_wait = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { ++counters_.lock_waits; };
  absl::StatusOr<CacheFile> file =
      OpenCacheFile({.store = options_, .on_wait = std::move(count_wait)}, log_);
  if (!file.ok()) {
    AttachMemory(file.status().message());
    return;
  }
  counters_.set_aside_files += file->set_aside_files;
  file_ = *std::move(file);
  persistent_ = true;
}

void SqliteStore::AttachMemory(absl::string_view why) {
  persistent_ = false;
  if (!why.empty()) {
    log_.Warning(absl::StrCat("the cache ", options_.path, " is not used (", why,
                              "); kernels are kept in memory and made again by the next process"));
  }
  absl::StatusOr<CacheFile> file = OpenMemoryCache({.store = options_, .on_wait = nullptr});
  // Without even that memory every lookup misses and every put reports so.
  file_ = file.ok() ? *std::move(file) : CacheFile();
}

void SqliteStore::Prepare() {
  if (getpid() == pid_) return;
  pid_ = getpid();
  if (!persistent_) return;
  // SQLite's locks belong to the parent; even closing would act on its files. What the connection
  // stands on is left open with it.
  file_.db->Abandon();
  static_cast<void>(file_.db.release());
  static_cast<void>(file_.vfs.release());
  AttachMemory("this process was forked after the cache was opened; open it after the fork");
}

void SqliteStore::Recover(const absl::Status& failure) {
  if (!absl::IsDataLoss(failure) || !persistent_ || options_.read_only) return;
  // Opening anew looks at the file again, but a damaged inner page would pass that: so the damage
  // that was met is what decides.
  CacheFile old = std::exchange(file_, CacheFile());
  old.db.reset();
  old.vfs.reset();
  auto lock = old.directory->Lock(/*exclusive=*/true, options_.busy_timeout);
  if (lock.ok() && old.StillInPlace()) {
    absl::StatusOr<std::string> aside = old.directory->SetAside(old.name);
    if (!aside.ok()) {
      AttachMemory(absl::StrCat(failure.message(), "; ", aside.status().message()));
      return;
    }
    ++counters_.set_aside_files;
    log_.Warning(absl::StrCat("the cache ", options_.path, " was damaged (", failure.message(),
                              "); it was set aside as ", *aside, " and a new one is begun"));
  }
  if (!lock.ok()) {
    AttachMemory(absl::StrCat(failure.message(), "; ", lock.status().message()));
    return;
  }
  lock = DirectoryLock();
  Attach();
}

int64_t SqliteStore::NowUnixSeconds() const { return absl::ToUnixSeconds(options_.clock->Now()); }

bool SqliteStore::TouchIsDue(int64_t used_unix_s) const {
  if (options_.read_only) return false;
  const int64_t now = NowUnixSeconds();
  // Also when it lies ahead: the clock has jumped back since.
  return now - used_unix_s >= kTouchIntervalSeconds || used_unix_s > now + kTouchIntervalSeconds;
}

void SqliteStore::Touch(const char* sql, absl::string_view hash) {
  // A lost stamp only makes eviction a little less fair: nothing waits for it, and it need not be
  // durable.
  file_.db->set_patient(false);
  file_.db->Execute("PRAGMA synchronous = NORMAL").IgnoreError();
  {
    Query query(*file_.db, sql);
    query.BindBytes(1, hash);
    query.BindInt(2, NowUnixSeconds());
    query.Run().IgnoreError();
  }
  file_.db->Execute("PRAGMA synchronous = FULL").IgnoreError();
  file_.db->set_patient(true);
}

template <typename Write>
absl::Status SqliteStore::Durably(Write&& write) {
  MutexLock lock(mutex_);
  Prepare();
  absl::Status status = absl::UnavailableError("cannot write the cache: it is read-only");
  if (!options_.read_only) {
    // Once more when the file was set aside or removed by another process meanwhile: what was
    // written there would be lost, so it is written again to the file that the path means now.
    for (int attempt = 0; attempt < 3; ++attempt) {
      if (!file_.StillInPlace()) {
        file_ = CacheFile();
        Attach();
      }
      if (file_.db == nullptr) {
        status = absl::ResourceExhaustedError("cannot write the cache: out of memory");
        break;
      }
      {
        Transaction transaction(*file_.db);
        status = transaction.status();
        if (status.ok()) status = write(*file_.db);
        if (status.ok()) status = transaction.Commit();
      }
      if (status.ok() && file_.StillInPlace()) return status;
      if (status.ok()) continue;
      if (!absl::IsDataLoss(status)) break;
      Recover(status);
    }
  }
  ++counters_.failed_writes;
  return status;
}

absl::StatusOr<std::optional<SqliteStore::CodeRow>> SqliteStore::ReadRow(const char* sql,
                                                                         absl::string_view hash) {
  Query query(*file_.db, sql);
  query.BindBytes(1, hash);
  absl::StatusOr<bool> found = query.Step();
  if (!found.ok()) return found.status();
  if (!*found) return std::optional<CodeRow>();
  CodeRow row;
  row.entry = ReadCode(query);
  row.object_bytes = query.Int(sql::kCodeObjectBytes);
  row.codec = query.Int(sql::kCodeCodec);
  row.checksum = std::string(query.Bytes(sql::kCodeChecksum));
  row.used_unix_s = query.Int(sql::kCodeUsed);
  row.stored = std::string(query.Bytes(sql::kCodeStored));
  return std::optional<CodeRow>(std::move(row));
}

std::optional<CodeEntry> SqliteStore::Find(const char* sql, absl::string_view wanted,
                                           bool by_request) {
  std::optional<CodeRow> row;
  {
    MutexLock lock(mutex_);
    Prepare();
    if (file_.db != nullptr) {
      absl::StatusOr<std::optional<CodeRow>> read = ReadRow(sql, HashColumn(wanted));
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
  absl::StatusOr<std::string> object =
      DecodeObject(row->codec, row->stored, row->object_bytes, options_.object_limit_bytes);
  if (object.ok()) row->entry.object = *std::move(object);
  if (!object.ok() || CodeChecksum(row->entry) != row->checksum) {
    DropDamaged(HashColumn(row->entry.key), row->checksum, /*code=*/true);
    return std::nullopt;
  }
  MutexLock lock(mutex_);
  ++counters_.code_hits;
  if (TouchIsDue(row->used_unix_s) && file_.db != nullptr) {
    Touch(sql::kTouchCode, HashColumn(row->entry.key));
  }
  return std::move(row->entry);
}

std::optional<CodeEntry> SqliteStore::FindCode(absl::string_view key) {
  return Find(sql::kFindCode, key, /*by_request=*/false);
}

std::optional<CodeEntry> SqliteStore::FindCodeByRequest(absl::string_view request) {
  return Find(sql::kFindCodeByRequest, request, /*by_request=*/true);
}

// Only while it still has the damaged checksum: meanwhile another process may have rebuilt it.
void SqliteStore::DropDamaged(absl::string_view hash, absl::string_view checksum, bool code) {
  if (!options_.read_only) {
    Durably([&](Database& db) {
      Query query(db, code ? sql::kRemoveCodeExact : sql::kRemoveWinnerExact);
      query.BindBytes(1, hash);
      query.BindBytes(2, checksum);
      return query.Run();
    }).IgnoreError();
  }
  MutexLock lock(mutex_);
  ++counters_.damaged_entries;
  ++(code ? counters_.code_misses : counters_.winner_misses);
  log_.Warning(absl::StrCat("a damaged entry in the cache ", options_.path,
                            " was dropped and will be made again"));
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
  absl::Status status = Durably([&](Database& db) {
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
  if (status.ok()) {
    MutexLock lock(mutex_);
    ++counters_.code_writes;
  }
  return status;
}

void SqliteStore::RemoveCode(absl::string_view key, absl::string_view reason) {
  const std::string hash = HashColumn(key);
  absl::Status status = Durably([&](Database& db) {
    Query object(db, sql::kRemoveObject);
    object.BindBytes(1, hash);
    if (absl::Status removed = object.Run(); !removed.ok()) return removed;
    Query code(db, sql::kRemoveCode);
    code.BindBytes(1, hash);
    return code.Run();
  });
  log_.Warning(absl::StrCat("a code object in the cache ", options_.path,
                            status.ok() ? " was dropped: " : " is unusable and stays: ", reason));
}

std::optional<WinnerEntry> SqliteStore::FindWinner(absl::string_view key) {
  const std::string hash = HashColumn(key);
  std::string checksum;
  WinnerEntry entry;
  {
    MutexLock lock(mutex_);
    Prepare();
    bool found = false;
    int64_t used_unix_s = 0;
    if (file_.db != nullptr) {
      absl::Status failure;
      {
        Query query(*file_.db, sql::kFindWinner);
        query.BindBytes(1, hash);
        absl::StatusOr<bool> row = query.Step();
        failure = row.status();
        if (row.ok() && *row) {
          entry = ReadWinner(query);
          checksum = std::string(query.Bytes(sql::kWinnerChecksum));
          used_unix_s = query.Int(sql::kWinnerUsed);
          found = entry.key == key;
        }
      }
      if (!failure.ok()) Recover(failure);
    }
    if (!found) {
      ++counters_.winner_misses;
      return std::nullopt;
    }
    if (WinnerChecksum(entry) == checksum) {
      ++counters_.winner_hits;
      if (TouchIsDue(used_unix_s)) Touch(sql::kTouchWinner, hash);
      return entry;
    }
  }
  DropDamaged(hash, checksum, /*code=*/false);
  return std::nullopt;
}

absl::Status SqliteStore::PutWinner(const WinnerEntry& given) {
  if (absl::Status limits = CheckWinnerLimits(given); !limits.ok()) return limits;
  WinnerEntry entry = given;
  if (entry.created_unix_s == 0) entry.created_unix_s = NowUnixSeconds();
  const std::string hash = HashColumn(entry.key);
  const std::string checksum = WinnerChecksum(entry);
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
    return query.Run();
  });
  if (status.ok()) {
    MutexLock lock(mutex_);
    ++counters_.winner_writes;
  }
  return status;
}

absl::StatusOr<std::vector<CodeEntry>> SqliteStore::ListCode() {
  MutexLock lock(mutex_);
  Prepare();
  if (file_.db == nullptr) return absl::ResourceExhaustedError("cannot list the cache: no memory");
  std::vector<CodeEntry> entries;
  Query query(*file_.db, sql::kListCode);
  while (true) {
    absl::StatusOr<bool> row = query.Step();
    if (!row.ok()) return row.status();
    if (!*row) return entries;
    entries.push_back(ReadCode(query));
  }
}

absl::StatusOr<std::vector<WinnerEntry>> SqliteStore::ListWinners() {
  MutexLock lock(mutex_);
  Prepare();
  if (file_.db == nullptr) return absl::ResourceExhaustedError("cannot list the cache: no memory");
  std::vector<WinnerEntry> entries;
  Query query(*file_.db, sql::kListWinners);
  while (true) {
    absl::StatusOr<bool> row = query.Step();
    if (!row.ok()) return row.status();
    if (!*row) return entries;
    entries.push_back(ReadWinner(query));
  }
}

StoreCounters SqliteStore::counters() const {
  MutexLock lock(mutex_);
  return counters_;
}

}  // namespace whet
