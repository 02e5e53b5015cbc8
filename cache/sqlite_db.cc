#include "cache/sqlite_db.h"

#include <sqlite3.h>
#include <time.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/clock.h"

namespace whet {

absl::StatusOr<std::unique_ptr<Database>> Database::Open(DatabaseOptions options) {
  std::unique_ptr<Database> db(new Database(std::move(options)));
  const DatabaseOptions& o = db->options_;
  const int code = sqlite3_open_v2(o.name.c_str(), &db->handle_,
                                   o.flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, o.vfs);
  if (code != SQLITE_OK) return db->ErrorStatus(code, "open");
  sqlite3* const handle = db->handle_;
  sqlite3_busy_handler(handle, &Database::OnBusy, db.get());
  // A lying file may claim any length; nothing above this is ever allocated for it.
  sqlite3_limit(handle, SQLITE_LIMIT_LENGTH,
                static_cast<int>(std::min<int64_t>(o.value_limit_bytes, 1'000'000'000)));
  sqlite3_limit(handle, SQLITE_LIMIT_ATTACHED, 0);
  // The schema inside the file is not trusted: no triggers, no views, no writes to sqlite_schema.
  sqlite3_db_config(handle, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(handle, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_db_config(handle, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
  return db;
}

Database::~Database() {
  for (auto& [sql, statement] : statements_) sqlite3_finalize(statement);
  sqlite3_close_v2(handle_);
}

void Database::Abandon() {
  statements_.clear();
  handle_ = nullptr;
}

// SQLite's own handler sleeps for whole seconds where it was built without usleep.
int Database::OnBusy(void* self, int attempts) {
  Database* const db = static_cast<Database*>(self);
  if (!db->patient_) return 0;
  const int64_t now_ns = Clock::Real()->MonotonicNanoseconds();
  if (attempts == 0) {
    db->waiting_since_ns_ = now_ns;
    if (db->options_.on_wait) db->options_.on_wait();
  }
  const int64_t limit_ns = absl::ToInt64Nanoseconds(db->options_.busy_timeout);
  if (now_ns - db->waiting_since_ns_ >= limit_ns) return 0;
  const timespec pause = {0, std::min(10, attempts + 1) * 500'000L};
  nanosleep(&pause, nullptr);
  return 1;
}

absl::Status Database::ErrorStatus(int code, absl::string_view action) const {
  const std::string message = absl::StrCat(
      "cannot ", action, ": ", handle_ ? sqlite3_errmsg(handle_) : sqlite3_errstr(code),
      " (SQLite ", handle_ ? sqlite3_extended_errcode(handle_) : code, ")");
  switch (code & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_FORMAT:
      return absl::DataLossError(message);
    case SQLITE_FULL:
    case SQLITE_NOMEM:
    case SQLITE_TOOBIG:
      return absl::ResourceExhaustedError(message);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL:
      return absl::UnavailableError(message);
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_CANTOPEN:
      return absl::FailedPreconditionError(message);
    default:
      return absl::InternalError(message);
  }
}

absl::Status Database::Execute(const char* sql) {
  const int code = sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : ErrorStatus(code, absl::StrCat("run ", sql));
}

absl::StatusOr<int64_t> Database::Integer(const char* sql) {
  Query query(*this, sql);
  absl::StatusOr<bool> row = query.Step();
  if (!row.ok()) return row.status();
  return *row ? query.Int(0) : 0;
}

absl::StatusOr<sqlite3_stmt*> Database::Prepared(const char* sql) {
  sqlite3_stmt*& statement = statements_[sql];
  if (statement == nullptr) {
    const int code =
        sqlite3_prepare_v3(handle_, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
    // Our statements are constants, so only a schema that is not what its version says can make
    // one wrong.
    if ((code & 0xff) == SQLITE_ERROR) {
      return absl::DataLossError(ErrorStatus(code, "prepare a statement").message());
    }
    if (code != SQLITE_OK) return ErrorStatus(code, "prepare a statement");
  }
  return statement;
}

Query::Query(Database& db, const char* sql) : db_(db) {
  absl::StatusOr<sqlite3_stmt*> statement = db.Prepared(sql);
  if (statement.ok()) {
    statement_ = *statement;
  } else {
    status_ = statement.status();
  }
}

Query::~Query() {
  if (statement_ == nullptr) return;
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

void Query::BindBytes(int index, absl::string_view bytes) {
  if (statement_ == nullptr) return;
  // A null pointer would bind NULL, and an empty value is not that.
  const int code = sqlite3_bind_blob64(statement_, index, bytes.empty() ? "" : bytes.data(),
                                       bytes.size(), SQLITE_STATIC);
  if (code != SQLITE_OK) status_.Update(db_.ErrorStatus(code, "bind a value"));
}

void Query::BindInt(int index, int64_t value) {
  if (statement_ == nullptr) return;
  const int code = sqlite3_bind_int64(statement_, index, value);
  if (code != SQLITE_OK) status_.Update(db_.ErrorStatus(code, "bind a value"));
}

absl::StatusOr<bool> Query::Step() {
  if (!status_.ok()) return status_;
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  status_ = db_.ErrorStatus(code, "read or write the cache");
  return status_;
}

absl::Status Query::Run() {
  while (true) {
    absl::StatusOr<bool> row = Step();
    if (!row.ok()) return row.status();
    if (!*row) return absl::OkStatus();
  }
}

int64_t Query::Int(int column) { return sqlite3_column_int64(statement_, column); }

absl::string_view Query::Bytes(int column) {
  // The order matters: column_blob may convert, and column_bytes then counts the converted value.
  const void* const data = sqlite3_column_blob(statement_, column);
  const int size = sqlite3_column_bytes(statement_, column);
  return data == nullptr ? absl::string_view()
                         : absl::string_view(static_cast<const char*>(data), size);
}

Transaction::Transaction(Database& db) : db_(db), status_(db.Execute("BEGIN IMMEDIATE")) {
  open_ = status_.ok();
}

Transaction::~Transaction() {
  // SQLite rolls back by itself after some errors; a second ROLLBACK is then refused, harmlessly.
  if (open_ && !sqlite3_get_autocommit(db_.handle())) db_.Execute("ROLLBACK").IgnoreError();
}

absl::Status Transaction::Commit() {
  absl::Status status = db_.Execute("COMMIT");
  if (status.ok()) open_ = false;
  return status;
}

}  // namespace whet
