// Records of named, length-prefixed fields: the form of keys (src/model/key.h) and of entry files.
//
//   RecordWriter w("code"); w.Add("target", "sm_90a");
//   absl::StatusOr<Record> r = ParseRecord(w.bytes(), /*max_fields=*/64);
//
// Bytes: for the kind, then for each name and value in order: u32 little-endian length, bytes.
// Nothing is escaped and nothing is ambiguous.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace whet {

// One length-prefixed part, for who keeps the bytes itself. A part of 4 GiB or more is cut: nothing
// that goes into a record is within orders of magnitude of that.
void AppendRecordPart(std::string& bytes, absl::string_view part);

class RecordWriter {
 public:
  explicit RecordWriter(absl::string_view kind) { AppendRecordPart(bytes_, kind); }
  RecordWriter& Add(absl::string_view name, absl::string_view value);
  RecordWriter& Add(absl::string_view name, int64_t value);
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// Views into the bytes that were parsed.
struct Record {
  absl::string_view kind;
  std::vector<std::pair<absl::string_view, absl::string_view>> fields;

  // The first field of that name; empty when there is none.
  absl::string_view Find(absl::string_view name) const;
  // The same as a decimal number; 0 when it is none.
  int64_t FindInt(absl::string_view name) const;
};

// DataLoss when the bytes are not exactly one record, or it has more fields than `max_fields`.
// Every length is checked before it is believed.
absl::StatusOr<Record> ParseRecord(absl::string_view bytes, size_t max_fields);

}  // namespace whet
