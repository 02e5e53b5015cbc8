// Does a disassembled AMD kernel keep the distances that the hardware does not keep by itself? Compilers do, except around inline assembly,
// which they cannot look into. Checked on every path, for the whole kernel:
//  - a result of a matrix instruction is neither read nor overwritten before it is there, and a third operand not overwritten before it has
//    been read; nor does it read too early what a vector instruction has written;
//  - results of transcendental and of partly writing instructions, of vector instructions in scalar registers, and what lane exchanges and
//    DPP read, by the table of src/emulate/isa/wait_states.h;
//  - M0 before a load to LDS;
//  - registers that loads write, from memory and from LDS, are not touched before a wait has covered them.
//
//   for (const Hazard& h : FindHazards(ParseListing(text), "gfx950")) Report(h);
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "bench/amd/listing.h"

namespace whet::amd {

struct Hazard {
  size_t producer = 0;  // indices into the listing
  size_t consumer = 0;
  std::string what;  // with both instructions
};

// `architecture` is gfx90a, gfx942 or gfx950; others have none that is known here. At most one hazard for each pair of instructions.
std::vector<Hazard> FindHazards(const std::vector<Instruction>& code,
                                absl::string_view architecture);

// The registers that an instruction reads and writes, as far as they are named, each a bank ('v', 'a', 's') and a number. VCC, EXEC and M0
// are scalar registers 106, 126 and 124.
struct Register {
  char bank = 'v';
  int number = 0;
  bool operator==(const Register& other) const = default;
};
struct RegisterUse {
  std::vector<Register> reads;
  std::vector<Register> writes;
};
RegisterUse RegistersOf(const Instruction& instruction);

}  // namespace whet::amd
