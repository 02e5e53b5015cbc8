#include "src/base/single_flight.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace whet {
namespace {

// Tells how many threads have looked it up. A lookup and the wait after it are one critical section,
// so a thread that is counted waits before the flight can land.
struct CountingKey {
  std::string text;
  std::atomic<int>* threads;

  friend bool operator==(const CountingKey& a, const CountingKey& b) { return a.text == b.text; }
  template <typename H>
  friend H AbslHashValue(H state, const CountingKey& key) {
    thread_local const void* counted = nullptr;
    if (std::exchange(counted, key.threads) != key.threads) ++*key.threads;
    return H::combine(std::move(state), key.text);
  }
};

void RunThreads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(body, i);
  for (std::thread& thread : threads) thread.join();
}

TEST(SingleFlightTest, WaitersShareOneResult) {
  constexpr int kThreads = 8;
  for (const bool fails : {false, true}) {
    SingleFlight<CountingKey, int> flights;
    std::atomic<int> looked_up{0};
    std::atomic<int> made{0};
    std::atomic<int> right{0};
    RunThreads(kThreads, [&](int) {
      const absl::StatusOr<int> result =
          flights.Do({"key", &looked_up}, [&]() -> absl::StatusOr<int> {
            while (looked_up < kThreads) std::this_thread::yield();
            ++made;
            if (fails) return absl::AbortedError("failed");
            return 42;
          });
      right += fails ? result.status().code() == absl::StatusCode::kAborted
                     : result.ok() && *result == 42;
    });
    EXPECT_EQ(made, 1);
    EXPECT_EQ(right, kThreads);
  }
}

TEST(SingleFlightTest, NothingIsRemembered) {
  SingleFlight<std::string, int> flights;
  int made = 0;
  const auto fail = [&]() -> absl::StatusOr<int> {
    ++made;
    return absl::AbortedError("failed");
  };
  EXPECT_FALSE(flights.Do("key", fail).ok());
  EXPECT_FALSE(flights.Do("key", fail).ok());
  EXPECT_EQ(made, 2);
  EXPECT_EQ(*flights.Do("key", [] { return 7; }), 7);
}

TEST(SingleFlightTest, MakeMayAskForAnotherKey) {
  SingleFlight<std::string, int> flights;
  const absl::StatusOr<int> result =
      flights.Do("outer", [&] { return *flights.Do("inner", [] { return 20; }) + 1; });
  EXPECT_EQ(*result, 21);
}

TEST(SingleFlightTest, NeverTwoOfOneKeyAtATime) {
  SingleFlight<int, int> flights;
  std::atomic<int> running[3] = {};
  std::atomic<int> violations{0};
  RunThreads(6, [&](int thread) {
    for (int i = 0; i < 500; ++i) {
      const int key = (thread + i) % 3;
      const absl::StatusOr<int> result = flights.Do(key, [&] {
        if (++running[key] != 1) ++violations;
        --running[key];
        return key;
      });
      if (!result.ok() || *result != key) ++violations;
    }
  });
  EXPECT_EQ(violations, 0);
}

}  // namespace
}  // namespace whet
