// The compile helper's program, as it was built with this library.
#pragma once

#include "absl/strings/string_view.h"

namespace whet {

absl::string_view EmbeddedHelper();

}  // namespace whet
