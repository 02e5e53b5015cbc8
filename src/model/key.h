// Keys: clear records of named fields, indexed by their XXH3-128.
//
//   KeyRecord r("code");
//   r.Add("template", "attention_forward").Add("target", "gfx950:sramecc+:xnack-");
//   store.Find(r.hash(), r.bytes());      // the record is compared on a hit, so a collision is a
//   miss
//
// Bytes: for the kind, then for each name and value in order: u32 little-endian length, bytes.
// Nothing is escaped and nothing is ambiguous. Never in a record: absolute paths, file times, map
// order, pointers, process history.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/base/hash.h"

namespace whet {

class KeyRecord {
 public:
  explicit KeyRecord(absl::string_view kind);
  KeyRecord& Add(absl::string_view name, absl::string_view value);
  KeyRecord& Add(absl::string_view name, int64_t value);

  const std::string& bytes() const { return bytes_; }
  Hash128 hash() const { return HashBytes(bytes_); }

 private:
  std::string bytes_;
};

// A record read back, for tools and for comparing: kind first, then the fields in order.
struct ParsedKeyRecord {
  std::string kind;
  std::vector<std::pair<std::string, std::string>> fields;
};

// DataLoss when the bytes are not a whole record; every length is checked before it is believed.
absl::StatusOr<ParsedKeyRecord> ParseKeyRecord(absl::string_view bytes);

// "target: gfx942 -> gfx950; variant: cpu:block_q=32 -> cpu:block_q=64": what differs, for
// `why-miss` and messages. The second field of one name is "option #2"; a field of one side only is
// "(absent)" on the other. Empty when nothing differs.
std::string DifferenceText(const ParsedKeyRecord& from, const ParsedKeyRecord& to);

}  // namespace whet
