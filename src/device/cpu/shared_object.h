// A shared object loaded from memory.
//
//   absl::StatusOr<std::unique_ptr<Module>> m = LoadSharedObject(object_bytes);
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/device/device.h"

namespace whet {

// Loads `bytes` with private symbols, leaving no file behind; two loads of the same bytes are two
// modules. Errors as CheckSharedObject, otherwise InvalidArgument with the loader's message.
// Thread-safe.
absl::StatusOr<std::unique_ptr<Module>> LoadSharedObject(absl::string_view bytes);

}  // namespace whet
