// A forward reader of MessagePack, the encoding of AMD's kernel metadata.
//
//   MsgpackReader reader(bytes);
//   uint64_t entries;
//   if (reader.ReadMap(&entries)) { absl::string_view key; reader.ReadString(&key); ... }
//
// Every read returns false, and leaves the reader where it was, when the next value is of another
// type or the bytes end.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace whet {

class MsgpackReader {
 public:
  explicit MsgpackReader(absl::string_view bytes) : rest_(bytes) {}

  // Counts are checked against the bytes left, so a loop over them is bounded.
  bool ReadMap(uint64_t* entries);
  bool ReadArray(uint64_t* entries);
  bool ReadString(absl::string_view* text);
  // Integers of either sign that fit.
  bool ReadInteger(int64_t* value);
  // Passes over one value with all it holds.
  bool Skip();

 private:
  bool ReadBigEndian(size_t offset, size_t bytes, uint64_t* value) const;
  bool ReadCount(uint8_t fixed, uint8_t mask, uint8_t code16, uint64_t per_entry,
                 uint64_t* entries);
  bool SkipScalar();

  absl::string_view rest_;
};

}  // namespace whet
