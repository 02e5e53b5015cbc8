// The database schema: every SQL statement of the cache as one whole literal, and its version.
// docs/cache.md describes the columns; what is on disk is a contract.
//
//   Query query(db, sql::kFindCode);
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "cache/sqlite_db.h"

namespace whet {

// "WHET": PRAGMA application_id of every cache file. Never change.
inline constexpr int64_t kApplicationId = 0x57484554;
// PRAGMA user_version of files that this library writes.
inline constexpr int64_t kSchemaVersion = 1;

// Makes an empty database a cache, in one transaction.
absl::Status CreateSchema(Database& db);

enum class SchemaState { kEmpty, kCurrent, kForeign };
// What the file is. DataLoss when it cannot be read as a database.
absl::StatusOr<SchemaState> InspectSchema(Database& db);

namespace sql {

// Opening.
extern const char* const kConfigureConnection;
extern const char* const kConfigureWriter;

// Code objects.
extern const char* const kFindCode;           // ?1 key hash
extern const char* const kFindCodeByRequest;  // ?1 request hash
extern const char* const kPutCode;       // ?1.. key hash, request hash, key, request, object bytes,
                                         // codec, checksum, created, used; returns id
extern const char* const kPutObject;     // ?1 id, ?2 attributes, ?3 bytes
extern const char* const kRemoveCode;    // ?1 key hash
extern const char* const kRemoveObject;  // ?1 key hash
extern const char* const kRemoveCodeExact;  // ?1 key hash, ?2 checksum
extern const char* const kTouchCode;        // ?1 key hash, ?2 used
extern const char* const kListCode;
// Column order of the three selects above and of kListCode (where bytes is empty).
enum CodeColumn {
  kCodeKey,
  kCodeRequest,
  kCodeObjectBytes,
  kCodeCodec,
  kCodeChecksum,
  kCodeCreated,
  kCodeUsed,
  kCodeAttributes,
  kCodeStored
};

// Winners.
extern const char* const kFindWinner;  // ?1 key hash
extern const char* const kPutWinner;   // ?1.. key hash, key, variant, code key, evidence, checksum,
                                       // created, used
extern const char* const kTouchWinner;        // ?1 key hash, ?2 used
extern const char* const kRemoveWinnerExact;  // ?1 key hash, ?2 checksum
extern const char* const kListWinners;
enum WinnerColumn {
  kWinnerKey,
  kWinnerVariant,
  kWinnerCodeKey,
  kWinnerEvidence,
  kWinnerChecksum,
  kWinnerCreated,
  kWinnerUsed
};

}  // namespace sql
}  // namespace whet
