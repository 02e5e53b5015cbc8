#include "src/device/cpu/worker_pool.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"

namespace whet {
namespace {

// How long an idle helper spins before it sleeps. A wake-up costs the launcher a system call of a
// few microseconds, so spinning pays only while launches follow each other closely.
constexpr std::chrono::microseconds kSpin(30);
// How long a launcher spins for the helpers' last blocks before it sleeps.
constexpr std::chrono::microseconds kWait(50);

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

// Spins until `done()` or for `limit`; the clock is read rarely, for it costs as much as a pause.
template <typename Done>
bool SpinFor(std::chrono::microseconds limit, Done done) {
  const auto end = std::chrono::steady_clock::now() + limit;
  for (;;) {
    for (int i = 0; i < 16; ++i) {
      if (done()) return true;
      Pause();
    }
    if (std::chrono::steady_clock::now() >= end) return false;
  }
}

// Walks the grid from block `begin`: one division at the start, then only additions.
class BlockCursor {
 public:
  BlockCursor(const BlockJob& job, void* shared) : block_{} {
    std::copy(job.grid, job.grid + 3, block_.grid);
    block_.shared = shared;
  }
  void MoveTo(int64_t begin) {
    block_.index[0] = static_cast<uint32_t>(begin % block_.grid[0]);
    begin /= block_.grid[0];
    block_.index[1] = static_cast<uint32_t>(begin % block_.grid[1]);
    block_.index[2] = static_cast<uint32_t>(begin / block_.grid[1]);
  }
  void Advance() {
    if (++block_.index[0] < block_.grid[0]) return;
    block_.index[0] = 0;
    if (++block_.index[1] < block_.grid[1]) return;
    block_.index[1] = 0;
    ++block_.index[2];
  }
  // A copy: a kernel must not be able to disturb the walk.
  CpuBlock block() const { return block_; }

 private:
  CpuBlock block_;
};

}  // namespace

WorkerPool::WorkerPool(int workers) {
  helpers_.reserve(static_cast<size_t>(std::max(0, workers - 1)));
  for (int i = 1; i < workers; ++i) helpers_.emplace_back([this] { HelperLoop(); });
}

WorkerPool::~WorkerPool() {
  stop_.store(true);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

WorkerPool::Slot* WorkerPool::ClaimSlot() {
  for (Slot& slot : slots_) {
    uint32_t free = 0;
    if (slot.state.load(std::memory_order_relaxed) == 0 &&
        slot.state.compare_exchange_strong(free, kClaimed, std::memory_order_acquire)) {
      return &slot;
    }
  }
  return nullptr;
}

void WorkerPool::RunAll(const BlockJob& job, int64_t total, void* shared) {
  BlockCursor cursor(job, shared);
  for (int64_t i = 0; i < total; ++i, cursor.Advance()) {
    const CpuBlock block = cursor.block();
    job.function(&block, job.params);
  }
}

bool WorkerPool::RunShare(Slot& slot, void* shared) {
  const BlockJob& job = slot.job;
  BlockCursor cursor(job, shared);
  for (bool any = false;; any = true) {
    const int64_t begin = slot.next.fetch_add(slot.chunk, std::memory_order_relaxed);
    if (begin >= slot.total) return any;
    const int64_t end = std::min(slot.total, begin + slot.chunk);
    cursor.MoveTo(begin);
    for (int64_t i = begin; i < end; ++i, cursor.Advance()) {
      const CpuBlock block = cursor.block();
      job.function(&block, job.params);
    }
  }
}

absl::Status WorkerPool::Run(const BlockJob& job) {
  const int64_t total = int64_t{job.grid[0]} * job.grid[1] * job.grid[2];
  const bool alone = total == 1 || helpers_.empty();
  if (alone && job.shared_bytes == 0) {
    RunAll(job, total, nullptr);
    return absl::OkStatus();
  }

  Slot* slot = ClaimSlot();
  // More launches at once than slots: this one does without helpers and keeps its own memory.
  ScratchMemory own;
  void* shared = (slot != nullptr ? slot->scratch : own).AtLeast(job.shared_bytes);
  if (shared == nullptr && job.shared_bytes > 0) {
    if (slot != nullptr) slot->state.store(0, std::memory_order_release);
    return absl::ResourceExhaustedError(absl::StrCat("cannot launch on the cpu: no memory for ",
                                                     job.shared_bytes, " bytes of shared memory"));
  }
  if (slot == nullptr || alone) {
    RunAll(job, total, shared);
    if (slot != nullptr) slot->state.store(0, std::memory_order_release);
    return absl::OkStatus();
  }

  slot->job = job;
  slot->total = total;
  // Tiny blocks in great numbers would fight for the counter; 256 chunks per worker keep the tail
  // even and the order nearly exact.
  slot->chunk = std::clamp<int64_t>(total / (int64_t{256} * workers()), 1, 64);
  slot->next.store(0, std::memory_order_relaxed);
  slot->state.store(kClaimed | kOpen, std::memory_order_release);
  WakeHelpers(total);

  RunShare(*slot, shared);

  slot->state.fetch_and(~kOpen, std::memory_order_acq_rel);
  auto helpers_left = [slot] {
    return (slot->state.load(std::memory_order_acquire) & kUsers) == 0;
  };
  if (!helpers_left() && !SpinFor(kWait, helpers_left)) {
    for (uint32_t state = slot->state.load(std::memory_order_acquire); (state & kUsers) != 0;
         state = slot->state.load(std::memory_order_acquire)) {
      slot->state.wait(state, std::memory_order_acquire);
    }
  }
  slot->state.store(0, std::memory_order_release);
  return absl::OkStatus();
}

void WorkerPool::WakeHelpers(int64_t blocks) {
  epoch_.fetch_add(1, std::memory_order_seq_cst);
  // No system call when nobody sleeps.
  const int64_t wanted = blocks - 1;
  if (wanted >= static_cast<int64_t>(helpers_.size())) {
    epoch_.notify_all();
  } else {
    for (int64_t i = 0; i < wanted; ++i) epoch_.notify_one();
  }
}

bool WorkerPool::Help(ScratchMemory& scratch) {
  bool helped = false;
  for (Slot& slot : slots_) {
    uint32_t state = slot.state.load(std::memory_order_relaxed);
    bool joined = false;
    while ((state & kOpen) != 0 && !joined) {
      joined = slot.state.compare_exchange_weak(state, state + 1, std::memory_order_acquire,
                                                std::memory_order_relaxed);
    }
    if (!joined) continue;
    void* shared = scratch.AtLeast(slot.job.shared_bytes);
    // Without memory of its own this helper leaves the blocks to the others.
    if (shared != nullptr || slot.job.shared_bytes == 0) {
      helped |= RunShare(slot, shared);
    }
    const uint32_t before = slot.state.fetch_sub(1, std::memory_order_acq_rel);
    if ((before & kUsers) == 1) slot.state.notify_all();
  }
  return helped;
}

void WorkerPool::HelperLoop() {
  ScratchMemory scratch;
  for (;;) {
    // Read before looking for work: work that comes after the look has changed it.
    const uint32_t seen = epoch_.load(std::memory_order_seq_cst);
    if (stop_.load()) return;
    if (Help(scratch)) continue;
    const bool changed =
        SpinFor(kSpin, [&] { return epoch_.load(std::memory_order_relaxed) != seen; });
    if (!changed) epoch_.wait(seen, std::memory_order_seq_cst);
  }
}

}  // namespace whet
