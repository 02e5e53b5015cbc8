#include "src/device/cpu/worker_pool.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace whet {
namespace {

// Counts the visits of every block; params[0] points to the counters' address.
void CountVisits(const CpuBlock* block, void* const* params) {
  auto* visits = *static_cast<std::atomic<int>* const*>(params[0]);
  const int64_t index =
      block->index[0] +
      int64_t{block->grid[0]} * (block->index[1] + int64_t{block->grid[1]} * block->index[2]);
  visits[index].fetch_add(1, std::memory_order_relaxed);
}

class Visits {
 public:
  explicit Visits(int64_t blocks)
      : blocks_(blocks), visits_(new std::atomic<int>[static_cast<size_t>(blocks)]) {
    for (int64_t i = 0; i < blocks; ++i) visits_[static_cast<size_t>(i)] = 0;
    pointer_ = visits_.get();
  }
  void* const* params() { return params_; }
  // How many blocks were not visited exactly `times`.
  int64_t Wrong(int times) const {
    int64_t wrong = 0;
    for (int64_t i = 0; i < blocks_; ++i) wrong += visits_[static_cast<size_t>(i)] != times;
    return wrong;
  }

 private:
  int64_t blocks_;
  std::unique_ptr<std::atomic<int>[]> visits_;
  std::atomic<int>* pointer_ = nullptr;
  void* params_[1] = {&pointer_};
};

struct GridCase {
  std::string name;
  int workers;
  uint32_t grid[3];
};

class GridTest : public testing::TestWithParam<GridCase> {};

TEST_P(GridTest, RunsEveryBlockOnce) {
  const GridCase& c = GetParam();
  WorkerPool pool(c.workers);
  EXPECT_EQ(pool.workers(), c.workers);
  const int64_t blocks = int64_t{c.grid[0]} * c.grid[1] * c.grid[2];
  Visits visits(blocks);
  constexpr int kRepeats = 50;
  for (int i = 0; i < kRepeats; ++i) {
    ASSERT_TRUE(pool.Run({.function = CountVisits,
                          .params = visits.params(),
                          .grid = {c.grid[0], c.grid[1], c.grid[2]}})
                    .ok());
    ASSERT_EQ(visits.Wrong(i + 1), 0);  // all have returned when Run returns
  }
}

INSTANTIATE_TEST_SUITE_P(
    Grids, GridTest,
    testing::Values(GridCase{"OneBlock", 3, {1, 1, 1}}, GridCase{"TwoBlocks", 3, {2, 1, 1}},
                    GridCase{"FewerThanWorkers", 8, {3, 1, 1}}, GridCase{"Alone", 1, {5, 3, 2}},
                    GridCase{"Cube", 4, {7, 5, 3}}, GridCase{"OnlyY", 2, {1, 64, 1}},
                    GridCase{"OnlyZ", 2, {1, 1, 64}}, GridCase{"Chunked", 2, {100, 50, 3}}),
    [](const auto& param) { return param.param.name; });

TEST(WorkerPoolTest, BlocksStartInGridOrder) {
  // One worker: the order of starting is the order of running.
  WorkerPool pool(1);
  std::vector<std::string> order;
  std::vector<std::string>* pointer = &order;
  void* params[] = {&pointer};
  auto note = [](const CpuBlock* block, void* const* p) {
    (*static_cast<std::vector<std::string>* const*>(p[0]))
        ->push_back(std::to_string(block->index[0]) + std::to_string(block->index[1]) +
                    std::to_string(block->index[2]));
  };
  ASSERT_TRUE(pool.Run({.function = note, .params = params, .grid = {2, 2, 2}}).ok());
  EXPECT_THAT(order, testing::ElementsAre("000", "100", "010", "110", "001", "101", "011", "111"));
}

TEST(WorkerPoolTest, SharedMemoryIsAlignedAndPrivateToTheBlock) {
  struct Seen {
    std::atomic<int64_t> misaligned{0};
    std::atomic<int64_t> disturbed{0};
  } seen;
  Seen* pointer = &seen;
  void* params[] = {&pointer};
  auto use = [](const CpuBlock* block, void* const* p) {
    Seen& s = **static_cast<Seen* const*>(p[0]);
    if (reinterpret_cast<uintptr_t>(block->shared) % 64 != 0) ++s.misaligned;
    auto* words = static_cast<volatile uint32_t*>(block->shared);
    for (int i = 0; i < 256; ++i) words[i] = block->index[0];
    for (int i = 0; i < 256; ++i) {
      if (words[i] != block->index[0]) ++s.disturbed;
    }
  };
  WorkerPool pool(4);
  for (int64_t bytes : {1024, 4096, 1024}) {
    ASSERT_TRUE(
        pool.Run({.function = use, .params = params, .grid = {200, 1, 1}, .shared_bytes = bytes})
            .ok());
    ASSERT_TRUE(
        pool.Run({.function = use, .params = params, .grid = {1, 1, 1}, .shared_bytes = bytes})
            .ok());
  }
  EXPECT_EQ(seen.misaligned, 0);
  EXPECT_EQ(seen.disturbed, 0);
}

TEST(WorkerPoolTest, ImpossibleSharedMemoryIsAnErrorAndRunsNothing) {
  for (int workers : {1, 2}) {
    WorkerPool pool(workers);
    Visits visits(4);
    const absl::Status status = pool.Run({.function = CountVisits,
                                          .params = visits.params(),
                                          .grid = {4, 1, 1},
                                          .shared_bytes = int64_t{1} << 60});
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(visits.Wrong(0), 0);
    // The slot is free again.
    for (int i = 0; i < 40; ++i) {
      ASSERT_TRUE(
          pool.Run({.function = CountVisits, .params = visits.params(), .grid = {4, 1, 1}}).ok());
    }
    EXPECT_EQ(visits.Wrong(40), 0);
  }
}

// More launching threads than slots, on random grids: every block runs exactly once.
TEST(WorkerPoolTest, ManyLaunchersAtOnce) {
  constexpr int kLaunchers = 24;
  constexpr int kLaunches = 40;
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  WorkerPool pool(4);
  std::atomic<int64_t> wrong{0};
  std::vector<std::thread> launchers;
  for (int t = 0; t < kLaunchers; ++t) {
    launchers.emplace_back([&, t] {
      std::mt19937 random(seed + static_cast<unsigned>(t));
      for (int i = 0; i < kLaunches; ++i) {
        const uint32_t x = 1 + random() % 20, y = 1 + random() % 4;
        Visits visits(int64_t{x} * y);
        const absl::Status status =
            pool.Run({.function = CountVisits,
                      .params = visits.params(),
                      .grid = {x, y, 1},
                      .shared_bytes = static_cast<int64_t>(random() % 2 * 256)});
        if (!status.ok() || visits.Wrong(1) != 0) ++wrong;
      }
    });
  }
  for (std::thread& launcher : launchers) launcher.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace whet
