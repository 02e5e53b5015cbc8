// One launch in execution: lanes as fibers, waves in lockstep at wave operations, blocks at barriers. Internal to the emulator: see
// block_machine.h for the way in.
#pragma once

#include <ucontext.h>

#include <csignal>
#include <cstdint>
#include <deque>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/emulate/block_machine.h"
#include "src/emulate/hooks.h"
#include "src/emulate/lds_memory.h"
#include "src/emulate/lds_shadow.h"
#include "src/emulate/watchdog.h"
#include "src/emulate/wave_program.h"

namespace whet::emulator {

inline constexpr size_t kStackBytes = 256 * 1024;

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
  static void OnExpiry(void* machine, const void* address);

  void RunBlock(uint64_t block);
  void RunLane(Wave* wave, Lane* lane);
  // Back to the scheduler, for good if the block has been given up.
  void Leave(Lane* lane);
  void FindUnfinished();
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
  // Shared with the watchdog's signal handler. In the kernel means: in code that holds nothing of ours, so that it can be left anywhere.
  volatile std::sig_atomic_t in_kernel_ = 0;
  volatile std::sig_atomic_t expired_ = 0;
  const void* expired_at_ = nullptr;
  Watchdog watchdog_{&Machine::OnExpiry, this};
};

}  // namespace whet::emulator
