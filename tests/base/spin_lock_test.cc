#include "src/base/spin_lock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace whet {
namespace {

// More threads than processors: some holders are preempted, so both ways of waiting are taken.
TEST(SpinLockTest, OneThreadAtATimeSeesWhatTheOneBeforeWrote) {
  constexpr int kThreads = 8;
  constexpr int kTurns = 20'000;
  SpinLock lock;
  int64_t first = 0;
  int64_t second = 0;
  bool torn = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int turn = 0; turn < kTurns; ++turn) {
        const SpinLockHolder holder(lock);
        torn = torn || first != second;
        ++first;
        ++second;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(torn);
  EXPECT_EQ(first, kThreads * kTurns);
}

TEST(SpinLockTest, WaitsForAHolderThatSleeps) {
  SpinLock lock;
  lock.Lock();
  std::atomic<bool> waits{false};
  bool inside = false;
  std::thread waiter([&] {
    waits = true;
    const SpinLockHolder holder(lock);
    inside = true;
  });
  while (!waits) std::this_thread::yield();
  // Long past the looks of a waiter that does not sleep.
  for (int i = 0; i < 200; ++i) {
    std::this_thread::yield();
    EXPECT_FALSE(inside);
  }
  lock.Unlock();
  waiter.join();
  EXPECT_TRUE(inside);
}

}  // namespace
}  // namespace whet
