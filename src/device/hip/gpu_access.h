// Why HIP sees no GPU, as far as the driver's files tell: HIP's own answer is the same for a missing driver and for a missing permission.
//
//   ExplainNoGpu(&ProbeFile)   // "this user may not open /dev/kfd: add it to the groups render and video, and log in again"
#pragma once

#include <functional>
#include <string>

namespace whet {

// 0 where this process may read and write the file, else the errno that says why not.
int ProbeFile(const std::string& path);

// One clause for the end of an error message. `probe` answers as ProbeFile does. Never empty.
std::string ExplainNoGpu(const std::function<int(const std::string& path)>& probe);

}  // namespace whet
