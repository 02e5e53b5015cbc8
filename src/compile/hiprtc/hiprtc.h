// hipRTC, AMD's run-time compiler: HIP kernels to code objects, in the helper process.
//
//   absl::StatusOr<std::unique_ptr<Compiler>> c = OpenHiprtc("", &helper, &failures);
//   if (c.ok() && (*c)->WhyNot(target).empty()) ...
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "src/compile/compiler.h"
#include "src/compile/failure_store.h"
#include "src/compile/helper/helper_process.h"

namespace whet {

// `library`: a path; empty: libhiprtc.so.7 and .6, then libamdhip64.so.5, which holds hipRTC in
// HIP 5. The others outlive the compiler.
absl::StatusOr<std::unique_ptr<Compiler>> OpenHiprtc(const std::string& library,
                                                     const HelperProcess* helper,
                                                     const FailureStore* failures);

}  // namespace whet
