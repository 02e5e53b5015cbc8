// XXH3-128 as a value: the index of every key, and the checksum of every stored blob.
//
//   Hash128 h = HashBytes("abc");
//   std::string hex = h.ToHex();   // 32 lower-case digits, XXH's canonical (big-endian) order
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace whet {

struct Hash128 {
  uint64_t high = 0;
  uint64_t low = 0;

  std::string ToHex() const;
  // The inverse of ToHex. InvalidArgument for anything but 32 hexadecimal digits.
  static absl::StatusOr<Hash128> FromHex(absl::string_view hex);

  friend bool operator==(const Hash128&, const Hash128&) = default;
  friend auto operator<=>(const Hash128&, const Hash128&) = default;
  template <typename H>
  friend H AbslHashValue(H state, const Hash128& h) {
    return H::combine(std::move(state), h.low);  // already uniform
  }
};

Hash128 HashBytes(absl::string_view bytes);

}  // namespace whet
