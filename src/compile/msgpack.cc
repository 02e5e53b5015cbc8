#include "src/compile/msgpack.h"

#include <limits>

namespace whet {

bool MsgpackReader::ReadBigEndian(size_t offset, size_t bytes, uint64_t* value) const {
  if (rest_.size() < offset || rest_.size() - offset < bytes) return false;
  *value = 0;
  for (size_t i = 0; i < bytes; ++i) {
    *value = *value << 8 | static_cast<uint8_t>(rest_[offset + i]);
  }
  return true;
}

bool MsgpackReader::ReadCount(uint8_t fixed, uint8_t mask, uint8_t code16, uint64_t per_entry,
                              uint64_t* entries) {
  uint64_t tag = 0;
  if (!ReadBigEndian(0, 1, &tag)) return false;
  uint64_t count = 0;
  size_t header = 1;
  if ((tag & ~uint64_t{mask}) == fixed) {
    count = tag & mask;
  } else if (tag == code16) {
    if (!ReadBigEndian(1, 2, &count)) return false;
    header = 3;
  } else if (tag == code16 + 1u) {
    if (!ReadBigEndian(1, 4, &count)) return false;
    header = 5;
  } else {
    return false;
  }
  // Every entry takes at least one byte.
  if (count * per_entry > rest_.size() - header) return false;
  rest_.remove_prefix(header);
  *entries = count;
  return true;
}

bool MsgpackReader::ReadMap(uint64_t* entries) { return ReadCount(0x80, 0x0f, 0xde, 2, entries); }

bool MsgpackReader::ReadArray(uint64_t* entries) { return ReadCount(0x90, 0x0f, 0xdc, 1, entries); }

bool MsgpackReader::ReadString(absl::string_view* text) {
  uint64_t tag = 0;
  if (!ReadBigEndian(0, 1, &tag)) return false;
  uint64_t size = 0;
  size_t header = 1;
  if ((tag & 0xe0) == 0xa0) {
    size = tag & 0x1f;
  } else if (tag >= 0xd9 && tag <= 0xdb) {
    const size_t width = size_t{1} << (tag - 0xd9);
    if (!ReadBigEndian(1, width, &size)) return false;
    header += width;
  } else {
    return false;
  }
  if (size > rest_.size() - header) return false;
  *text = rest_.substr(header, size);
  rest_.remove_prefix(header + size);
  return true;
}

bool MsgpackReader::ReadInteger(int64_t* value) {
  uint64_t tag = 0;
  if (!ReadBigEndian(0, 1, &tag)) return false;
  if (tag <= 0x7f || tag >= 0xe0) {
    *value = static_cast<int8_t>(tag);
    rest_.remove_prefix(1);
    return true;
  }
  if (tag < 0xcc || tag > 0xd3) return false;
  const bool is_signed = tag >= 0xd0;
  const size_t width = size_t{1} << (tag - (is_signed ? 0xd0 : 0xcc));
  uint64_t bits = 0;
  if (!ReadBigEndian(1, width, &bits)) return false;
  if (is_signed) {
    const unsigned unused = 64 - 8 * static_cast<unsigned>(width);
    *value = static_cast<int64_t>(bits << unused) >> unused;
  } else {
    if (bits > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return false;
    *value = static_cast<int64_t>(bits);
  }
  rest_.remove_prefix(1 + width);
  return true;
}

bool MsgpackReader::SkipScalar() {
  absl::string_view text;
  int64_t integer = 0;
  if (ReadString(&text) || ReadInteger(&integer)) return true;
  uint64_t tag = 0;
  if (!ReadBigEndian(0, 1, &tag)) return false;
  uint64_t size = 0;
  size_t header = 1;
  switch (tag) {
    case 0xc0:  // nil
    case 0xc2:  // false
    case 0xc3:  // true
      break;
    case 0xcf:  // an unsigned integer too large for int64_t
    case 0xcb:  // double
      size = 8;
      break;
    case 0xca:  // float
      size = 4;
      break;
    case 0xc4:  // byte strings
    case 0xc5:
    case 0xc6: {
      const size_t width = size_t{1} << (tag - 0xc4);
      if (!ReadBigEndian(1, width, &size)) return false;
      header += width;
      break;
    }
    default:  // extensions: AMD's metadata has none
      return false;
  }
  if (size > rest_.size() - header) return false;
  rest_.remove_prefix(header + size);
  return true;
}

bool MsgpackReader::Skip() {
  const absl::string_view before = rest_;
  // A count of values still to pass instead of recursion: depth cannot exhaust the stack, and each
  // value takes at least one byte.
  uint64_t pending = 1;
  while (pending > 0) {
    --pending;
    uint64_t entries = 0;
    if (ReadMap(&entries)) {
      pending += 2 * entries;
    } else if (ReadArray(&entries)) {
      pending += entries;
    } else if (!SkipScalar()) {
      rest_ = before;
      return false;
    }
  }
  return true;
}

}  // namespace whet
