#include "src/base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <thread>
#include <vector>

namespace whet {
namespace {

TEST(ParallelForTest, CallsEachIndexOnce) {
  for (const int workers : {-1, 0, 1, 2, 7, 100}) {
    for (const size_t count : {0, 1, 2, 50}) {
      std::vector<std::atomic<int>> calls(count);
      ParallelFor(count, workers, [&](size_t i) { ++calls[i]; });
      for (size_t i = 0; i < count; ++i)
        EXPECT_EQ(calls[i], 1) << workers << " workers, index " << i;
    }
  }
}

TEST(ParallelForTest, OneWorkerIsTheCallerInOrder) {
  std::vector<size_t> order;
  const std::thread::id caller = std::this_thread::get_id();
  ParallelFor(20, 1, [&](size_t i) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    order.push_back(i);
  });
  for (size_t i = 0; i < 20; ++i) EXPECT_EQ(order[i], i);
}

// The barrier opens only when four bodies run at the same time, so this ends only when they do.
TEST(ParallelForTest, WorkersRunAtTheSameTimeAndTheCallerIsOneOfThem) {
  std::barrier<> meeting(4);
  std::atomic<int> by_caller{0};
  std::atomic<int> running{0};
  std::atomic<int> most{0};
  const std::thread::id caller = std::this_thread::get_id();
  ParallelFor(8, 4, [&](size_t) {
    const int now = ++running;
    for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
    }
    if (std::this_thread::get_id() == caller) ++by_caller;
    meeting.arrive_and_wait();
    --running;
  });
  EXPECT_EQ(most, 4);
  EXPECT_GE(by_caller, 1);
}

TEST(AvailableProcessorsTest, IsWithinTheAffinityMask) {
  EXPECT_GE(AvailableProcessors(), 1);
  EXPECT_LE(AvailableProcessors(), static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace
}  // namespace whet
