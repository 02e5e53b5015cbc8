// The state of a block of waves in the middle of a kernel, shared by the files that execute instructions. Not an interface for others.
//
// Registers hold what has arrived. A load's result arrives at the wait that covers it: until then the register is `in flight`, and an
// instruction that touches it is a finding. Results are taken from memory when the load is issued.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "src/emulate/isa/decode.h"
#include "src/emulate/isa/wait_states.h"
#include "src/emulate/lds_shadow.h"
#include "src/emulate/wave_program.h"

namespace whet::isa {

inline constexpr int kLanes = 64;
using Lanes = std::array<uint32_t, kLanes>;

// Something that memory has yet to deliver.
struct Delivery {
  enum class Kind : uint8_t { kVectorRegisters, kScalarRegisters, kLds, kStore };
  Kind kind = Kind::kStore;
  bool scalar_memory = false;  // may overtake others
  bool lds_write = false;
  bool from_lds = false;
  uint16_t first = 0;  // register
  uint16_t count = 0;
  uint64_t lanes = 0;             // that get something
  std::vector<Lanes> words = {};  // per register
  // To LDS: the bytes of each lane, and where they go.
  std::vector<std::pair<uint32_t, std::array<uint32_t, 4>>> landings = {};
  uint32_t bytes = 0;
};

// When and by what a register was last written (or read), in wait states.
struct LastWrite {
  uint64_t at = 0;
  Pipe pipe = Pipe::kOther;
  int passes = 0;
  bool partial = false;
  Registers registers = {};  // all that were written with it
};

struct Wave {
  std::vector<Lanes> v = std::vector<Lanes>(kVectors);
  std::array<uint32_t, kScalars> s = {};
  bool scc = false;
  size_t pc = 0;
  enum class State : uint8_t { kRunning, kAtBarrier, kEnded } state = State::kRunning;
  uint16_t index = 0;
  uint32_t step = 0;
  // How many loads are on their way to a register, from memory and from LDS. Each kind arrives in order.
  std::array<uint8_t, kVectors> memory_in_flight = {};
  std::array<uint8_t, kVectors> lds_in_flight = {};
  std::array<uint8_t, kScalars> scalar_in_flight = {};
  std::vector<unsigned char> scratch;  // of lane 0, then of lane 1, ...
  std::deque<Delivery> vector_memory;  // vmcnt
  std::deque<Delivery> local;          // lgkmcnt
  // For hazards.
  uint64_t clock = 1000;
  std::array<LastWrite, kVectors> vector_write = {};
  std::array<LastWrite, kScalars> scalar_write = {};
  // Of matrix instructions, as what they add to.
  std::array<LastWrite, kVectors> addend_read = {};

  uint64_t Pair(int index_of) const {
    return s[static_cast<size_t>(index_of)] |
           static_cast<uint64_t>(s[static_cast<size_t>(index_of) + 1]) << 32;
  }
  void SetPair(int index_of, uint64_t value) {
    s[static_cast<size_t>(index_of)] = static_cast<uint32_t>(value);
    s[static_cast<size_t>(index_of) + 1] = static_cast<uint32_t>(value >> 32);
  }
  uint64_t exec() const { return Pair(kExec); }
};

// A stretch of memory that the kernel may use.
struct Region {
  uint64_t begin;
  uint64_t end;
  bool writable;
  std::string name;
};

struct Machine {
  std::string architecture;
  Chip chip = Chip::kGfx90a;
  bool gfx940 = false;  // gfx942 and gfx950
  bool gfx950 = false;
  bool flush_matrix = false;  // matrix instructions read and write no denormals (gfx90a)
  bool fnuz = false;
  bool ieee = true;
  // What out-of-range lanes of a load to LDS do: write zeros, or nothing.
  bool drop_lds_loads = false;
  std::vector<Region> regions;
  std::vector<unsigned char> lds;
  uint32_t scratch_bytes = 0;  // of a lane
  emulator::LdsShadow* shadow = nullptr;
  std::vector<Wave> waves;
  const Decoded* current = nullptr;

  bool stop = false;                         // what follows would make no sense
  std::map<std::string, uint64_t> findings;  // text to how often
  std::vector<std::string> order;            // of first sight
  uint64_t matrix_operations = 0;
  uint64_t instructions = 0;

  void Find(const Wave& wave, absl::string_view text);
  // Same, and ends the run.
  void Fail(const Wave& wave, absl::string_view text);
  // The memory at `address`, or null with a finding.
  unsigned char* At(const Wave& wave, uint64_t address, uint32_t bytes, bool write);
};

// vmcnt and lgkmcnt have come down to these.
void WaitVectorMemory(Machine& m, Wave& w, size_t outstanding);
void WaitLocal(Machine& m, Wave& w, size_t outstanding);

// Reports what comes too early after what it depends on, and notes what the instruction writes. docs/amd.md lists what is looked for.
void CheckHazards(Machine& m, Wave& w, const Decoded& d);

using Handlers = absl::flat_hash_map<std::string, Handler>;
void AddScalarHandlers(Handlers* handlers);
void AddIntegerHandlers(Handlers* handlers);
void AddCompareHandlers(Handlers* handlers);
void AddFloatHandlers(Handlers* handlers);
void AddConversionHandlers(Handlers* handlers);
void AddDoubleHandlers(Handlers* handlers);
void AddLaneHandlers(Handlers* handlers);
void AddMemoryHandlers(Handlers* handlers);
void AddLdsHandlers(Handlers* handlers);
void AddMatrixHandlers(Handlers* handlers);

}  // namespace whet::isa
