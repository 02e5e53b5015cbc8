// The CPU quota that a control group puts on this process (containers are limited this way, not by
// affinity).
//
//   int n = CgroupProcessorLimit("/");   // 2 under `docker run --cpus=1.5`; 0 when there is no
//   quota
#pragma once

#include "absl/strings/string_view.h"

namespace whet {

// Quota over period of the tightest group from this process's own up to the mounted root, rounded
// up; 0 without a quota, or when the files cannot be read. Understands version 2 and version 1
// hierarchies, also side by side. `root` stands before /proc and before the mount points; other
// than "/" only in tests.
int CgroupProcessorLimit(absl::string_view root);

}  // namespace whet
