// The page of `whet tune --report`: one HTML file that holds its data, style and script, and loads
// nothing.
//
//   WriteFileAtomically(path, TunePage(json));
//
// The data is the JSON object in the element "whet-data"; the plots are drawn from it.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace whet {

// `json`: {"device": {...}, "problems": [{"problem", "winner", "variants": [...], ...}]}.
std::string TunePage(absl::string_view json);

}  // namespace whet
