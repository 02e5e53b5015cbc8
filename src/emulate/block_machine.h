// Executes the blocks of one launch: lanes as fibers, waves in lockstep at wave operations, blocks at barriers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/emulate/hooks.h"
#include "src/emulate/wave_program.h"

namespace whet::emulator {

// A finding before its address is turned into a line.
struct RawFinding {
  std::string text;
  const void* site;
};

struct MachineProgram {
  void (*entry)(void* const* arguments);
  const WhetHooks** hooks;  // the kernel's pointers, set by the machine
  WhetLane** lane;
  const char*
      image_begin;  // the loaded library: its constants and static variables may be read and written freely
  const char* image_end;
  int wave_size;
};

// Runs the launch in the calling thread. Fills the counters of `report`; findings come back raw.
std::vector<RawFinding> RunBlocks(const MachineProgram& program, const EmulatorLaunch& launch,
                                  EmulatorReport* report);

}  // namespace whet::emulator
