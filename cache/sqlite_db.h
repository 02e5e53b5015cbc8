// A thin owner of one SQLite connection: prepared statements, bound values, Status instead of codes.
//
//   absl::StatusOr<Database> db = Database::Open({.name = "cache.db", .flags = ...});
//   Query query(*db, sql::kFindCode);
//   query.BindBytes(1, hash);
//   absl::StatusOr<bool> row = query.Step();
//   if (row.ok() && *row) Use(query.Bytes(0));
//
// Status codes: DataLoss (corrupt, or no database), ResourceExhausted (disk full, out of memory,
// value too large), Unavailable (busy for too long), FailedPrecondition (read-only, cannot open),
// otherwise Internal.
// Not thread-safe: the caller holds a lock around every use.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

struct sqlite3;
struct sqlite3_stmt;

namespace whet {

struct DatabaseOptions {
  std::string name = {};  // path or URI for SQLite
  int flags = 0;          // SQLITE_OPEN_*
  const char* vfs = nullptr;
  absl::Duration busy_timeout = absl::Seconds(5);
  int64_t value_limit_bytes = 256 << 20;  // no single value may be larger, whatever the file says
  std::function<void()> on_wait = {};     // called once per wait for another connection's lock
};

class Database {
 public:
  static absl::StatusOr<std::unique_ptr<Database>> Open(DatabaseOptions options);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // Runs statements that return nothing of interest.
  absl::Status Execute(const char* sql);
  // First column of the first row of `sql`; 0 when there is no row.
  absl::StatusOr<int64_t> Integer(const char* sql);
  // As Unavailable, DataLoss, ... with SQLite's own words; `action` as in "cannot <action>".
  absl::Status ErrorStatus(int code, absl::string_view action) const;
  // Gives the connection up without closing it: for a forked child, in which closing would act on
  // the parent's files.
  void Abandon();

  // While false, another connection's lock is not waited for.
  void set_patient(bool patient) { patient_ = patient; }

  sqlite3* handle() { return handle_; }

 private:
  friend class Query;
  explicit Database(DatabaseOptions options) : options_(std::move(options)) {}
  static int OnBusy(void* self, int attempts);
  absl::StatusOr<sqlite3_stmt*> Prepared(const char* sql);

  DatabaseOptions options_;
  sqlite3* handle_ = nullptr;
  int64_t waiting_since_ns_ = 0;
  bool patient_ = true;
  // Keyed by the literal's address: every statement is a constant of schema.cc.
  absl::flat_hash_map<const char*, sqlite3_stmt*> statements_;
};

// One execution of a cached statement; reset when it goes out of scope.
class Query {
 public:
  Query(Database& db, const char* sql);
  ~Query();
  Query(const Query&) = delete;
  Query& operator=(const Query&) = delete;

  // `bytes` must live as long as the query.
  void BindBytes(int index, absl::string_view bytes);
  void BindInt(int index, int64_t value);

  // True when there is a row, false at the end.
  absl::StatusOr<bool> Step();
  // Steps to the end.
  absl::Status Run();

  int64_t Int(int column);
  // Valid until the next Step.
  absl::string_view Bytes(int column);

 private:
  Database& db_;
  sqlite3_stmt* statement_ = nullptr;
  absl::Status status_;
};

// BEGIN IMMEDIATE ... COMMIT; rolled back when it is destroyed uncommitted.
class Transaction {
 public:
  explicit Transaction(Database& db);
  ~Transaction();
  absl::Status status() const { return status_; }
  absl::Status Commit();

 private:
  Database& db_;
  absl::Status status_;
  bool open_ = false;
};

}  // namespace whet
