#include "src/base/hash.h"

#include <xxhash.h>

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace whet {
namespace {

constexpr size_t kHexDigits = 32;

}  // namespace

Hash128 HashBytes(absl::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {.high = hash.high64, .low = hash.low64};
}

std::string Hash128::ToHex() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, {.low64 = low, .high64 = high});
  return absl::BytesToHexString(
      {reinterpret_cast<const char*>(canonical.digest), sizeof(canonical.digest)});
}

absl::StatusOr<Hash128> Hash128::FromHex(absl::string_view hex) {
  const auto invalid = [&] {
    return absl::InvalidArgumentError(absl::StrCat("cannot read hash \"",
                                                   absl::CEscape(hex.substr(0, kHexDigits + 1)),
                                                   "\": expected 32 hexadecimal digits"));
  };
  if (hex.size() != kHexDigits) return invalid();
  for (const char c : hex) {
    if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) return invalid();
  }
  const std::string bytes = absl::HexStringToBytes(hex);
  XXH128_canonical_t canonical;
  std::copy(bytes.begin(), bytes.end(), canonical.digest);
  const XXH128_hash_t hash = XXH128_hashFromCanonical(&canonical);
  return Hash128{.high = hash.high64, .low = hash.low64};
}

}  // namespace whet
