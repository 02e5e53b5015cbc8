// Runs an AMD code object on the CPU, instruction by instruction: what a compiler made of a kernel, where WaveProgram runs its source.
//
//   auto program = ObjectProgram::Load({.bytes = object.bytes, .entry = "rms_norm_gpu"});
//   if (!program.ok()) return program.status();
//   EmulatorLaunch launch = ...;                       // as for WaveProgram
//   absl::StatusOr<EmulatorReport> report = (*program)->Run(launch);
//
// Instructions are read from llvm-objdump's text and interpreted for 64 lanes at a time; the waves of a block take turns at barriers,
// blocks run one after another. Loads deliver at the wait that covers them, and not before.
//
// Reported: registers that are touched while a load is on its way to them; LDS as WaveProgram does (read before it is written, before
// another wave's write was waited for and published, while a load owns it; overwritten while others may read it); accesses outside of
// the arguments and of LDS, writes to inputs (these end the run); registers beyond those that the descriptor grants; instructions that
// follow too closely on one they depend on; loads across the end of a buffer; scales of matrix instructions in scalar registers, which
// gfx950 reads otherwise; blocks that do not end.
// Not modelled: time, caches, scratch memory of gfx90a, traps, blocks that wait for each other, exceptions, rounding other than to nearest, and
// whatever instruction no kernel has used so far: Load says which.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "src/emulate/isa/code_object.h"
#include "src/emulate/isa/decode.h"
#include "src/emulate/wave_program.h"

namespace whet::isa {

struct ObjectSource {
  std::string bytes;
  std::string entry;    // the kernel's symbol
  std::string listing;  // llvm-objdump's text, where it is at hand; else it is run
};

struct ObjectOptions {
  // What a load to LDS does with lanes beyond a buffer: false: writes zeros, as documented; true: leaves LDS alone.
  bool drop_lds_loads = false;
  // Waves take their turns from the last one on.
  bool reverse_waves = false;
};

class ObjectProgram {
 public:
  // InvalidArgument for what is no code object with the kernel, NotFound without a disassembler, Unimplemented for a target or an
  // instruction that is not modelled.
  static absl::StatusOr<std::unique_ptr<ObjectProgram>> Load(const ObjectSource& source);

  // Runs the blocks in the calling thread. What the kernel does wrong is in the report; a failed status means that the launch itself is
  // impossible. Several threads may run one program at a time.
  absl::StatusOr<emulator::EmulatorReport> Run(const emulator::EmulatorLaunch& launch,
                                               const ObjectOptions& options = {}) const;

  const KernelObject& kernel() const { return kernel_; }
  size_t instructions() const { return code_.size(); }

 private:
  ObjectProgram() = default;

  KernelObject kernel_;
  std::vector<Decoded> code_;
  size_t first_ = 0;  // the kernel's first instruction
};

}  // namespace whet::isa
