// The host's C++ compiler: CPU kernels to shared objects.
//
//   absl::StatusOr<std::unique_ptr<Compiler>> c = OpenHostCxx("", &failures);   // newest clang++, else g++
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "src/compile/compiler.h"
#include "src/compile/failure_store.h"

namespace whet {

// `program`: a path or a name; empty: the first of clang++-22 ... clang++-14, clang++, g++ that
// builds a shared object. NotFound lists what was tried and why it was not taken. `failures` must
// outlive the compiler.
absl::StatusOr<std::unique_ptr<Compiler>> OpenHostCxx(const std::string& program,
                                                      const FailureStore* failures);

}  // namespace whet
