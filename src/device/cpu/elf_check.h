// Looks at a shared object before the loader does: dlopen trusts the headers, and a truncated file
// would end the process with SIGBUS instead of an error.
//
//   absl::Status s = CheckSharedObject(bytes);
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace whet {

// OK for a 64-bit little-endian ELF shared object of this processor whose segments lie inside
// `bytes`. FailedPrecondition when it is for another machine, InvalidArgument when it is no whole
// shared object.
absl::Status CheckSharedObject(absl::string_view bytes);

}  // namespace whet
