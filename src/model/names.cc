#include "src/model/names.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace whet {

bool IsName(absl::string_view text) {
  if (text.empty() || text.size() > 64 || !absl::ascii_islower(text[0])) return false;
  // C and C++ keep identifiers with two underscores in a row for themselves.
  if (absl::StrContains(text, "__")) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_islower(static_cast<unsigned char>(c)) ||
           absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '_';
  });
}

}  // namespace whet
