// --device and what opens it.
//
//   DeviceFlags flags;
//   DeclareDeviceFlags(*verb, &flags);
//   absl::StatusOr<std::unique_ptr<Runtime>> runtime = OpenRuntime(session, flags);
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "src/cli/command.h"
#include "src/runtime/runtime.h"

namespace whet {

struct DeviceFlags {
  std::string device = "cpu";  // "hip", "cuda", "cuda:1"
};

void DeclareDeviceFlags(Verb verb, DeviceFlags* flags);

// The runtime of that device with the session's settings, its progress and warnings on the console.
// InvalidArgument when the text names no device; Unavailable when there is none of that kind.
absl::StatusOr<std::unique_ptr<Runtime>> OpenRuntime(Session& session, const DeviceFlags& flags);

}  // namespace whet
