#include "src/emulate/block_machine.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "src/emulate/machine.h"
#include "src/emulate/wave_ops.h"

namespace whet::emulator {
namespace {

// The machine of this thread: fibers and the kernel's hooks have no other way to find it.
thread_local Machine* current_machine = nullptr;

size_t Threads(const EmulatorLaunch& launch) {
  return size_t{launch.block[0]} * launch.block[1] * launch.block[2];
}

size_t WaveCount(const MachineProgram& program, const EmulatorLaunch& launch) {
  const auto size = static_cast<size_t>(program.wave_size);
  return (Threads(launch) + size - 1) / size;
}

}  // namespace

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

void Machine::OnAccess(const void* address, unsigned long bytes, int write, void* site) {
  Machine* const machine = current_machine;
  machine->in_kernel_ = 0;
  machine->Access(address, bytes, write != 0, site);
  if (machine->expired_ != 0) {
    machine->expired_at_ = site;
    machine->stop_ = true;
  }
  // The access itself would fault, or there is no end to them: the lane does not come back.
  if (machine->stop_) machine->Leave(machine->lane_);
  machine->in_kernel_ = 1;
}

void Machine::OnWave(WhetWaveOp* operation, void* site) {
  Machine* const machine = current_machine;
  machine->in_kernel_ = 0;
  Lane* const lane = machine->lane_;
  lane->operation = operation;
  lane->site = site;
  lane->state = LaneState::kAtOperation;
  machine->Leave(lane);
}

void Machine::LaneMain() {
  Machine* const machine = current_machine;
  machine->in_kernel_ = 1;
  machine->program_.entry(machine->arguments_.data());
  machine->in_kernel_ = 0;
  machine->lane_->state = LaneState::kExited;
  machine->Leave(machine->lane_);
}

void Machine::Leave(Lane* lane) {
  swapcontext(&lane->context, &scheduler_);
  in_kernel_ = 1;
}

// A signal handler.
void Machine::OnExpiry(void* machine_pointer, const void* address) {
  auto* const machine = static_cast<Machine*>(machine_pointer);
  // A lane that calls the emulator sees this at its next call, whose place in the source is known. One that has not come a signal later
  // computes without end.
  const bool first = machine->expired_ == 0;
  machine->expired_ = 1;
  if (first || machine->in_kernel_ == 0) return;
  machine->in_kernel_ = 0;
  machine->expired_at_ = address;
  machine->stop_ = true;
  setcontext(&machine->scheduler_);
}

// Says where the lanes of a block are that did not come to its end.
void Machine::FindUnfinished() {
  std::string waves;
  for (const Wave& wave : waves_) {
    int running = 0, waiting = 0, ended = 0;
    for (const Lane& lane : wave.lanes) {
      running += lane.state == LaneState::kRunnable ? 1 : 0;
      waiting += lane.state == LaneState::kAtOperation ? 1 : 0;
      ended += lane.state == LaneState::kExited ? 1 : 0;
    }
    absl::StrAppend(&waves, "; wave ", WaveIndex(wave), ": ");
    if (wave.at_barrier) {
      absl::StrAppend(&waves, "at its barrier ", wave.barriers + 1);
      continue;
    }
    absl::StrAppend(&waves, running, " lanes running, ", waiting, " waiting for the others, ",
                    ended, " ended");
  }
  Find(absl::StrCat("does not end: the block was given up after ",
                    absl::FormatDuration(launch_.block_limit), waves),
       *wave_, static_cast<int>(lane_->view.lane),
       expired_at_ != nullptr ? expired_at_ : lane_->site);
}

void Machine::RunLane(Wave* wave, Lane* lane) {
  wave_ = wave;
  lane_ = lane;
  *program_.lane = &lane->view;
  swapcontext(&scheduler_, &lane->context);
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
      if (expired_ != 0) {
        FindUnfinished();
        return false;
      }
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
  watchdog_.Start(launch_.block_limit);
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
  watchdog_.Start(absl::InfiniteDuration());
  current_machine = nullptr;
  return std::move(findings_);
}

std::vector<RawFinding> RunBlocks(const MachineProgram& program, const EmulatorLaunch& launch,
                                  EmulatorReport* report) {
  return Machine(program, launch, report).Run();
}

}  // namespace whet::emulator
