// Plays what a compiler makes of a template's variant, in place of its source.
//
//   Player player = PlayObject(compiler, {});
//   RunAttention(c, player);
#pragma once

#include <string>

#include "src/compile/compiler.h"
#include "src/emulate/isa/object_program.h"
#include "tests/emulate/template_run.h"

namespace whet::emulator {

// Compiles with `compiler`, which must outlive the player, and interprets the code object.
Player PlayObject(Compiler* compiler, const isa::ObjectOptions& options);

}  // namespace whet::emulator
