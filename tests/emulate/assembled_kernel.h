// Tiny kernels written in assembly, as code objects.
//
//   absl::StatusOr<isa::ObjectSource> object = Assemble("gfx950", "s_load_dwordx2 s[4:5], s[0:1], 0x0\n...");
//
// The kernel takes one pointer (its kernarg pointer is s[0:1], its block s2, its thread v0) and has 64 vector and 64 accumulation registers.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "src/emulate/isa/object_program.h"

namespace whet::emulator {

// NotFound without clang-22 to clang-20, InvalidArgument with the assembler's words when it does not accept the text.
absl::StatusOr<isa::ObjectSource> Assemble(const std::string& architecture,
                                           const std::string& body);

}  // namespace whet::emulator
