// One variant through one compiler, past the cache.
//
//   absl::StatusOr<BuiltVariant> b = BuildVariant(compiler, kernel_template, problem, variant, target);
#pragma once

#include "absl/status/statusor.h"
#include "src/compile/compiler.h"
#include "src/model/kernel_template.h"

namespace whet::amd {

struct BuiltVariant {
  LaunchGeometry launch;
  CodeObject object;
};

// The template's failure, or the compiler's.
absl::StatusOr<BuiltVariant> BuildVariant(Compiler& compiler, const KernelTemplate& kernel_template,
                                          const Problem& problem, const Variant& variant,
                                          const Target& target);

}  // namespace whet::amd
