#include "cache/schema.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace whet {
namespace {

// What a user's file and a pack both hold. Blobs sit in a table of their own, so that walking `code`
// and stamping a use touch few pages.
constexpr char kTables[] = R"sql(
CREATE TABLE meta(
  name TEXT PRIMARY KEY,
  value BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE code(
  id INTEGER PRIMARY KEY,
  key_hash BLOB NOT NULL UNIQUE,
  request_hash BLOB NOT NULL,
  key BLOB NOT NULL,
  request BLOB NOT NULL,
  object_bytes INTEGER NOT NULL,
  codec INTEGER NOT NULL,
  checksum BLOB NOT NULL,
  created_unix_s INTEGER NOT NULL,
  used_unix_s INTEGER NOT NULL,
  generation INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX code_by_request ON code(request_hash, created_unix_s);
CREATE TABLE object(
  id INTEGER PRIMARY KEY,
  attributes BLOB NOT NULL,
  bytes BLOB NOT NULL
);
CREATE TABLE winner(
  id INTEGER PRIMARY KEY,
  key_hash BLOB NOT NULL UNIQUE,
  key BLOB NOT NULL,
  variant BLOB NOT NULL,
  code_key BLOB NOT NULL,
  evidence BLOB NOT NULL,
  checksum BLOB NOT NULL,
  created_unix_s INTEGER NOT NULL,
  used_unix_s INTEGER NOT NULL,
  generation INTEGER NOT NULL DEFAULT 0,
  protocol INTEGER NOT NULL DEFAULT 0,
  evidence_count INTEGER NOT NULL DEFAULT 0
);
)sql";

constexpr char kBeginUserFile[] = R"sql(
PRAGMA page_size = 8192;
PRAGMA auto_vacuum = INCREMENTAL;
BEGIN IMMEDIATE;
)sql";

// What only a file that is written to needs: eviction by age, and what was set aside.
constexpr char kEndUserFile[] = R"sql(
CREATE INDEX code_by_age ON code(generation, used_unix_s);
CREATE INDEX winner_by_age ON winner(generation, used_unix_s);
CREATE TABLE quarantine(
  key_hash BLOB PRIMARY KEY,
  reason BLOB NOT NULL,
  count INTEGER NOT NULL,
  last_unix_s INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO meta(name, value) VALUES ('min_reader', 1), ('min_writer', 1);
PRAGMA application_id = 1464354132;
PRAGMA user_version = 2;
COMMIT;
)sql";

constexpr char kBeginPack[] = R"sql(
PRAGMA page_size = 8192;
PRAGMA auto_vacuum = NONE;
BEGIN IMMEDIATE;
)sql";

constexpr char kEndPack[] = R"sql(
INSERT INTO meta(name, value) VALUES ('min_reader', 1);
PRAGMA application_id = 1464357968;
PRAGMA user_version = 2;
COMMIT;
)sql";

constexpr char kMigrateFrom1[] = R"sql(
BEGIN IMMEDIATE;
CREATE TABLE meta(
  name TEXT PRIMARY KEY,
  value BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE quarantine(
  key_hash BLOB PRIMARY KEY,
  reason BLOB NOT NULL,
  count INTEGER NOT NULL,
  last_unix_s INTEGER NOT NULL
) WITHOUT ROWID;
ALTER TABLE code ADD COLUMN generation INTEGER NOT NULL DEFAULT 0;
ALTER TABLE winner ADD COLUMN generation INTEGER NOT NULL DEFAULT 0;
ALTER TABLE winner ADD COLUMN protocol INTEGER NOT NULL DEFAULT 0;
ALTER TABLE winner ADD COLUMN evidence_count INTEGER NOT NULL DEFAULT 0;
UPDATE code SET generation = 1;
UPDATE winner SET generation = 1;
DROP INDEX code_by_use;
DROP INDEX winner_by_use;
CREATE INDEX code_by_age ON code(generation, used_unix_s);
CREATE INDEX winner_by_age ON winner(generation, used_unix_s);
INSERT INTO meta(name, value) VALUES ('min_reader', 1), ('min_writer', 1);
PRAGMA user_version = 2;
COMMIT;
)sql";

constexpr char kGetMinReader[] = R"sql(SELECT value FROM meta WHERE name = 'min_reader')sql";
constexpr char kGetMinWriter[] = R"sql(SELECT value FROM meta WHERE name = 'min_writer')sql";
constexpr char kCountObjects[] = R"sql(SELECT count(*) FROM sqlite_schema)sql";
constexpr char kApplication[] = R"sql(PRAGMA application_id)sql";
constexpr char kVersion[] = R"sql(PRAGMA user_version)sql";

constexpr Selects kSelects1 = {
    .find_code = R"sql(
SELECT code.key, code.request, code.object_bytes, code.codec, code.checksum, code.created_unix_s,
       code.used_unix_s, 1, object.attributes, length(object.bytes), object.bytes
FROM code JOIN object ON object.id = code.id
WHERE code.key_hash = ?1
)sql",
    .find_code_by_request = R"sql(
SELECT code.key, code.request, code.object_bytes, code.codec, code.checksum, code.created_unix_s,
       code.used_unix_s, 1, object.attributes, length(object.bytes), object.bytes
FROM code JOIN object ON object.id = code.id
WHERE code.request_hash = ?1
ORDER BY code.created_unix_s DESC, code.id DESC
LIMIT 1
)sql",
    .list_code = R"sql(
SELECT code.key, code.request, code.object_bytes, code.codec, code.checksum, code.created_unix_s,
       code.used_unix_s, 1, object.attributes, length(object.bytes), x''
FROM code JOIN object ON object.id = code.id
ORDER BY code.created_unix_s, code.id
)sql",
    .find_winner = R"sql(
SELECT key, variant, code_key, evidence, checksum, created_unix_s, used_unix_s, 1, 0, 0
FROM winner WHERE key_hash = ?1
)sql",
    .list_winners = R"sql(
SELECT key, variant, code_key, evidence, checksum, created_unix_s, used_unix_s, 1, 0, 0
FROM winner ORDER BY created_unix_s, id
)sql",
};

constexpr Selects kSelects2 = {
    .find_code = R"sql(
SELECT code.key, code.request, code.object_bytes, code.codec, code.checksum, code.created_unix_s,
       code.used_unix_s, code.generation, object.attributes, length(object.bytes), object.bytes
FROM code JOIN object ON object.id = code.id
WHERE code.key_hash = ?1
)sql",
    .find_code_by_request = R"sql(
SELECT code.key, code.request, code.object_bytes, code.codec, code.checksum, code.created_unix_s,
       code.used_unix_s, code.generation, object.attributes, length(object.bytes), object.bytes
FROM code JOIN object ON object.id = code.id
WHERE code.request_hash = ?1
ORDER BY code.created_unix_s DESC, code.id DESC
LIMIT 1
)sql",
    .list_code = R"sql(
SELECT code.key, code.request, code.object_bytes, code.codec, code.checksum, code.created_unix_s,
       code.used_unix_s, code.generation, object.attributes, length(object.bytes), x''
FROM code JOIN object ON object.id = code.id
ORDER BY code.created_unix_s, code.id
)sql",
    .find_winner = R"sql(
SELECT key, variant, code_key, evidence, checksum, created_unix_s, used_unix_s, generation,
       protocol, evidence_count
FROM winner WHERE key_hash = ?1
)sql",
    .list_winners = R"sql(
SELECT key, variant, code_key, evidence, checksum, created_unix_s, used_unix_s, generation,
       protocol, evidence_count
FROM winner ORDER BY created_unix_s, id
)sql",
};

absl::Status RunScript(Database& db, const std::string& script) {
  absl::Status status = db.Execute(script.c_str());
  if (!status.ok()) db.Execute("ROLLBACK").IgnoreError();
  return status;
}

}  // namespace

absl::Status CreateSchema(Database& db) {
  return RunScript(db, absl::StrCat(kBeginUserFile, kTables, kEndUserFile));
}

absl::Status CreatePackSchema(Database& db) {
  return RunScript(db, absl::StrCat(kBeginPack, kTables, kEndPack));
}

absl::Status MigrateSchema(Database& db) { return RunScript(db, kMigrateFrom1); }

absl::StatusOr<SchemaState> InspectSchema(Database& db, int64_t application_id) {
  absl::StatusOr<int64_t> objects = db.Integer(kCountObjects);
  if (!objects.ok()) return objects.status();
  absl::StatusOr<int64_t> application = db.Integer(kApplication);
  if (!application.ok()) return application.status();
  absl::StatusOr<int64_t> version = db.Integer(kVersion);
  if (!version.ok()) return version.status();
  if (*objects == 0 && *application == 0 && *version == 0) return SchemaState{SchemaState::kEmpty};
  if (*application != application_id || *version < 1) {
    return SchemaState{SchemaState::kForeign, *version};
  }
  if (*version < kSchemaVersion) return SchemaState{SchemaState::kOlder, *version};
  if (*version == kSchemaVersion) return SchemaState{SchemaState::kWritable, *version};
  // A later version without these two says nothing that we could rely on.
  absl::StatusOr<int64_t> min_reader = db.Integer(kGetMinReader);
  absl::StatusOr<int64_t> min_writer = db.Integer(kGetMinWriter);
  auto allows = [](const absl::StatusOr<int64_t>& minimum) {
    return minimum.ok() && *minimum >= 1 && *minimum <= kSchemaVersion;
  };
  if (allows(min_writer) && allows(min_reader)) {
    return SchemaState{SchemaState::kWritable, *version};
  }
  return SchemaState{allows(min_reader) ? SchemaState::kReadable : SchemaState::kUnreadable,
                     *version};
}

const Selects& SelectsOf(int64_t version) { return version == 1 ? kSelects1 : kSelects2; }

namespace sql {

const char* const kSalvageCode = R"sql(
SELECT key, request, object_bytes, codec, checksum, created_unix_s, used_unix_s, 0, x'', 0, x''
FROM code NOT INDEXED ORDER BY id
)sql";

const char* const kSalvageCodeBackward = R"sql(
SELECT key, request, object_bytes, codec, checksum, created_unix_s, used_unix_s, 0, x'', 0, x''
FROM code NOT INDEXED ORDER BY id DESC
)sql";

const char* const kSalvageWinners = R"sql(
SELECT key, variant, code_key, evidence, checksum, created_unix_s, used_unix_s, 0, 0, 0
FROM winner NOT INDEXED ORDER BY id
)sql";

const char* const kSalvageWinnersBackward = R"sql(
SELECT key, variant, code_key, evidence, checksum, created_unix_s, used_unix_s, 0, 0, 0
FROM winner NOT INDEXED ORDER BY id DESC
)sql";

const char* const kConfigureConnection = R"sql(
PRAGMA cell_size_check = ON;
PRAGMA temp_store = MEMORY;
)sql";

// synchronous = FULL: in WAL mode a commit returns after the log was synced, so what was reported
// stored survives power loss. secure_delete would only write zeros twice.
const char* const kConfigureWriter = R"sql(
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA secure_delete = OFF;
PRAGMA journal_size_limit = 16777216;
)sql";

const char* const kConfigurePackWriter = R"sql(
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA locking_mode = EXCLUSIVE;
)sql";

const char* const kPutCode = R"sql(
INSERT INTO code(key_hash, request_hash, key, request, object_bytes, codec, checksum,
                 created_unix_s, used_unix_s, generation)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
ON CONFLICT(key_hash) DO UPDATE SET
  request_hash = excluded.request_hash, key = excluded.key, request = excluded.request,
  object_bytes = excluded.object_bytes, codec = excluded.codec, checksum = excluded.checksum,
  created_unix_s = excluded.created_unix_s, used_unix_s = excluded.used_unix_s,
  generation = excluded.generation
RETURNING id
)sql";

const char* const kPutObject = R"sql(
INSERT OR REPLACE INTO object(id, attributes, bytes) VALUES (?1, ?2, ?3)
)sql";

const char* const kRemoveObject = R"sql(
DELETE FROM object WHERE id = (SELECT id FROM code WHERE key_hash = ?1)
)sql";

const char* const kRemoveCode = R"sql(
DELETE FROM code WHERE key_hash = ?1
)sql";

const char* const kRemoveObjectExact = R"sql(
DELETE FROM object
WHERE id = (SELECT id FROM code WHERE key_hash = ?1 AND CAST(checksum AS BLOB) = ?2)
)sql";

const char* const kRemoveCodeExact = R"sql(
DELETE FROM code WHERE key_hash = ?1 AND CAST(checksum AS BLOB) = ?2
)sql";

const char* const kTouchCode = R"sql(
UPDATE code SET used_unix_s = ?2 WHERE key_hash = ?1
)sql";

const char* const kCodeToEvict = R"sql(
SELECT key_hash FROM code ORDER BY generation, used_unix_s LIMIT ?1
)sql";

const char* const kPutWinner = R"sql(
INSERT INTO winner(key_hash, key, variant, code_key, evidence, checksum, created_unix_s,
                   used_unix_s, generation, protocol, evidence_count)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
ON CONFLICT(key_hash) DO UPDATE SET
  key = excluded.key, variant = excluded.variant, code_key = excluded.code_key,
  evidence = excluded.evidence, checksum = excluded.checksum,
  created_unix_s = excluded.created_unix_s, used_unix_s = excluded.used_unix_s,
  generation = excluded.generation, protocol = excluded.protocol,
  evidence_count = excluded.evidence_count
)sql";

const char* const kHaveWinners = R"sql(
WITH RECURSIVE wanted(place) AS (
  SELECT 0 WHERE length(?1) >= 16
  UNION ALL SELECT place + 1 FROM wanted WHERE 16 * (place + 2) <= length(?1)
)
SELECT place, winner.key
FROM wanted CROSS JOIN winner ON winner.key_hash = substr(?1, 16 * place + 1, 16)
)sql";

const char* const kRemoveWinner = R"sql(
DELETE FROM winner WHERE key_hash = ?1
)sql";

const char* const kRemoveWinnerExact = R"sql(
DELETE FROM winner WHERE key_hash = ?1 AND CAST(checksum AS BLOB) = ?2
)sql";

const char* const kTouchWinner = R"sql(
UPDATE winner SET used_unix_s = ?2 WHERE key_hash = ?1
)sql";

const char* const kWinnersToEvict = R"sql(
SELECT key_hash FROM winner ORDER BY generation, used_unix_s LIMIT ?1
)sql";

const char* const kQuarantine = R"sql(
INSERT INTO quarantine(key_hash, reason, count, last_unix_s) VALUES (?1, ?2, 1, ?3)
ON CONFLICT(key_hash) DO UPDATE SET
  reason = excluded.reason, count = count + 1, last_unix_s = excluded.last_unix_s
)sql";

const char* const kListQuarantine = R"sql(
SELECT key_hash, reason, count, last_unix_s FROM quarantine ORDER BY last_unix_s, key_hash
)sql";

const char* const kPutMeta = R"sql(
INSERT OR REPLACE INTO meta(name, value) VALUES (CAST(?1 AS TEXT), ?2)
)sql";

const char* const kGetMeta = R"sql(
SELECT value FROM meta WHERE name = CAST(?1 AS TEXT)
)sql";

const char* const kCountCode = R"sql(SELECT count(*) FROM code)sql";
const char* const kCountWinners = R"sql(SELECT count(*) FROM winner)sql";

const char* const kUsedBytes = R"sql(
SELECT (page_count - freelist_count) * page_size
FROM pragma_page_count, pragma_freelist_count, pragma_page_size
)sql";

const char* const kFileBytes = R"sql(
SELECT page_count * page_size FROM pragma_page_count, pragma_page_size
)sql";

const char* const kReleasePages = R"sql(
PRAGMA incremental_vacuum;
PRAGMA wal_checkpoint(TRUNCATE);
)sql";

}  // namespace sql
}  // namespace whet
