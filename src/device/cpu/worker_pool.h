// Runs the blocks of a launch on a pool of threads, of which the launching thread is one.
//
//   WorkerPool pool(/*workers=*/AvailableProcessors());
//   pool.Run({.function = f, .params = params, .grid = {64, 8, 1}, .shared_bytes = 4096});
//
// States of a slot (one word, so that every transition is one atomic step):
//
//   free --claim--> claimed --publish--> open --close--> closed --last helper leaves--> free
//
// Invariants: (1) only the thread that claimed a slot writes its job, and only between claim and
// publish; (2) a helper reads the job only between a join (users + 1, possible in `open` alone) and
// its leave; (3) the launching thread frees a slot only when `users` is 0, so a job outlives every
// reader although it lives on the launcher's stack; (4) a launch never waits for a helper that has
// not joined: helpers that are parked, or descheduled by another program, cost parallelism and not
// time.
//
// Helpers that find no work spin for some microseconds, so that back-to-back launches need no
// system call, and then sleep.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "src/device/cpu/cpu_block.h"
#include "src/device/cpu/scratch_memory.h"

namespace whet {

// One launch. `grid` is positive, its product fits 63 bits.
struct BlockJob {
  CpuKernelFunction function = nullptr;
  void* const* params = nullptr;
  uint32_t grid[3] = {1, 1, 1};
  int64_t shared_bytes = 0;
};

class WorkerPool {
 public:
  // `workers` >= 1 counts the launching thread: workers - 1 threads are started.
  explicit WorkerPool(int workers);
  // No Run may be in progress.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int workers() const { return static_cast<int>(helpers_.size()) + 1; }

  // Runs every block once and returns when all have returned. Blocks start in grid order, x
  // fastest. Several threads may run jobs at once; they share the helpers. ResourceExhausted, with
  // no block run, when the shared memory cannot be allocated.
  absl::Status Run(const BlockJob& job);

 private:
  static constexpr uint32_t kClaimed = 1u << 31;
  static constexpr uint32_t kOpen = 1u << 30;
  static constexpr uint32_t kUsers = kOpen - 1;
  static constexpr int kSlots = 16;

  struct alignas(128) Slot {
    std::atomic<uint32_t> state{0};
    BlockJob job;
    int64_t total = 0;
    int64_t chunk = 1;
    ScratchMemory scratch;                      // of the launching thread
    alignas(128) std::atomic<int64_t> next{0};  // apart: every worker writes it
  };

  Slot* ClaimSlot();
  static void RunAll(const BlockJob& job, int64_t total, void* shared);
  // Takes blocks until there are none; whether there was any.
  static bool RunShare(Slot& slot, void* shared);
  // Joins open slots and works on them; whether any block was left to run.
  bool Help(ScratchMemory& scratch);
  void HelperLoop();
  void WakeHelpers(int64_t blocks);

  std::array<Slot, kSlots> slots_;
  alignas(128) std::atomic<uint32_t> epoch_{0};  // changes whenever there is new work or the end
  std::atomic<bool> stop_{false};
  std::vector<std::thread> helpers_;
};

}  // namespace whet
