#include "bench/amd/build_variant.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace whet::amd {

absl::StatusOr<BuiltVariant> BuildVariant(Compiler& compiler, const KernelTemplate& kernel_template,
                                          const Problem& problem, const Variant& variant,
                                          const Target& target) {
  absl::StatusOr<Specialization> special =
      kernel_template.Specialize(problem, variant, target, DeviceLimits{});
  if (!special.ok()) return special.status();
  CompileRequest request;
  request.label = absl::StrCat(kernel_template.name(), " ", variant.id());
  request.source = special->source;
  request.entry = special->entry;
  request.target = target;
  request.options = special->options[compiler.identity().compiler];
  absl::StatusOr<CodeObject> object = compiler.Compile(request);
  if (!object.ok()) return object.status();
  return BuiltVariant{special->launch, *std::move(object)};
}

}  // namespace whet::amd
