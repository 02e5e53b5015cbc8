#include "cache/schema.h"

namespace whet {
namespace {

// Blobs sit in a table of their own, so that walking `code` and stamping a use touch few pages.
constexpr char kCreate[] = R"sql(
PRAGMA page_size = 8192;
PRAGMA auto_vacuum = INCREMENTAL;
BEGIN IMMEDIATE;
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
  used_unix_s INTEGER NOT NULL
);
CREATE INDEX code_by_request ON code(request_hash, created_unix_s);
CREATE INDEX code_by_use ON code(used_unix_s);
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
  used_unix_s INTEGER NOT NULL
);
CREATE INDEX winner_by_use ON winner(used_unix_s);
PRAGMA application_id = 1464354132;
PRAGMA user_version = 1;
COMMIT;
)sql";

}  // namespace

absl::Status CreateSchema(Database& db) {
  absl::Status status = db.Execute(kCreate);
  if (!status.ok()) db.Execute("ROLLBACK").IgnoreError();
  return status;
}

absl::StatusOr<SchemaState> InspectSchema(Database& db) {
  absl::StatusOr<int64_t> objects = db.Integer("SELECT count(*) FROM sqlite_schema");
  if (!objects.ok()) return objects.status();
  absl::StatusOr<int64_t> application = db.Integer("PRAGMA application_id");
  if (!application.ok()) return application.status();
  absl::StatusOr<int64_t> version = db.Integer("PRAGMA user_version");
  if (!version.ok()) return version.status();
  if (*objects == 0 && *application == 0 && *version == 0) return SchemaState::kEmpty;
  if (*application != kApplicationId || *version != kSchemaVersion) return SchemaState::kForeign;
  return SchemaState::kCurrent;
}

namespace sql {

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

const char* const kFindCode = R"sql(
SELECT code.key, code.request, code.object_bytes, code.codec, code.checksum, code.created_unix_s,
       code.used_unix_s, object.attributes, object.bytes
FROM code JOIN object ON object.id = code.id
WHERE code.key_hash = ?1
)sql";

const char* const kFindCodeByRequest = R"sql(
SELECT code.key, code.request, code.object_bytes, code.codec, code.checksum, code.created_unix_s,
       code.used_unix_s, object.attributes, object.bytes
FROM code JOIN object ON object.id = code.id
WHERE code.request_hash = ?1
ORDER BY code.created_unix_s DESC, code.id DESC
LIMIT 1
)sql";

const char* const kPutCode = R"sql(
INSERT INTO code(key_hash, request_hash, key, request, object_bytes, codec, checksum,
                 created_unix_s, used_unix_s)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
ON CONFLICT(key_hash) DO UPDATE SET
  request_hash = excluded.request_hash, key = excluded.key, request = excluded.request,
  object_bytes = excluded.object_bytes, codec = excluded.codec, checksum = excluded.checksum,
  created_unix_s = excluded.created_unix_s, used_unix_s = excluded.used_unix_s
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

const char* const kRemoveCodeExact = R"sql(
DELETE FROM code WHERE key_hash = ?1 AND CAST(checksum AS BLOB) = ?2
)sql";

const char* const kTouchCode = R"sql(
UPDATE code SET used_unix_s = ?2 WHERE key_hash = ?1
)sql";

const char* const kListCode = R"sql(
SELECT code.key, code.request, code.object_bytes, code.codec, code.checksum, code.created_unix_s,
       code.used_unix_s, object.attributes, x''
FROM code JOIN object ON object.id = code.id
ORDER BY code.created_unix_s, code.id
)sql";

const char* const kFindWinner = R"sql(
SELECT key, variant, code_key, evidence, checksum, created_unix_s, used_unix_s
FROM winner WHERE key_hash = ?1
)sql";

const char* const kPutWinner = R"sql(
INSERT INTO winner(key_hash, key, variant, code_key, evidence, checksum, created_unix_s,
                   used_unix_s)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT(key_hash) DO UPDATE SET
  key = excluded.key, variant = excluded.variant, code_key = excluded.code_key,
  evidence = excluded.evidence, checksum = excluded.checksum,
  created_unix_s = excluded.created_unix_s, used_unix_s = excluded.used_unix_s
)sql";

const char* const kTouchWinner = R"sql(
UPDATE winner SET used_unix_s = ?2 WHERE key_hash = ?1
)sql";

const char* const kRemoveWinnerExact = R"sql(
DELETE FROM winner WHERE key_hash = ?1 AND CAST(checksum AS BLOB) = ?2
)sql";

const char* const kListWinners = R"sql(
SELECT key, variant, code_key, evidence, checksum, created_unix_s, used_unix_s
FROM winner ORDER BY created_unix_s, id
)sql";

}  // namespace sql
}  // namespace whet
