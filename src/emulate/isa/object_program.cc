#include "src/emulate/isa/object_program.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "src/emulate/isa/disassembly.h"
#include "src/emulate/isa/machine.h"

namespace whet::isa {
namespace {

using emulator::EmulatorArgument;
using emulator::EmulatorFinding;
using emulator::EmulatorLaunch;
using emulator::EmulatorReport;

Handlers AllHandlers() {
  Handlers handlers;
  AddScalarHandlers(&handlers);
  AddIntegerHandlers(&handlers);
  AddCompareHandlers(&handlers);
  AddFloatHandlers(&handlers);
  AddConversionHandlers(&handlers);
  AddDoubleHandlers(&handlers);
  AddLaneHandlers(&handlers);
  AddMemoryHandlers(&handlers);
  AddLdsHandlers(&handlers);
  AddMatrixHandlers(&handlers);
  return handlers;
}

Chip ChipOf(const std::string& architecture) {
  return architecture == "gfx950"   ? Chip::kGfx950
         : architecture == "gfx942" ? Chip::kGfx942
                                    : Chip::kGfx90a;
}

int64_t MostLds(const std::string& architecture) {
  return architecture == "gfx950" ? 160 * 1024 : 64 * 1024;
}

absl::Status CheckModel(const KernelObject& kernel) {
  const auto no = [](const std::string& what) {
    return absl::UnimplementedError(
        absl::StrCat("play the code object: ", what, " is not modelled"));
  };
  const std::string& a = kernel.architecture;
  if (a != "gfx90a" && a != "gfx942" && a != "gfx950") return no(absl::StrCat("target ", a));
  if (kernel.scratch_bytes > 0 && a == "gfx90a") return no("scratch memory through a buffer");
  // Round to nearest everywhere, denormals kept.
  if (kernel.float_mode != 0xf0) return no(absl::StrCat("floating-point mode ", kernel.float_mode));
  if (!kernel.ieee) return no("a mode without IEEE rules");
  return absl::OkStatus();
}

// Registers beyond what the descriptor grants would be another wave's.
absl::Status CheckRegisters(const KernelObject& kernel, const Decoded& d) {
  for (const std::vector<Registers>* list : {&d.vector_reads, &d.vector_writes}) {
    for (const Registers& r : *list) {
      const int last = r.first + r.count;
      const bool accumulator = r.first >= kAccumulators;
      const int most = accumulator
                           ? kAccumulators + kernel.vector_registers - kernel.accumulator_base
                           : std::min(kernel.accumulator_base, kernel.vector_registers);
      if (last > most) {
        return absl::InvalidArgumentError(absl::StrCat(
            "play the code object: ", d.text,
            " uses registers that its descriptor does not grant (", kernel.vector_registers,
            ", accumulators from ", kernel.accumulator_base, ")"));
      }
    }
  }
  return absl::OkStatus();
}

void Append(std::string* bytes, size_t offset, const void* from, size_t size) {
  if (bytes->size() < offset + size) bytes->resize(offset + size);
  std::memcpy(bytes->data() + offset, from, size);
}

// The arguments as the launch lays them out, hidden ones too.
absl::StatusOr<std::string> ArgumentBlock(const KernelObject& kernel,
                                          const EmulatorLaunch& launch) {
  std::string block(static_cast<size_t>(kernel.argument_bytes), '\0');
  size_t next = 0;
  for (const KernelArgument& argument : kernel.arguments) {
    const auto offset = static_cast<size_t>(argument.offset);
    if (absl::StartsWith(argument.kind, "hidden_")) {
      const char axis = argument.kind.back();
      const size_t i = axis == 'x' ? 0 : axis == 'y' ? 1 : 2;
      uint64_t value = 0;
      if (absl::StartsWith(argument.kind, "hidden_block_count_")) value = launch.grid[i];
      if (absl::StartsWith(argument.kind, "hidden_group_size_")) value = launch.block[i];
      if (argument.kind == "hidden_grid_dims") value = 3;
      Append(&block, offset, &value, static_cast<size_t>(argument.size));
      continue;
    }
    if (next == launch.arguments.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("play the code object: it takes more than ", next, " arguments"));
    }
    const EmulatorArgument& given = launch.arguments[next++];
    const auto pointer = reinterpret_cast<uint64_t>(given.data);
    const bool is_pointer = given.scalar.empty();
    const size_t size = is_pointer ? 8 : given.scalar.size();
    if (static_cast<int64_t>(size) != argument.size) {
      return absl::InvalidArgumentError(absl::StrCat("play the code object: argument ", next - 1,
                                                     " has ", argument.size, " bytes, not ", size));
    }
    Append(&block, offset, is_pointer ? static_cast<const void*>(&pointer) : given.scalar.data(),
           size);
  }
  if (next != launch.arguments.size()) {
    return absl::InvalidArgumentError(absl::StrCat("play the code object: it takes ", next, " of ",
                                                   launch.arguments.size(), " arguments"));
  }
  return block;
}

// hsa_kernel_dispatch_packet_t, as far as kernels look at it.
std::string DispatchPacket(const EmulatorLaunch& launch) {
  std::string packet(64, '\0');
  for (size_t i = 0; i < 3; ++i) {
    const auto size = static_cast<uint16_t>(launch.block[i]);
    const uint32_t items = launch.grid[i] * launch.block[i];
    std::memcpy(packet.data() + 4 + 2 * i, &size, 2);
    std::memcpy(packet.data() + 12 + 4 * i, &items, 4);
  }
  return packet;
}

// What a wave finds in its registers. All others hold a bit pattern that is a NaN in every format, different in each.
void StartWave(const KernelObject& kernel, const EmulatorLaunch& launch, uint64_t block,
               uint16_t index, const std::string& arguments, const std::string& packet,
               size_t first, Wave* w) {
  *w = Wave();
  w->index = index;
  w->pc = first;
  for (size_t r = 0; r < kVectors; ++r) {
    w->v[r].fill(0xffc00000u | static_cast<uint32_t>(r));
  }
  w->s.fill(0xffdead00u);
  size_t s = 0;
  const auto push = [&](uint64_t value, size_t words) {
    for (size_t i = 0; i < words; ++i) w->s[s++] = static_cast<uint32_t>(value >> (32 * i));
  };
  if (kernel.private_segment_buffer) s += 4;
  if (kernel.dispatch_pointer) push(reinterpret_cast<uint64_t>(packet.data()), 2);
  if (kernel.queue_pointer) push(0, 2);
  if (kernel.kernarg_pointer) push(reinterpret_cast<uint64_t>(arguments.data()), 2);
  if (kernel.dispatch_id) push(0, 2);
  if (kernel.flat_scratch) push(0, 2);
  if (kernel.private_segment_size) push(0, 1);
  for (int i = 0; i < kernel.preloaded; ++i) {
    uint32_t word = 0;
    const size_t at = 4 * static_cast<size_t>(kernel.preload_offset + i);
    if (at + 4 <= arguments.size()) std::memcpy(&word, arguments.data() + at, 4);
    push(word, 1);
  }
  const uint64_t ids[3] = {block % launch.grid[0], block / launch.grid[0] % launch.grid[1],
                           block / launch.grid[0] / launch.grid[1]};
  for (size_t i = 0; i < 3; ++i) {
    if (kernel.workgroup_id[i]) push(ids[i], 1);
  }
  if (kernel.workgroup_info) push(0, 1);
  const uint32_t threads = launch.block[0] * launch.block[1] * launch.block[2];
  uint64_t exec = 0;
  for (uint32_t l = 0; l < kLanes; ++l) {
    const uint32_t thread = index * kLanes + l;
    if (thread < threads) exec |= 1ull << l;
    // Packed into one register on this family, whichever of them the kernel asks for.
    const uint32_t x = thread % launch.block[0];
    const uint32_t y = thread / launch.block[0] % launch.block[1];
    const uint32_t z = thread / launch.block[0] / launch.block[1];
    w->v[0][l] =
        x | (kernel.work_item_ids > 0 ? y << 10 : 0) | (kernel.work_item_ids > 1 ? z << 20 : 0);
  }
  w->SetPair(kExec, exec);
}

void CheckInFlight(Machine& m, Wave& w, const Decoded& d) {
  for (const std::vector<Registers>* list : {&d.vector_reads, &d.vector_writes}) {
    for (const Registers& r : *list) {
      for (uint16_t i = 0; i < r.count; ++i) {
        // A load may follow another of its kind to the same register: they arrive in order.
        const bool written = list == &d.vector_writes;
        const bool memory =
            w.memory_in_flight[r.first + i] > 0 && !(written && d.pipe == Pipe::kMemory);
        const bool lds = w.lds_in_flight[r.first + i] > 0 && !(written && d.pipe == Pipe::kLds);
        if (!memory && !lds) continue;
        const bool accumulator = r.first >= kAccumulators;
        m.Find(w,
               absl::StrCat(list == &d.vector_reads ? "reads " : "writes ", accumulator ? "a" : "v",
                            r.first + i - (accumulator ? kAccumulators : 0),
                            " while a load is on its way to it: no s_waitcnt has covered it"));
        return;
      }
    }
  }
  for (const std::vector<Registers>* list : {&d.scalar_reads, &d.scalar_writes}) {
    for (const Registers& r : *list) {
      for (uint16_t i = 0; i < r.count; ++i) {
        if (w.scalar_in_flight[r.first + i] == 0) continue;
        m.Find(w, absl::StrCat(list == &d.scalar_reads ? "reads s" : "writes s", r.first + i,
                               " while a load is on its way to it: no s_waitcnt has covered it"));
        return;
      }
    }
  }
}

// Until the next barrier or the end. False when time is up.
bool RunWave(Machine& m, Wave& w, const std::vector<Decoded>& code, absl::Time deadline) {
  uint64_t until_look = 1 << 16;
  while (w.state == Wave::State::kRunning && !m.stop) {
    const Decoded& d = code[w.pc++];
    m.current = &d;
    ++m.instructions;
    ++w.step;
    CheckInFlight(m, w, d);
    CheckHazards(m, w, d);
    d.handler(m, w, d);
    if (w.pc >= code.size() && w.state == Wave::State::kRunning)
      m.Fail(w, "runs past the end of the program");
    if (--until_look == 0) {
      until_look = 1 << 16;
      if (absl::Now() > deadline) return false;
    }
  }
  return true;
}

}  // namespace

void Machine::Find(const Wave& wave, absl::string_view text) {
  const std::string line =
      absl::StrCat(absl::Hex(current->address), " (", current->text, ") ", text);
  const auto [it, inserted] = findings.emplace(line, 0);
  if (inserted) order.push_back(line);
  if (++it->second == 1) {
    // Named by the first wave that did it.
    order.back() = absl::StrCat("wave ", wave.index, " at ", line);
  }
}

void Machine::Fail(const Wave& wave, absl::string_view text) {
  Find(wave, text);
  stop = true;
}

absl::StatusOr<std::unique_ptr<ObjectProgram>> ObjectProgram::Load(const ObjectSource& source) {
  absl::StatusOr<KernelObject> kernel = ReadKernelObject(source.bytes, source.entry);
  if (!kernel.ok()) return kernel.status();
  if (absl::Status s = CheckModel(*kernel); !s.ok()) return s;
  std::string listing = source.listing;
  if (listing.empty()) {
    absl::StatusOr<std::string> text = Disassemble(source.bytes);
    if (!text.ok()) return text.status();
    listing = *std::move(text);
  }
  std::unique_ptr<ObjectProgram> program(new ObjectProgram());
  program->kernel_ = *std::move(kernel);
  const Handlers handlers = AllHandlers();
  const std::vector<Instruction> instructions = ParseListing(listing);
  std::map<uint64_t, size_t> at;
  for (size_t i = 0; i < instructions.size(); ++i) at[instructions[i].address] = i;
  bool behind_end = false;
  for (const Instruction& instruction : instructions) {
    absl::StatusOr<Decoded> d = Decode(instruction);
    const auto handler = d.ok() ? handlers.find(d->name) : handlers.end();
    // What lies behind the program's end is padding, unless something branches there.
    if (!d.ok() && !behind_end) return d.status();
    Decoded decoded = d.ok() ? *std::move(d) : Decoded();
    decoded.handler = [](Machine& m, Wave& w, const Decoded&) {
      m.Fail(w, "is an instruction that is not modelled");
    };
    if (handler != handlers.end()) {
      decoded.handler = handler->second;
    } else if (!behind_end) {
      return absl::UnimplementedError(absl::StrCat("play the code object: ", decoded.text, " at ",
                                                   absl::Hex(instruction.address),
                                                   " is not modelled"));
    }
    const bool saturates = absl::StrContains(decoded.name, "_u32");
    if (decoded.clamp && !saturates) {
      return absl::UnimplementedError(
          absl::StrCat("play the code object: clamp in ", decoded.text, " is not modelled"));
    }
    if (decoded.pipe == Pipe::kMatrix)
      decoded.passes = MatrixPasses(decoded.name, ChipOf(program->kernel_.architecture));
    if (absl::Status s = CheckRegisters(program->kernel_, decoded); !s.ok() && !behind_end)
      return s;
    if (absl::StartsWith(decoded.name, "s_cbranch") || decoded.name == "s_branch") {
      const int64_t relative = static_cast<int16_t>(decoded.immediate);
      const auto target = at.find(decoded.address + 4 + static_cast<uint64_t>(4 * relative));
      if (target == at.end() && !behind_end) {
        return absl::InvalidArgumentError(
            absl::StrCat("play the code object: ", decoded.text, " leads nowhere"));
      }
      if (target != at.end()) decoded.target = target->second;
      behind_end = false;
    } else if (decoded.name == "s_endpgm") {
      behind_end = true;
    } else if (behind_end && decoded.name != "s_nop" && decoded.name != "s_code_end") {
      behind_end = false;
    }
    program->code_.push_back(std::move(decoded));
  }
  const auto first = at.find(program->kernel_.entry);
  if (first == at.end()) {
    return absl::InvalidArgumentError("play the code object: its kernel has no instructions");
  }
  program->first_ = first->second;
  return program;
}

absl::StatusOr<EmulatorReport> ObjectProgram::Run(const EmulatorLaunch& launch,
                                                  const ObjectOptions& options) const {
  const absl::StatusOr<std::string> arguments = ArgumentBlock(kernel_, launch);
  if (!arguments.ok()) return arguments.status();
  const std::string packet = DispatchPacket(launch);
  const uint32_t threads = launch.block[0] * launch.block[1] * launch.block[2];
  const size_t lds_bytes = kernel_.lds_bytes + launch.shared_bytes;
  if (threads == 0 || threads > 1024 ||
      static_cast<int64_t>(lds_bytes) > MostLds(kernel_.architecture)) {
    return absl::InvalidArgumentError(absl::StrCat("play the code object: a block of ", threads,
                                                   " threads and ", lds_bytes,
                                                   " bytes of LDS cannot be launched"));
  }
  const size_t waves = (threads + kLanes - 1) / kLanes;
  Machine m;
  m.architecture = kernel_.architecture;
  m.chip = ChipOf(kernel_.architecture);
  m.gfx940 = kernel_.architecture != "gfx90a";
  m.gfx950 = kernel_.architecture == "gfx950";
  m.flush_matrix = kernel_.architecture == "gfx90a";
  m.fnuz = kernel_.architecture == "gfx942";
  m.drop_lds_loads = options.drop_lds_loads;
  const auto region = [&](const std::string& name, const void* data, size_t bytes, bool writable) {
    const auto begin = reinterpret_cast<uint64_t>(data);
    if (bytes > 0) m.regions.push_back({begin, begin + bytes, writable, name});
  };
  region("the arguments", arguments->data(), arguments->size(), false);
  region("the dispatch packet", packet.data(), packet.size(), false);
  for (const EmulatorArgument& argument : launch.arguments) {
    region(argument.name, argument.data, argument.bytes, argument.writable);
  }
  emulator::LdsShadow shadow(lds_bytes, waves);
  m.shadow = &shadow;
  m.scratch_bytes = kernel_.scratch_bytes;
  m.waves.resize(waves);

  EmulatorReport report;
  std::vector<uint64_t> blocks = launch.blocks;
  if (blocks.empty()) {
    const uint64_t total = uint64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
    for (uint64_t b = 0; b < total; ++b) blocks.push_back(b);
  }
  uint64_t done = 0;
  for (const uint64_t block : blocks) {
    shadow.Reset();
    // Whatever an earlier block left.
    m.lds.assign(lds_bytes, 0xff);
    for (size_t i = 0; i < waves; ++i) {
      StartWave(kernel_, launch, block, static_cast<uint16_t>(i), *arguments, packet, first_,
                &m.waves[i]);
      m.waves[i].scratch.assign(size_t{m.scratch_bytes} * kLanes, 0xff);
    }
    const absl::Time deadline = absl::Now() + launch.block_limit;
    bool in_time = true;
    for (bool running = true; running && in_time && !m.stop;) {
      for (size_t i = 0; i < waves && in_time; ++i) {
        in_time = RunWave(m, m.waves[options.reverse_waves ? waves - 1 - i : i], code_, deadline);
      }
      running = false;
      for (Wave& w : m.waves) {
        if (w.state != Wave::State::kAtBarrier) continue;
        w.state = Wave::State::kRunning;
        running = true;
      }
      if (running) {
        shadow.Barrier();
        ++report.barriers;
      }
    }
    if (!in_time)
      m.Fail(m.waves[0], absl::StrCat("is where block ", block, " was given up: it does not end"));
    if (m.stop || m.order.size() >= launch.max_findings) break;
    if (launch.progress) launch.progress(++done, blocks.size());
  }
  for (const std::string& text : m.order) {
    if (report.findings.size() < launch.max_findings) report.findings.push_back({text, ""});
  }
  report.matrix_operations = m.matrix_operations;
  report.wave_operations = m.instructions;
  return report;
}

}  // namespace whet::isa
