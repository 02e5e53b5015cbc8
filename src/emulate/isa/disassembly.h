// What llvm-objdump says of an AMD code object.
//
//   absl::StatusOr<std::string> text = Disassemble(object_bytes);
//   for (const Instruction& i : ParseListing(*text)) ...
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace whet::isa {

struct Instruction {
  uint64_t address = 0;
  uint32_t word = 0;      // the first four bytes
  std::string operation;  // "v_mfma_f32_32x32x16_bf16"
  std::string arguments;  // "v[0:15], v[16:19], v[20:23], 0"
};

// Takes the lines that look like instructions, leaves out all others.
std::vector<Instruction> ParseListing(absl::string_view text);

// llvm-objdump's text for a code object's bytes. NotFound when no llvm-objdump of LLVM 20 or newer is
// there, Internal when it fails.
absl::StatusOr<std::string> Disassemble(absl::string_view object);

}  // namespace whet::isa
