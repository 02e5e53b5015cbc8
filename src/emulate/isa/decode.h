// One instruction of a listing with its operands taken apart, ready to be executed many times.
//
//   absl::StatusOr<Decoded> d = Decode({.operation = "v_add_f32_e32", .arguments = "v0, s1, v2"});
//   d->name == "v_add_f32"; d->operand[1].kind == OperandKind::kScalar;
//
// Registers are numbered as the machine keeps them: scalars by their hardware code (vcc 106, m0 124, exec 126), vector registers from
// 0 and accumulation registers from kAccumulators.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "src/emulate/isa/disassembly.h"

namespace whet::isa {

inline constexpr int kVcc = 106;
inline constexpr int kM0 = 124;
inline constexpr int kExec = 126;
inline constexpr int kScalars = 128;
inline constexpr int kAccumulators = 256;
inline constexpr int kVectors = 512;

enum class OperandKind : uint8_t { kNone, kOff, kScalar, kVector, kConstant, kCondition };

// Which part of a register an SDWA operand is.
enum class Part : uint8_t { kByte0, kByte1, kByte2, kByte3, kWord0, kWord1, kAll };

struct Operand {
  OperandKind kind = OperandKind::kNone;
  uint16_t index = 0;
  uint8_t count = 1;  // registers
  bool negate = false;
  bool absolute = false;
  bool sign_extend = false;
  bool inline_float = false;  // "1.0": its bits depend on the operation's width
  bool inline_integer = false;
  Part part = Part::kAll;
  uint32_t value = 0;  // of a constant
};

// What decides the distance that other instructions have to keep.
enum class Pipe : uint8_t { kScalar, kVector, kTranscendental, kMatrix, kMemory, kLds, kOther };

struct Registers {
  uint16_t first;
  uint16_t count;
};

struct Machine;
struct Wave;
struct Decoded;
using Handler = void (*)(Machine&, Wave&, const Decoded&);

struct Decoded {
  Handler handler = nullptr;
  uint64_t address = 0;
  std::string name;  // without _e32, _e64, _sdwa
  std::string text;
  Pipe pipe = Pipe::kOther;
  int passes = 0;  // of a matrix instruction
  int operands = 0;
  std::array<Operand, 6> operand;
  int immediate = 0;  // the low half of the first word, for s_waitcnt and branches
  size_t target = 0;  // of a branch: index of an instruction
  // Modifiers. op_sel_hi is what was printed, or all ones.
  uint8_t op_sel = 0, op_sel_hi = 7, neg_lo = 0, neg_hi = 0;
  bool clamp = false, offen = false, lds = false;
  int offset = 0, offset0 = 0, offset1 = 0;
  int bitop = 0;
  int format_a = 0, format_b = 0;  // cbsz, blgp
  std::string swizzle;
  Part destination = Part::kAll;
  bool preserve = false;
  bool partial = false;  // writes less than a register, or through a selection
  // Scalar and vector registers that must have arrived before it starts.
  std::vector<Registers> scalar_reads, scalar_writes, vector_reads, vector_writes;
};

// Unimplemented, naming it, for what the interpreter does not know the form of.
absl::StatusOr<Decoded> Decode(const Instruction& instruction);

}  // namespace whet::isa
