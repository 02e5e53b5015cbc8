// A disassembled AMD kernel: its instructions, basic blocks, and the hot path of its main loop.
//
//   std::vector<Instruction> code = ParseListing(Disassemble(object_path));   // llvm-objdump -d
//   std::vector<size_t> loop = MainLoop(code);                                // indices into code
//
// Pure functions of the text, but for Disassemble.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace whet::amd {

struct Instruction {
  uint64_t address = 0;
  uint32_t word = 0;      // the first four bytes
  std::string operation;  // "v_mfma_f32_32x32x16_bf16"
  std::string arguments;  // "v[0:15], v[16:19], v[20:23], 0"
};

struct BasicBlock {
  size_t begin = 0;  // instructions
  size_t end = 0;
  std::vector<size_t> successors;  // the branch's target first, then what follows
};

// Takes the lines that look like instructions of llvm-objdump, leaves out all others.
std::vector<Instruction> ParseListing(absl::string_view text);

std::vector<BasicBlock> BasicBlocks(const std::vector<Instruction>& code);

// The blocks of one iteration of the main loop on its hot path, in order: of all loops those with the
// most matrix instructions on a path, of these the path with the most accesses to memory and LDS (a
// load that is left out behind the last tile belongs to the hot path), of these the one with the fewest
// instructions (masking and rare rescaling do not). Empty when no loop has a matrix instruction.
std::vector<size_t> MainLoopBlocks(const std::vector<Instruction>& code,
                                   const std::vector<BasicBlock>& blocks);

// The instructions of MainLoopBlocks.
std::vector<Instruction> MainLoop(const std::vector<Instruction>& code);

// llvm-objdump's text for a code object's bytes. NotFound when no llvm-objdump of LLVM 20 or newer is
// there, Internal when it fails.
absl::StatusOr<std::string> Disassemble(absl::string_view object);

}  // namespace whet::amd
