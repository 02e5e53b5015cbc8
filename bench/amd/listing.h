// A disassembled AMD kernel: its instructions, basic blocks, and the hot path of its main loop.
//
//   std::vector<Instruction> code = ParseListing(Disassemble(object_path));   // llvm-objdump -d
//   std::vector<size_t> loop = MainLoop(code);                                // indices into code
//
// Pure functions of the listing.
#pragma once

#include <cstddef>
#include <vector>

#include "src/emulate/isa/disassembly.h"

namespace whet::amd {

using isa::Disassemble;
using isa::Instruction;
using isa::ParseListing;

struct BasicBlock {
  size_t begin = 0;  // instructions
  size_t end = 0;
  std::vector<size_t> successors;  // the branch's target first, then what follows
};

std::vector<BasicBlock> BasicBlocks(const std::vector<Instruction>& code);

// The blocks of one iteration of the main loop on its hot path, in order: of all loops those with the
// most matrix instructions on a path, of these the path with the most accesses to memory and LDS (a
// load that is left out behind the last tile belongs to the hot path), of these the one with the fewest
// instructions (masking and rare rescaling do not). Empty when no loop has a matrix instruction.
std::vector<size_t> MainLoopBlocks(const std::vector<Instruction>& code,
                                   const std::vector<BasicBlock>& blocks);

// The instructions of MainLoopBlocks.
std::vector<Instruction> MainLoop(const std::vector<Instruction>& code);

}  // namespace whet::amd
