#include "tests/emulate/object_player.h"

#include "src/model/target.h"

namespace whet::emulator {

Player PlayObject(Compiler* compiler, const isa::ObjectOptions& options) {
  return [compiler, options](const EmulatedVariant& variant) -> absl::StatusOr<EmulatorReport> {
    const absl::StatusOr<Target> target = Target::Parse(variant.source.architecture);
    if (!target.ok()) return target.status();
    CompileRequest request;
    request.label = variant.variant;
    request.source = variant.source.source;
    request.entry = variant.source.entry;
    request.target = *target;
    const auto extra = variant.options.find(compiler->identity().compiler);
    if (extra != variant.options.end()) request.options = extra->second;
    const absl::StatusOr<CodeObject> object = compiler->Compile(request);
    if (!object.ok()) return object.status();
    const auto program =
        isa::ObjectProgram::Load({.bytes = object->bytes, .entry = variant.source.entry});
    if (!program.ok()) return program.status();
    return (*program)->Run(variant.launch, options);
  };
}

}  // namespace whet::emulator
