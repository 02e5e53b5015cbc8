// NVRTC, NVIDIA's run-time compiler: CUDA kernels to cubins, in the helper process.
//
//   absl::StatusOr<std::unique_ptr<Compiler>> c = OpenNvrtc("", &helper, &failures);
//
// For an architecture newer than the library knows, it gives PTX of the newest one that it knows
// instead, which the driver finishes: slower to load and without the features of that architecture.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "src/compile/compiler.h"
#include "src/compile/failure_store.h"
#include "src/compile/helper/helper_process.h"

namespace whet {

// `library`: a path; empty: libnvrtc.so.13 and .12 where the loader and the CUDA toolkit have them.
// The others outlive the compiler.
absl::StatusOr<std::unique_ptr<Compiler>> OpenNvrtc(const std::string& library,
                                                    const HelperProcess* helper,
                                                    const FailureStore* failures);

}  // namespace whet
