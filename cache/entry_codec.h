// How an entry becomes the bytes of a row and back: compression, checksum, limits.
//
//   StoredObject stored = EncodeObject(entry.object);
//   absl::StatusOr<std::string> object = DecodeObject(stored.codec, stored.bytes, size, limit);
//
// Pure functions, thread-safe. Nothing is allocated for a size that was not checked first.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cache/store.h"

namespace whet {

// On disk; never renumber.
enum class Codec : int64_t { kStored = 0, kZstd = 1 };

struct StoredObject {
  Codec codec = Codec::kStored;
  std::string bytes;
};

// Compressed unless that would not make it smaller. `level` as zstd's: 1 takes a fifth of the time
// of 3 and gives a few per cent less, which suits a put that someone waits for.
StoredObject EncodeObject(absl::string_view object, int level = 1);

// The inverse. DataLoss when the bytes are no such object, `object_bytes` is negative or above
// `limit_bytes`, or the codec is not known.
absl::StatusOr<std::string> DecodeObject(int64_t codec, absl::string_view stored,
                                         int64_t object_bytes, int64_t limit_bytes);

// XXH3-128 in canonical (big-endian) bytes: the form of every hash in a file.
std::string HashColumn(absl::string_view bytes);

// Over everything a reader acts on, the uncompressed object included, so that a flipped bit
// anywhere is noticed: XXH3-128 of the fields' own hashes, each 16 bytes, in this order.
std::string CodeChecksum(const CodeEntry& entry);
std::string WinnerChecksum(const WinnerEntry& entry);

// ResourceExhausted, naming the field, when an entry is larger than any reader would believe.
absl::Status CheckCodeLimits(const CodeEntry& entry, int64_t object_limit_bytes);
absl::Status CheckWinnerLimits(const WinnerEntry& entry);

inline constexpr int64_t kRecordLimitBytes = 1 << 20;     // a key record
inline constexpr int64_t kDocumentLimitBytes = 16 << 20;  // attributes, evidence

}  // namespace whet
