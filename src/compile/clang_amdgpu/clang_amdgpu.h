// A plain clang for AMD GPUs: HIP kernels to code objects with neither ROCm nor a GPU, for build
// machines whose hipRTC does not know the target.
//
//   absl::StatusOr<std::unique_ptr<Compiler>> c = OpenClangAmdGpu("", &failures);
//
// Neither HIP's headers nor AMD's device libraries are used: Debian's are too old for the clang that
// knows gfx950. Kernels define the attributes and stay with the compiler's builtins.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "src/compile/compiler.h"
#include "src/compile/failure_store.h"

namespace whet {

// `program`: a path or a name; empty: clang-22, clang-21, clang-20, /opt/rocm/llvm/bin/clang.
// `failures` must outlive the compiler.
absl::StatusOr<std::unique_ptr<Compiler>> OpenClangAmdGpu(const std::string& program,
                                                          const FailureStore* failures);

}  // namespace whet
