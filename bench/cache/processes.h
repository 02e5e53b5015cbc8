// The questions that need many processes.
#pragma once

#include <string>

#include "cache/store.h"

namespace whet {

// Like a compiled kernel: half compressible, the same for the same seed.
std::string BenchObject(int seed, size_t bytes);
CodeEntry BenchEntry(int n, size_t object_bytes);

struct ColdStart {
  double wall_s = 0;
  double processor_s = 0;  // of all processes together
  int compiles = 0;
  bool right = false;
};
// `processes` processes at once want the same `kernels` kernels, each of which takes `compile_ms`
// of processor time to make. Without `locks` each builds what it does not find.
ColdStart RunColdStart(const std::string& directory, int processes, int kernels, int compile_ms,
                       bool locks);
// One process makes them with as many workers as it has processors.
double ParallelCompileSeconds(int kernels, int compile_ms);

struct KillCycles {
  int cycles = 0;
  int acknowledged = 0;
  int lost = 0;
  int failures = 0;  // damaged, set aside, wrong bytes, or a cache that could not be opened
};
// Two writers per cycle, killed by SIGKILL after a few acknowledged puts.
KillCycles RunKillCycles(const std::string& directory, int cycles);

}  // namespace whet
