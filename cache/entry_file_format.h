// The bytes of one entry file.
//
//   magic "WHETENT1" (8), checksum: XXH3-128 of all that follows (16), one record (record.h)
//
// The record's kind is "code" (fields key, request, attributes, created, generation, object_bytes,
// codec, object) or "winner" (key, variant, code_key, evidence, created, generation, protocol,
// evidence_count) or "quarantine" (reason, count, time). Readers ignore fields that they do not
// know, so that a later version may add some. Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cache/store.h"

namespace whet {

std::string FormatCodeFile(const CodeEntry& entry, int64_t generation);
std::string FormatWinnerFile(const WinnerEntry& entry, int64_t generation);
std::string FormatQuarantineFile(const QuarantineRecord& record);

// DataLoss when anything in the bytes is not as it must be. `stored_bytes` of the facts is set, the
// time of use is not: it is no part of the bytes. Without `with_object` the object is not decoded.
absl::StatusOr<CodeEntry> ParseCodeFile(absl::string_view bytes, int64_t object_limit_bytes,
                                        bool with_object);
absl::StatusOr<WinnerEntry> ParseWinnerFile(absl::string_view bytes);
absl::StatusOr<QuarantineRecord> ParseQuarantineFile(absl::string_view bytes);

// Larger files are not read.
int64_t EntryFileLimit(int64_t object_limit_bytes);

}  // namespace whet
