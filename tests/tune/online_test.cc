#include "src/tune/online.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/simulated_space.h"

namespace whet {
namespace {

// Drives a tuner over `calls` live calls with fixed times; gives the total time, verifications
// included.
struct Live {
  std::map<int, int> chosen;
  double total_ns = 0;
  int verifications = 0;
};

Live Drive(OnlineTuner& tuner, const std::vector<double>& times, int calls,
           const std::vector<int>& wrong = {}) {
  Live live;
  for (int call = 0; call < calls; ++call) {
    if (const int i = tuner.WantsAdmission(); i >= 0) {
      ++live.verifications;
      live.total_ns += times[static_cast<size_t>(i)];
      if (std::find(wrong.begin(), wrong.end(), i) != wrong.end()) {
        tuner.Rejected(i);
      } else {
        tuner.Admitted(i, times[static_cast<size_t>(i)]);
      }
    }
    const int i = tuner.Choose();
    ++live.chosen[i];
    live.total_ns += times[static_cast<size_t>(i)];
    tuner.Record(i, times[static_cast<size_t>(i)]);
  }
  return live;
}

TEST(OnlineTunerTest, FirstCallRunsTheInitialAtOnce) {
  OnlineTuner tuner(5, 2, {});
  EXPECT_EQ(tuner.WantsAdmission(), -1);  // nothing is known yet
  EXPECT_EQ(tuner.Choose(), 2);
  EXPECT_EQ(tuner.best(), 2);
  EXPECT_FALSE(tuner.settled());
}

TEST(OnlineTunerTest, OneCandidateIsSettledFromTheStart) {
  OnlineTuner tuner(1, 0, {});
  EXPECT_TRUE(tuner.settled());
  EXPECT_EQ(tuner.Choose(), 0);
}

TEST(OnlineTunerTest, FindsTheBestAndStaysWithIt) {
  OnlineTuner tuner(5, 0, {});
  const Live live = Drive(tuner, {1.3e5, 2e5, 1e5, 1.04e5, 1.2e5}, 1000);
  EXPECT_TRUE(tuner.settled());
  EXPECT_EQ(tuner.best(), 2);
  EXPECT_EQ(live.verifications, 4);
  EXPECT_GT(live.chosen.at(2), 880);
  EXPECT_LE(live.total_ns, 1000 * 1e5 * 1.05);
  EXPECT_EQ(tuner.Choose(), 2);
  EXPECT_EQ(tuner.WantsAdmission(), -1);
}

TEST(OnlineTunerTest, WrongOnesAreNeverChosen) {
  OnlineTuner tuner(4, 0, {});
  const Live live = Drive(tuner, {1e5, 5e4, 9e4, 4e4}, 500, /*wrong=*/{1, 3});
  EXPECT_EQ(live.chosen.count(1), 0u);
  EXPECT_EQ(live.chosen.count(3), 0u);
  EXPECT_EQ(tuner.best(), 2);
}

TEST(OnlineTunerTest, EqualsKeepTheOneThatRuns) {
  OnlineTuner tuner(4, 1, {});
  Drive(tuner, {1e5, 1.001e5, 1.0005e5, 9.99e4}, 1000);
  EXPECT_TRUE(tuner.settled());
  EXPECT_EQ(tuner.best(), 1);
}

TEST(OnlineTunerTest, BudgetBoundsTheCostHoweverBadTheOthersAre) {
  for (int candidates : {2, 10, 64}) {
    std::vector<double> times = {1e5};
    for (int i = 1; i < candidates; ++i) times.push_back(1e5 * (2 + i % 5));
    OnlineTuner tuner(candidates, 0, {});
    const Live live = Drive(tuner, times, 1000);
    EXPECT_EQ(tuner.best(), 0);
    EXPECT_TRUE(tuner.settled());
    // One call may overshoot, by the slowest's six.
    EXPECT_LE(live.total_ns, 1e5 * (1000 * 1.03 + 6)) << candidates;
  }
}

// What ran before the best was known counts: after a slow beginning there is less to explore with.
TEST(OnlineTunerTest, ASlowBeginningEndsTheExploringEarlier) {
  std::vector<double> times = {1.19e5};
  for (int i = 1; i < 8; ++i) times.push_back(1.18e5);
  times.push_back(1e5);
  for (int i = 9; i < 40; ++i) times.push_back(1.08e5);
  OnlineTuner slow(40, 0, {.slowdown = 0.04, .limit = 0.75, .admissions = 0.9});
  const Live live = Drive(slow, times, 1000);
  EXPECT_TRUE(slow.settled());
  EXPECT_EQ(slow.best(), 8);
  EXPECT_LE(slow.ExcessInCalls(), 31.2);  // one call may overshoot
  EXPECT_LE(live.total_ns, 1000 * 1e5 * 1.032);

  OnlineTuner told(39, 0, {.slowdown = 0.04, .limit = 0.75, .admissions = 0.9});
  times.erase(times.begin() + 8);
  times[0] = 1e5;
  const Live sooner = Drive(told, times, 1000);
  EXPECT_GT(sooner.verifications, 0);
  EXPECT_GT(told.CostInCalls(), slow.CostInCalls());
}

TEST(OnlineTunerTest, AListThatOnlyGetsWorseIsNotVerifiedToItsEnd) {
  std::vector<double> times(30, 1.3e5);
  times[0] = 1e5;
  OnlineTuner tuner(30, 0, {.slowdown = 1});
  EXPECT_EQ(Drive(tuner, times, 1000).verifications, 6);
  EXPECT_TRUE(tuner.settled());
}

TEST(OnlineTunerTest, TrialsAreAtMostTheShareOfCalls) {
  OnlineTuner tuner(20, 0, {.share = 0.2});
  int trials = 0;
  for (int call = 1; call <= 60; ++call) {
    if (const int i = tuner.WantsAdmission(); i >= 0) tuner.Admitted(i, 1.05e5);
    const int i = tuner.Choose();
    trials += i != 0;
    tuner.Record(i, i == 0 ? 1e5 : 1.05e5);
    ASSERT_LE(trials, 0.2 * call + 1);
  }
  EXPECT_GT(trials, 0);
}

TEST(OnlineTunerTest, TimesThatComeLateOrNeverDoNoHarm) {
  OnlineTuner tuner(3, 0, {});
  const std::vector<double> times = {1.5e5, 1e5, 2e5};
  std::vector<int> pending;
  std::mt19937 random(3);
  for (int call = 0; call < 2000; ++call) {
    if (const int i = tuner.WantsAdmission(); i >= 0) {
      tuner.Admitted(i, times[static_cast<size_t>(i)]);
    }
    const int i = tuner.Choose();
    if (random() % 4 != 0) pending.push_back(i);
    if (pending.size() > 16) {
      for (int p : pending) tuner.Record(p, times[static_cast<size_t>(p)]);
      pending.clear();
    }
  }
  EXPECT_EQ(tuner.best(), 1);
}

TEST(OnlineTunerTest, OneThatFailsInALiveCallIsNotChosenAgain) {
  const std::vector<double> times = {2e5, 1e5, 1.5e5};
  for (int fails_at : {1, 5, 12, 20}) {
    OnlineTuner tuner(3, 0, {});
    int seen = 0;
    bool out = false;
    for (int call = 0; call < 1000; ++call) {
      if (const int i = tuner.WantsAdmission(); i >= 0) {
        tuner.Admitted(i, times[static_cast<size_t>(i)]);
      }
      const int i = tuner.Choose();
      ASSERT_FALSE(out && i == 1) << call;
      if (i == 1 && ++seen == fails_at) {
        tuner.Rejected(1);
        out = true;
        continue;
      }
      tuner.Record(i, times[static_cast<size_t>(i)]);
    }
    EXPECT_TRUE(tuner.settled());
    EXPECT_TRUE(out);
    EXPECT_NE(tuner.best(), 1) << fails_at;
  }
}

// Clocks that follow with a lag: 1 is 3 % slower than 0 while they take turns and 6 % faster alone.
struct Lagging {
  double own[3] = {1e5, 1.03e5, 1.02e5};
  double target[3] = {1.0, 0.91, 1.03};
  double slow = 1;
  double Call(int i, double lag_ns) {
    const double ns = own[i] * slow;
    slow += (1 - std::exp(-ns / lag_ns)) * (target[i] - slow);
    return ns;
  }
};

TEST(OnlineTunerTest, WhoIsFasterAloneIsFoundWhereTheClockLags) {
  for (const bool knows_the_lag : {false, true}) {
    // The clock comes nearly all of its way in 9 ms; a turn is 100 calls.
    OnlineTuner tuner(3, 0, {.lag_ns = knows_the_lag ? 33e6 : 0});
    Lagging device;
    for (int call = 0; call < 1000; ++call) {
      if (const int i = tuner.WantsAdmission(); i >= 0) tuner.Admitted(i, device.Call(i, 4e6));
      const int i = tuner.Choose();
      tuner.Record(i, device.Call(i, 4e6));
    }
    EXPECT_TRUE(tuner.settled());
    EXPECT_EQ(tuner.best(), knows_the_lag ? 1 : 0);
  }
}

TEST(OnlineTunerTest, NoTurnIsBegunThatMayCostMoreThanIsLeft) {
  // All of the limit but a call is spent when the turns begin.
  OnlineTuner tuner(3, 0, {.lag_ns = 33e6});
  Lagging device;
  int64_t of_challengers = 0;
  for (int call = 0; call < 1000; ++call) {
    if (const int i = tuner.WantsAdmission(); i >= 0) tuner.Admitted(i, device.Call(i, 4e6));
    const int i = tuner.Choose();
    tuner.Record(i, device.Call(i, 4e6));
    if (call == 150) tuner.AddCost(1e5 * (44 - tuner.ExcessInCalls()));
    if (call > 150) of_challengers += i != 0;
  }
  EXPECT_TRUE(tuner.settled());
  EXPECT_EQ(tuner.best(), 0);
  EXPECT_EQ(of_challengers, 0);
}

TEST(OnlineTunerTest, ManyThreadsAtOnce) {
  OnlineTuner tuner(6, 0, {});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] { Drive(tuner, {1.2e5, 1e5, 1.1e5, 1.3e5, 1.4e5, 1.5e5}, 500); });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(tuner.best(), 1);
}

// On the simulated GPU, with its noise and its clock: 1,000 calls against the best variant all
// along, under the same noise.
double TotalNs(const SpaceOptions& options, int fixed, int* picked) {
  SimulatedSpace space(options);
  float x = 1, y = 0;
  float *x_pointer = &x, *y_pointer = &y;
  void* params[] = {&x_pointer, &y_pointer};
  FakeDevice& device = space.device();
  EventHandle begin = device.CreateEvent().value(), end = device.CreateEvent().value();
  OnlineTuner tuner(space.variants(), 0, {});
  const auto launch = [&](int i) {
    EXPECT_TRUE(device.Record(begin, nullptr).ok());
    EXPECT_TRUE(device.Launch(space.kernel(i), {}, params, nullptr).ok());
    EXPECT_TRUE(device.Record(end, nullptr).ok());
    return static_cast<double>(device.ElapsedNanoseconds(begin, end).value());
  };
  for (int call = 0; call < 1000; ++call) {
    if (fixed >= 0) {
      launch(fixed);
      continue;
    }
    if (const int i = tuner.WantsAdmission(); i >= 0) tuner.Admitted(i, launch(i));
    const int i = tuner.Choose();
    tuner.Record(i, launch(i));
  }
  if (picked != nullptr) *picked = tuner.best();
  device.DestroyEvent(begin);
  device.DestroyEvent(end);
  return static_cast<double>(device.busy_ns());
}

TEST(OnlineTunerTest, WithinFivePercentOfTheBestOnTheSimulatedGpu) {
  double worst = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SpaceOptions options{.variants = 8, .space_seed = seed, .noise_seed = seed, .gpu = {}};
    SimulatedSpace space(options);
    int best = 0;
    for (int i = 1; i < space.variants(); ++i) {
      if (space.steady_ns(i) < space.steady_ns(best)) best = i;
    }
    int picked = -1;
    const double ours = TotalNs(options, -1, &picked);
    const double ideal = TotalNs(options, best, nullptr);
    worst = std::max(worst, ours / ideal);
    EXPECT_LE(ours / ideal, 1.05) << "seed " << seed << " picked " << space.Regret(picked)
                                  << " worse, default is " << space.Regret(0) << " worse";
  }
  RecordProperty("worst", std::to_string(worst));
}

}  // namespace
}  // namespace whet
