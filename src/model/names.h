// What may be the name of a template, kernel, field or parameter: it becomes a part of C
// identifiers, of file names and of canonical texts.
//
//   IsName("block_q") && !IsName("Block") && !IsName("2x") && !IsName("")
#pragma once

#include "absl/strings/string_view.h"

namespace whet {

// A lower-case letter, then up to 63 lower-case letters, digits and single underscores.
bool IsName(absl::string_view text);

}  // namespace whet
