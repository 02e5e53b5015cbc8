// The distances between instructions that the hardware does not keep by itself, as AMD's manuals and LLVM's hazard recogniser have
// them for gfx90a, gfx942 and gfx950. In wait states: one for each instruction, and what s_nop says.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/emulate/isa/machine.h"

namespace whet::isa {
namespace {

bool IsVector(Pipe pipe) { return pipe == Pipe::kVector || pipe == Pipe::kTranscendental; }

// Wait states between a matrix instruction's result and the use of `registers`.
int AfterMatrixWrite(const Machine& m, const LastWrite& write, const Decoded& d,
                     const Registers& registers, bool addend) {
  const int slow = m.gfx950 && write.passes != 2 ? 1 : 0;
  if (d.pipe != Pipe::kMatrix || !addend) return write.passes + 3 + slow;
  // The whole result is handed on as the next addend; a part of it is not.
  const bool whole =
      registers.first == write.registers.first && registers.count == write.registers.count;
  return whole ? 0 : write.passes + (m.gfx940 ? 1 : 0) + slow;
}

int AfterVectorWrite(const Machine& m, const LastWrite& write, const Decoded& d) {
  if (!m.gfx940) return 0;
  if (write.pipe == Pipe::kTranscendental && d.pipe == Pipe::kVector) return 1;
  if (write.partial && IsVector(d.pipe)) return 1;
  if (absl::StartsWith(d.name, "v_readlane") || absl::StartsWith(d.name, "v_readfirstlane")) {
    return 1;
  }
  if (m.gfx950 && absl::StartsWith(d.name, "v_permlane")) return 2;
  return 0;
}

void Complain(Machine& m, const Wave& w, const LastWrite& write, int needed, const char* what) {
  const uint64_t states = w.clock - write.at - 1;
  if (needed == 0 || states >= static_cast<uint64_t>(needed)) return;
  m.Find(w, absl::StrCat("comes ", states, " wait states after ", what, " that it depends on; ",
                         needed, " are needed"));
}

}  // namespace

void CheckHazards(Machine& m, Wave& w, const Decoded& d) {
  w.clock += d.name == "s_nop" ? static_cast<uint64_t>(d.immediate & 15) + 1 : 1;
  const int passes = m.gfx940 ? d.passes : 2 * d.passes;
  if (d.pipe == Pipe::kMatrix) {
    // Issue is in order: a matrix instruction, and what follows, waits for the pipe. (LLVM counts it as one state, and keeps more.)
    w.clock = std::max(w.clock, w.matrix_free);
    w.matrix_free = w.clock + static_cast<uint64_t>(passes);
  }
  const auto look = [&](const Registers& registers, bool read, bool addend) {
    for (uint16_t i = 0; i < registers.count; ++i) {
      const LastWrite& write = w.vector_write[registers.first + i];
      if (write.at == 0) continue;
      if (write.pipe == Pipe::kMatrix) {
        Complain(m, w, write, AfterMatrixWrite(m, write, d, registers, addend),
                 "a matrix instruction");
      } else if (read) {
        Complain(m, w, write, AfterVectorWrite(m, write, d), "a vector instruction");
      }
    }
  };
  for (const Registers& registers : d.vector_reads) {
    // The sparse ones add to their destination.
    const Operand& addend = absl::StartsWith(d.name, "v_smfmac") ? d.operand[0] : d.operand[3];
    look(registers, true,
         d.pipe == Pipe::kMatrix && registers.first == addend.index &&
             registers.count == addend.count && addend.kind == OperandKind::kVector);
  }
  for (const Registers& registers : d.vector_writes) {
    // A matrix instruction overwrites another's result in order.
    if (d.pipe != Pipe::kMatrix) look(registers, false, false);
  }
  for (const Registers& registers : d.scalar_reads) {
    for (uint16_t i = 0; i < registers.count; ++i) {
      const LastWrite& write = w.scalar_write[registers.first + i];
      if (write.at == 0 || !IsVector(write.pipe)) continue;
      int needed = 0;
      if (d.pipe == Pipe::kMemory) needed = 5;
      if (IsVector(d.pipe) && m.gfx940) {
        needed = registers.first == kVcc && absl::StartsWith(d.name, "v_div_fmas") ? 4 : 0;
      }
      Complain(m, w, write, needed, "a vector instruction");
    }
  }
  if (d.lds && d.pipe == Pipe::kMemory && w.scalar_write[kM0].at != 0) {
    Complain(m, w, w.scalar_write[kM0], 1, "the move to M0");
  }
  LastWrite now = {w.clock, d.pipe, passes, d.partial, {}};
  for (const Registers& registers : d.vector_writes) {
    now.registers = registers;
    for (uint16_t i = 0; i < registers.count; ++i) w.vector_write[registers.first + i] = now;
  }
  for (const Registers& registers : d.scalar_writes) {
    for (uint16_t i = 0; i < registers.count; ++i) w.scalar_write[registers.first + i] = now;
  }
}

}  // namespace whet::isa
