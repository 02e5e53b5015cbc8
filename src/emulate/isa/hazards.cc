// What an instruction finds of those before it, against the table of wait_states.h.
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/emulate/isa/machine.h"

namespace whet::isa {
namespace {

bool IsVector(Pipe pipe) { return pipe == Pipe::kVector || pipe == Pipe::kTranscendental; }

// Wait states between a matrix instruction's result and the use of `registers`.
int AfterMatrixWrite(const Machine& m, const LastWrite& write, const Decoded& d,
                     const Registers& registers, bool addend) {
  if (d.pipe != Pipe::kMatrix || !addend) return StatesToResult(write.passes, m.chip);
  const bool same =
      registers.first == write.registers.first && registers.count == write.registers.count;
  return StatesToAddend(write.passes, same, m.chip);
}

int AfterVectorWrite(const Machine& m, const LastWrite& write, const Decoded& d) {
  if (d.pipe == Pipe::kMatrix) return IsVector(write.pipe) ? kVectorToMatrix : 0;
  if (!m.gfx940) return 0;
  if (write.pipe == Pipe::kTranscendental && d.pipe == Pipe::kVector)
    return kTranscendentalToVector;
  if (write.partial && IsVector(d.pipe)) return kPartToVector;
  if (absl::StartsWith(d.name, "v_readlane") || absl::StartsWith(d.name, "v_readfirstlane")) {
    return kVectorToReadLane;
  }
  if (m.gfx950 && absl::StartsWith(d.name, "v_permlane")) return kVectorToExchange;
  return 0;
}

// Of a scalar register that a vector instruction wrote.
int AfterScalarResult(const Machine& m, const Registers& registers, const Decoded& d) {
  if (d.pipe == Pipe::kMemory) return kScalarToMemory;
  if (!IsVector(d.pipe)) return 0;
  if (registers.first == kVcc && absl::StartsWith(d.name, "v_div_fmas")) return kVccToDivFmas;
  return m.gfx940 ? kScalarToVector : 0;
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
  // The sparse ones add to their destination.
  const Operand& addend = absl::StartsWith(d.name, "v_smfmac") ? d.operand[0] : d.operand[3];
  const bool adds = d.pipe == Pipe::kMatrix && addend.kind == OperandKind::kVector;
  for (const Registers& registers : d.vector_reads) {
    look(registers, true,
         adds && registers.first == addend.index && registers.count == addend.count);
  }
  for (const Registers& registers : d.vector_writes) {
    // A matrix instruction overwrites another's result in order.
    if (d.pipe == Pipe::kMatrix) continue;
    look(registers, false, false);
    if (!IsVector(d.pipe)) continue;
    for (uint16_t i = 0; i < registers.count; ++i) {
      const LastWrite& read = w.addend_read[registers.first + i];
      if (read.at == 0) continue;
      Complain(m, w, read, StatesToOverwriteAddend(read.passes),
               "a matrix instruction that adds to what it overwrites,");
    }
  }
  for (const Registers& registers : d.scalar_reads) {
    for (uint16_t i = 0; i < registers.count; ++i) {
      const LastWrite& write = w.scalar_write[registers.first + i];
      if (write.at == 0 || !IsVector(write.pipe)) continue;
      Complain(m, w, write, AfterScalarResult(m, registers, d), "a vector instruction");
    }
  }
  if (d.lds && d.pipe == Pipe::kMemory && w.scalar_write[kM0].at != 0) {
    Complain(m, w, w.scalar_write[kM0], kM0ToLoad, "the move to M0");
  }
  for (uint16_t i = 0; adds && i < addend.count; ++i)
    w.addend_read[addend.index + i] = {w.clock, d.pipe, d.passes, false, {}};
  LastWrite now = {w.clock, d.pipe, d.passes, d.partial, {}};
  for (const Registers& registers : d.vector_writes) {
    now.registers = registers;
    for (uint16_t i = 0; i < registers.count; ++i) w.vector_write[registers.first + i] = now;
  }
  for (const Registers& registers : d.scalar_writes) {
    for (uint16_t i = 0; i < registers.count; ++i) w.scalar_write[registers.first + i] = now;
  }
}

}  // namespace whet::isa
