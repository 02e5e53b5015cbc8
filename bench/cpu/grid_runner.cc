// Runs and times the grid of a CPU kernel: what the Python benches beside it load with ctypes.
//
//   g++ -O2 -std=c++20 -shared -fPIC -pthread grid_runner.cc -o grid_runner.so
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include <atomic>
#include <thread>
#include <vector>

#include "../../kernel_templates/common/cpu_block.h"

namespace {

using Entry = void (*)(const WhetCpuBlock*, void* const*);

double Seconds(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

void RunBlocks(Entry entry, const uint32_t* grid, void* const* args, void* shared,
               std::atomic<uint64_t>* next) {
  const uint64_t blocks = uint64_t{grid[0]} * grid[1] * grid[2];
  for (uint64_t i = next->fetch_add(1); i < blocks; i = next->fetch_add(1)) {
    WhetCpuBlock block = {};
    block.index[0] = static_cast<uint32_t>(i % grid[0]);
    block.index[1] = static_cast<uint32_t>(i / grid[0] % grid[1]);
    block.index[2] = static_cast<uint32_t>(i / grid[0] / grid[1]);
    for (int d = 0; d < 3; ++d) block.grid[d] = grid[d];
    block.shared = shared;
    entry(&block, args);
  }
}

}  // namespace

// Runs the grid `repeats` times on `threads` threads and writes the seconds of each run. With one
// thread these are seconds of CPU time, which other processes on the machine disturb less than wall
// time. The other threads wait by spinning, as the threads of the peers do.
extern "C" void RunGrid(Entry entry, const uint32_t* grid, void* const* args, int64_t shared_bytes,
                        int threads, int repeats, double* seconds) {
  std::vector<void*> shared(static_cast<size_t>(threads));
  const size_t bytes = static_cast<size_t>((shared_bytes + 127) / 64 * 64);
  for (void*& p : shared) p = aligned_alloc(64, bytes);
  std::atomic<uint64_t> next{0};
  std::atomic<int> round{0};
  std::atomic<int> busy{0};
  std::atomic<int> started{0};
  std::vector<std::thread> helpers;
  for (int t = 1; t < threads; ++t) {
    helpers.emplace_back([&, t] {
      started.fetch_add(1);
      for (int seen = 0; seen < repeats; ++seen) {
        while (round.load(std::memory_order_acquire) == seen) {
        }
        RunBlocks(entry, grid, args, shared[static_cast<size_t>(t)], &next);
        busy.fetch_sub(1, std::memory_order_release);
      }
    });
  }
  while (started.load() != threads - 1) {
  }
  const clockid_t clock = threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
  for (int i = 0; i < repeats; ++i) {
    next.store(0);
    busy.store(threads - 1);
    const double start = Seconds(clock);
    round.fetch_add(1, std::memory_order_release);
    RunBlocks(entry, grid, args, shared[0], &next);
    while (busy.load(std::memory_order_acquire) != 0) {
    }
    seconds[i] = Seconds(clock) - start;
  }
  for (std::thread& helper : helpers) helper.join();
  for (void* p : shared) free(p);
}
