// A hash for tables in memory, several times faster than HashBytes: 6 ns for 400 bytes.
//
//   uint64_t h = QuickHash(key);
//
// Not the same from machine to machine nor from process to process, so it is never stored or sent;
// made for keys that are compared on a hit, not against an adversary. Thread-safe.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace whet {

uint64_t QuickHash(absl::string_view bytes);

}  // namespace whet
