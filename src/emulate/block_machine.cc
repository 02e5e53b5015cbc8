#include "src/emulate/block_machine.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <set>

#include "absl/strings/str_cat.h"
#include "src/emulate/lds_shadow.h"
#include "src/emulate/wave_ops.h"

namespace whet::emulator {
namespace {

constexpr size_t kStackBytes = 256 * 1024;

enum class LaneState { kRunnable, kAtOperation, kExited };

struct Lane {
  WhetLane view = {};
  ucontext_t context = {};
  char* stack = nullptr;
  LaneState state = LaneState::kExited;
  WhetWaveOp* operation = nullptr;
  const void* site = nullptr;
};

struct AsyncLoad {
  size_t lds;  // of this lane's bytes
  const char* from;
  size_t bytes;
};

struct Wave {
  std::vector<Lane> lanes;
  uint32_t step = 0;
  uint64_t barriers = 0;
  bool at_barrier = false;
  std::deque<std::vector<AsyncLoad>> loads;  // oldest first, one entry per instruction
};

// LDS between two stretches of address space that nothing else uses, so that an access beside it is known for what it is.
class LdsMemory {
 public:
  explicit LdsMemory(size_t bytes) : bytes_(bytes) {
    void* const at = mmap(nullptr, bytes + 2 * kMargin, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) std::abort();
    data_ = static_cast<unsigned char*>(at) + kMargin;
  }
  ~LdsMemory() { munmap(data_ - kMargin, bytes_ + 2 * kMargin); }
  LdsMemory(const LdsMemory&) = delete;
  LdsMemory& operator=(const LdsMemory&) = delete;
  unsigned char* data() { return data_; }
  size_t size() const { return bytes_; }
  bool IsBeside(const char* at) const {
    const char* const begin = reinterpret_cast<const char*>(data_);
    return at >= begin - kMargin && at < begin + bytes_ + kMargin;
  }

 private:
  static constexpr size_t kMargin = size_t{1} << 20;
  size_t bytes_;
  unsigned char* data_;
};

class Machine {
 public:
  Machine(const MachineProgram& program, const EmulatorLaunch& launch, EmulatorReport* report);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  std::vector<RawFinding> Run();

 private:
  static void OnAccess(const void* address, unsigned long bytes, int write, void* site);
  static void OnWave(WhetWaveOp* operation, void* site);
  static void LaneMain();

  void RunBlock(uint64_t block);
  void RunLane(Wave* wave, Lane* lane);
  // Runs one wave to its next barrier or its end. False: the block cannot go on.
  bool RunWave(Wave* wave);
  bool Execute(Wave* wave);
  void Issue(Wave* wave, const WhetWaveOp& first);
  void Land(Wave* wave, size_t keep);
  void Access(const void* address, size_t bytes, bool write, const void* site);
  bool InsideBuffers(const void* address, size_t bytes, bool write, std::string* why) const;
  void Find(const std::string& what, const Wave& wave, int lane, const void* site);
  size_t WaveIndex(const Wave& wave) const { return static_cast<size_t>(&wave - waves_.data()); }

  const MachineProgram program_;
  const EmulatorLaunch& launch_;
  EmulatorReport* const report_;
  LdsMemory lds_;
  LdsShadow shadow_;
  std::vector<Wave> waves_;
  std::vector<const void*> pointers_;
  std::vector<void*> arguments_;
  std::vector<RawFinding> findings_;
  std::set<std::pair<const void*, std::string>> known_;
  ucontext_t scheduler_ = {};
  Wave* wave_ = nullptr;  // running now
  Lane* lane_ = nullptr;
  uint64_t block_ = 0;
  bool stop_ = false;
};

// The machine of this thread: fibers and the kernel's hooks have no other way to find it.
thread_local Machine* current_machine = nullptr;

size_t Threads(const EmulatorLaunch& launch) {
  return size_t{launch.block[0]} * launch.block[1] * launch.block[2];
}

size_t WaveCount(const MachineProgram& program, const EmulatorLaunch& launch) {
  const auto size = static_cast<size_t>(program.wave_size);
  return (Threads(launch) + size - 1) / size;
}

Machine::Machine(const MachineProgram& program, const EmulatorLaunch& launch,
                 EmulatorReport* report)
    : program_(program),
      launch_(launch),
      report_(report),
      lds_(launch.shared_bytes),
      shadow_(launch.shared_bytes, WaveCount(program, launch)) {
  waves_.resize(WaveCount(program, launch));
  size_t left = Threads(launch);
  for (Wave& wave : waves_) {
    wave.lanes.resize(std::min<size_t>(left, static_cast<size_t>(program.wave_size)));
    left -= wave.lanes.size();
    for (Lane& lane : wave.lanes) {
      void* const stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      lane.stack = stack == MAP_FAILED ? nullptr : static_cast<char*>(stack);
    }
  }
  pointers_.reserve(launch.arguments.size());
  for (const EmulatorArgument& argument : launch.arguments) {
    if (argument.scalar.empty()) {
      pointers_.push_back(argument.data);
      arguments_.push_back(&pointers_.back());
    } else {
      arguments_.push_back(const_cast<char*>(argument.scalar.data()));
    }
  }
}

Machine::~Machine() {
  for (Wave& wave : waves_) {
    for (Lane& lane : wave.lanes) {
      if (lane.stack != nullptr) munmap(lane.stack, kStackBytes);
    }
  }
}

void Machine::Find(const std::string& what, const Wave& wave, int lane, const void* site) {
  if (!known_.insert({site, what.substr(0, 40)}).second) return;
  const std::string who = lane < 0 ? absl::StrCat("wave ", WaveIndex(wave))
                                   : absl::StrCat("lane ", lane, " of wave ", WaveIndex(wave));
  findings_.push_back({absl::StrCat(who, " (block ", block_, ") ", what), site});
  if (findings_.size() >= launch_.max_findings) stop_ = true;
}

bool Machine::InsideBuffers(const void* address, size_t bytes, bool write, std::string* why) const {
  const char* const at = static_cast<const char*>(address);
  const EmulatorArgument* nearest = nullptr;
  for (const EmulatorArgument& argument : launch_.arguments) {
    if (argument.data == nullptr) continue;
    const char* const begin = static_cast<const char*>(argument.data);
    if (at >= begin && at + bytes <= begin + argument.bytes) {
      if (!write || argument.writable) return true;
      *why = absl::StrCat("writes ", bytes, " bytes to input ", argument.name);
      return false;
    }
    if (nearest == nullptr ||
        std::abs(at - begin) < std::abs(at - static_cast<const char*>(nearest->data)))
      nearest = &argument;
  }
  *why = absl::StrCat(write ? "writes " : "reads ", bytes, " bytes outside every buffer");
  if (nearest != nullptr) {
    absl::StrAppend(why, ", at ", at - static_cast<const char*>(nearest->data), " of ",
                    nearest->bytes, " bytes of ", nearest->name);
  }
  return false;
}

void Machine::Access(const void* address, size_t bytes, bool write, const void* site) {
  const char* const at = static_cast<const char*>(address);
  const char* const lds = reinterpret_cast<const char*>(lds_.data());
  const char* const view = reinterpret_cast<const char*>(&lane_->view);
  const auto lane = static_cast<int>(lane_->view.lane);
  if (at >= lds && at < lds + lds_.size()) {
    const auto offset = static_cast<size_t>(at - lds);
    if (offset + bytes > lds_.size()) {
      Find(absl::StrCat(write ? "writes" : "reads", " outside LDS, at byte ", offset, " of ",
                        lds_.size()),
           *wave_, lane, site);
      stop_ = true;
    } else {
      const LdsAccessor who{static_cast<uint16_t>(WaveIndex(*wave_)), static_cast<uint16_t>(lane),
                            wave_->step};
      const char* const fault =
          write ? shadow_.Write(offset, bytes, who) : shadow_.Read(offset, bytes, who);
      if (fault != nullptr) Find(absl::StrCat(fault, ", at byte ", offset), *wave_, lane, site);
    }
  } else if ((at >= lane_->stack && at < lane_->stack + kStackBytes) ||
             (at >= view && at < view + sizeof(WhetLane))) {
    return;
  } else if (at >= program_.image_begin && at < program_.image_end) {
    return;
  } else {
    std::string why;
    if (!InsideBuffers(address, bytes, write, &why)) {
      if (lds_.IsBeside(at)) {
        why = absl::StrCat(write ? "writes" : "reads", " outside LDS, at byte ", at - lds, " of ",
                           lds_.size());
      }
      Find(why, *wave_, lane, site);
      stop_ = true;
    }
  }
  // The access itself would fault, so the lane does not come back.
  if (stop_) swapcontext(&lane_->context, &scheduler_);
}

void Machine::OnAccess(const void* address, unsigned long bytes, int write, void* site) {
  current_machine->Access(address, bytes, write != 0, site);
}

void Machine::OnWave(WhetWaveOp* operation, void* site) {
  Machine* const machine = current_machine;
  Lane* const lane = machine->lane_;
  lane->operation = operation;
  lane->site = site;
  lane->state = LaneState::kAtOperation;
  swapcontext(&lane->context, &machine->scheduler_);
}

void Machine::LaneMain() {
  Machine* const machine = current_machine;
  machine->program_.entry(machine->arguments_.data());
  machine->lane_->state = LaneState::kExited;
  swapcontext(&machine->lane_->context, &machine->scheduler_);
}

void Machine::RunLane(Wave* wave, Lane* lane) {
  wave_ = wave;
  lane_ = lane;
  *program_.lane = &lane->view;
  swapcontext(&scheduler_, &lane->context);
}

void Machine::Land(Wave* wave, size_t keep) {
  while (wave->loads.size() > keep) {
    for (size_t lane = 0; lane < wave->loads.front().size(); ++lane) {
      const AsyncLoad& load = wave->loads.front()[lane];
      if (load.bytes == 0) continue;
      if (load.from == nullptr) {
        std::memset(lds_.data() + load.lds, 0, load.bytes);
      } else {
        std::memcpy(lds_.data() + load.lds, load.from, load.bytes);
      }
      shadow_.Land(
          load.lds, load.bytes,
          {static_cast<uint16_t>(WaveIndex(*wave)), static_cast<uint16_t>(lane), wave->step});
    }
    wave->loads.pop_front();
  }
}

// The LDS address is the wave's (M0): the first lane's counts, and lane l's bytes lie l pieces behind it.
void Machine::Issue(Wave* wave, const WhetWaveOp& first) {
  const auto bytes = static_cast<size_t>(first.immediate[0]);
  std::vector<AsyncLoad> loads(wave->lanes.size());
  const char* const base = static_cast<const char*>(first.operand[1]);
  for (size_t i = 0; i < wave->lanes.size(); ++i) {
    Lane& lane = wave->lanes[i];
    if (lane.state != LaneState::kAtOperation) continue;
    const char* const to = base + i * bytes;
    const auto offset = to - reinterpret_cast<const char*>(lds_.data());
    std::string why;
    if (lane.operation->operand[1] != first.operand[1]) {
      Find("loads to LDS at an address that is not the same in all lanes of the wave", *wave,
           static_cast<int>(i), lane.site);
    }
    if (offset < 0 ||
        offset + static_cast<ptrdiff_t>(bytes) > static_cast<ptrdiff_t>(lds_.size()) ||
        offset % 4 != 0) {
      Find(absl::StrCat("loads to outside LDS, at byte ", offset, " of ", lds_.size()), *wave,
           static_cast<int>(i), lane.site);
      stop_ = true;
      return;
    }
    const char* const from = static_cast<const char*>(lane.operation->operand[0]);
    if (from != nullptr && !InsideBuffers(from, bytes, false, &why)) {
      Find(why, *wave, static_cast<int>(i), lane.site);
      stop_ = true;
      return;
    }
    const auto at = static_cast<size_t>(offset);
    const LdsAccessor who{static_cast<uint16_t>(WaveIndex(*wave)), static_cast<uint16_t>(i),
                          wave->step};
    if (const char* fault = shadow_.Issue(at, bytes, who)) {
      Find(absl::StrCat(fault, ", at byte ", at, " (asynchronous load)"), *wave,
           static_cast<int>(i), lane.site);
    }
    // What is there until the load lands is not zero by luck.
    std::memset(lds_.data() + at, 0xff, bytes);
    loads[i] = {at, from, bytes};
  }
  wave->loads.push_back(std::move(loads));
}

bool Machine::Execute(Wave* wave) {
  WaveOperands operands = {};
  Lane* first = nullptr;
  for (size_t i = 0; i < wave->lanes.size(); ++i) {
    Lane& lane = wave->lanes[i];
    if (lane.state != LaneState::kAtOperation) continue;
    if (first == nullptr) first = &lane;
    if (lane.operation->op != first->operation->op ||
        std::memcmp(lane.operation->immediate, first->operation->immediate,
                    sizeof(first->operation->immediate)) != 0) {
      Find("comes to another operation than the lanes before it: the wave has diverged", *wave,
           static_cast<int>(i), lane.site);
      return false;
    }
    operands[i] = lane.operation;
  }
  const WhetWaveOp& operation = *first->operation;
  ++wave->step;
  ++report_->wave_operations;
  switch (operation.op) {
    case kWhetBarrier:
      wave->at_barrier = true;
      return true;
    case kWhetFence:
      shadow_.Wait(WaveIndex(*wave));
      break;
    case kWhetWaitCount: {
      const auto immediate = static_cast<size_t>(operation.immediate[0]);
      Land(wave, (immediate & 15) | (immediate >> 14 & 3) << 4);
      if ((immediate >> 8 & 15) == 0) shadow_.Wait(WaveIndex(*wave));
      break;
    }
    case kWhetWaveBarrier:
      break;
    case kWhetAsyncToLds:
      Issue(wave, operation);
      break;
    case kWhetReadTranspose:
      for (Lane& lane : wave->lanes) {
        if (lane.state != LaneState::kAtOperation || stop_) continue;
        wave_ = wave;
        lane_ = &lane;
        const char* const at = static_cast<const char*>(lane.operation->operand[0]);
        const auto offset = at - reinterpret_cast<const char*>(lds_.data());
        const auto index = static_cast<int>(lane.view.lane);
        if (offset < 0 || offset + 8 > static_cast<ptrdiff_t>(lds_.size()) || offset % 8 != 0) {
          Find(
              absl::StrCat("reads outside LDS or unaligned, at byte ", offset, " of ", lds_.size()),
              *wave, index, lane.site);
          stop_ = true;
          return false;
        }
        const LdsAccessor who{static_cast<uint16_t>(WaveIndex(*wave)), static_cast<uint16_t>(index),
                              wave->step};
        if (const char* fault = shadow_.Read(static_cast<size_t>(offset), 8, who)) {
          Find(absl::StrCat(fault, ", at byte ", offset), *wave, index, lane.site);
        }
      }
      [[fallthrough]];
    default:
      if (operation.op == kWhetMfma || operation.op == kWhetSmfmac) ++report_->matrix_operations;
      if (!ExecuteWaveOp(operands)) {
        Find(absl::StrCat("uses an operation that the emulator does not have (", operation.op, ")"),
             *wave, -1, first->site);
        return false;
      }
  }
  for (Lane& lane : wave->lanes) {
    if (lane.state == LaneState::kAtOperation) lane.state = LaneState::kRunnable;
  }
  return !stop_;
}

bool Machine::RunWave(Wave* wave) {
  for (;;) {
    bool waiting = false;
    for (Lane& lane : wave->lanes) {
      if (lane.state == LaneState::kRunnable) RunLane(wave, &lane);
      if (stop_) return false;
      waiting |= lane.state == LaneState::kAtOperation;
    }
    if (!waiting) return true;
    if (!Execute(wave)) return false;
    if (wave->at_barrier) return true;
  }
}

void Machine::RunBlock(uint64_t block) {
  block_ = block;
  shadow_.Reset();
  std::memset(lds_.data(), 0xff, lds_.size());
  unsigned thread = 0;
  for (Wave& wave : waves_) {
    wave.step = 0;
    wave.barriers = 0;
    wave.at_barrier = false;
    wave.loads.clear();
    for (size_t i = 0; i < wave.lanes.size(); ++i, ++thread) {
      Lane& lane = wave.lanes[i];
      const auto x = launch_.block[0], y = launch_.block[1];
      lane.view = {{thread % x, thread / x % y, thread / x / y},
                   {static_cast<unsigned>(block % launch_.grid[0]),
                    static_cast<unsigned>(block / launch_.grid[0] % launch_.grid[1]),
                    static_cast<unsigned>(block / launch_.grid[0] / launch_.grid[1])},
                   static_cast<unsigned>(i),
                   lds_.data()};
      lane.state = LaneState::kRunnable;
      getcontext(&lane.context);
      lane.context.uc_stack.ss_sp = lane.stack;
      lane.context.uc_stack.ss_size = kStackBytes;
      lane.context.uc_link = &scheduler_;
      makecontext(&lane.context, &Machine::LaneMain, 0);
    }
  }
  for (;;) {
    bool waiting = false;
    for (Wave& wave : waves_) {
      if (!RunWave(&wave)) {
        stop_ = true;
        return;
      }
      waiting |= wave.at_barrier;
    }
    if (!waiting) break;
    // A wave that has ended does not hold the others up.
    shadow_.Barrier();
    ++report_->barriers;
    for (Wave& wave : waves_) {
      if (!wave.at_barrier) continue;
      wave.at_barrier = false;
      ++wave.barriers;
      for (Lane& lane : wave.lanes) {
        if (lane.state == LaneState::kAtOperation) lane.state = LaneState::kRunnable;
      }
    }
  }
  for (const Wave& wave : waves_) {
    if (wave.barriers != waves_[0].barriers) {
      Find(absl::StrCat("has passed ", wave.barriers, " barriers, wave 0 has passed ",
                        waves_[0].barriers),
           wave, -1, nullptr);
    }
    if (!wave.loads.empty()) Find("has ended with asynchronous loads in flight", wave, -1, nullptr);
  }
}

std::vector<RawFinding> Machine::Run() {
  const WhetHooks hooks = {&Machine::OnAccess, &Machine::OnWave};
  current_machine = this;
  *program_.hooks = &hooks;
  const uint64_t all = uint64_t{launch_.grid[0]} * launch_.grid[1] * launch_.grid[2];
  const uint64_t count = launch_.blocks.empty() ? all : launch_.blocks.size();
  for (uint64_t i = 0; i < count && !stop_; ++i) {
    RunBlock(launch_.blocks.empty() ? i : launch_.blocks[i]);
    if (launch_.progress) launch_.progress(i + 1, count);
  }
  current_machine = nullptr;
  return std::move(findings_);
}

}  // namespace

std::vector<RawFinding> RunBlocks(const MachineProgram& program, const EmulatorLaunch& launch,
                                  EmulatorReport* report) {
  return Machine(program, launch, report).Run();
}

}  // namespace whet::emulator
