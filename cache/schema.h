// The database schema: every SQL statement of the cache as one whole literal, and its version.
// docs/cache.md describes the columns; what is on disk is a contract.
//
//   Query query(db, SelectsOf(version).find_code);
//
// Versions: PRAGMA user_version counts up by one with every change. A file also says in `meta`
// which is the oldest library version that may read it (min_reader) and write it (min_writer), so
// that an older library knows what it may do with a newer file.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache/sqlite_db.h"

namespace whet {

// PRAGMA application_id of a cache that is written to ("WHET") and of a pack ("WHTP"). Never change.
inline constexpr int64_t kApplicationId = 0x57484554;
inline constexpr int64_t kPackApplicationId = 0x57485450;
// PRAGMA user_version of files that this library writes.
//   1: code, object, winner.
//   2: generation (code, winner), protocol and evidence_count (winner), quarantine, meta.
inline constexpr int64_t kSchemaVersion = 2;

// Makes an empty database a cache, in one transaction.
absl::Status CreateSchema(Database& db);
// The same for a pack: without what only a written cache needs, and with every byte determined.
absl::Status CreatePackSchema(Database& db);
// From version 1 to kSchemaVersion, in one transaction; on failure the file is as it was.
absl::Status MigrateSchema(Database& db);

struct SchemaState {
  enum Kind {
    kEmpty,      // no database yet
    kForeign,    // a database, but none of ours
    kWritable,   // may be read and written as it is
    kOlder,      // may be read; to be migrated before it is written
    kReadable,   // newer: may be read only
    kUnreadable  // newer: not to be touched
  };
  Kind kind = kEmpty;
  int64_t version = 0;
};
// What the file is. DataLoss when it cannot be read as a database.
absl::StatusOr<SchemaState> InspectSchema(Database& db, int64_t application_id);

// Reading differs by version; later versions than ours are read as ours.
struct Selects {
  const char* find_code;             // ?1 key hash
  const char* find_code_by_request;  // ?1 request hash
  const char* list_code;
  const char* find_winner;  // ?1 key hash
  const char* list_winners;
};
const Selects& SelectsOf(int64_t version);

// Columns of the selects over code and over winners; `stored` is empty in a list.
enum CodeColumn {
  kCodeKey,
  kCodeRequest,
  kCodeObjectBytes,
  kCodeCodec,
  kCodeChecksum,
  kCodeCreated,
  kCodeUsed,
  kCodeGeneration,
  kCodeAttributes,
  kCodeStoredBytes,
  kCodeStored
};
enum WinnerColumn {
  kWinnerKey,
  kWinnerVariant,
  kWinnerCodeKey,
  kWinnerEvidence,
  kWinnerChecksum,
  kWinnerCreated,
  kWinnerUsed,
  kWinnerGeneration,
  kWinnerProtocol,
  kWinnerEvidenceCount
};

namespace sql {

// Keys alone, in the order they lie in the file and against it: what can still be read of a damaged
// file from either end. Columns as of the lists.
extern const char* const kSalvageCode;
extern const char* const kSalvageCodeBackward;
extern const char* const kSalvageWinners;
extern const char* const kSalvageWinnersBackward;

extern const char* const kConfigureConnection;
extern const char* const kConfigureWriter;
extern const char* const kConfigurePackWriter;

// ?1.. key hash, request hash, key, request, object bytes, codec, checksum, created, used,
// generation; returns the id.
extern const char* const kPutCode;
extern const char* const kPutObject;          // ?1 id, ?2 attributes, ?3 bytes
extern const char* const kRemoveObject;       // ?1 key hash
extern const char* const kRemoveCode;         // ?1 key hash
extern const char* const kRemoveObjectExact;  // ?1 key hash, ?2 checksum
extern const char* const kRemoveCodeExact;    // ?1 key hash, ?2 checksum
extern const char* const kTouchCode;          // ?1 key hash, ?2 used
// ?1 how many at most: key hashes of those that give way first.
extern const char* const kCodeToEvict;

// ?1.. key hash, key, variant, code key, evidence, checksum, created, used, generation, protocol,
// evidence count.
extern const char* const kPutWinner;
extern const char* const kHaveWinners;        // ?1 key hashes one after the other: place, key
extern const char* const kRemoveWinner;       // ?1 key hash
extern const char* const kRemoveWinnerExact;  // ?1 key hash, ?2 checksum
extern const char* const kTouchWinner;        // ?1 key hash, ?2 used
extern const char* const kWinnersToEvict;     // ?1 how many at most

extern const char* const kQuarantine;  // ?1 key hash, ?2 reason, ?3 time
extern const char* const kListQuarantine;

extern const char* const kPutMeta;  // ?1 name, ?2 value
extern const char* const kGetMeta;  // ?1 name

extern const char* const kCountCode;
extern const char* const kCountWinners;
// Pages that hold something, and all pages, in bytes.
extern const char* const kUsedBytes;
extern const char* const kFileBytes;
extern const char* const kReleasePages;

}  // namespace sql
}  // namespace whet
