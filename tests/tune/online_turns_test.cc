#include "src/tune/online_turns.h"

#include <algorithm>
#include <map>
#include <vector>

#include "gtest/gtest.h"

namespace whet {
namespace {

// Runs all turns with fixed times; gives how many calls each had.
std::map<int, int> Drive(OnlineTurns& turns, const std::map<int, double>& ns,
                         const std::vector<int>& skipped = {}) {
  std::map<int, int> calls;
  for (int call = 0; call < 10'000 && !turns.over(); ++call) {
    if (const int next = turns.next(); next >= 0) {
      const bool skip = std::find(skipped.begin(), skipped.end(), next) != skipped.end();
      skip ? turns.Skip() : turns.Begin();
      continue;
    }
    double gain = 0;
    const int turn = turns.turn();
    ++calls[turn];
    turns.Record(turn, ns.at(turn), &gain);
  }
  EXPECT_TRUE(turns.over());
  return calls;
}

TEST(OnlineTurnsTest, WhoIsFasterThanTheBestBeforeItRunsFromThenOn) {
  OnlineTurns turns(0, {2, 1, 3}, {.calls = 40, .wait_calls = 20});
  const std::map<int, int> calls = Drive(turns, {{0, 100}, {1, 96}, {2, 98}, {3, 97.5}});
  EXPECT_EQ(turns.best(), 1);
  EXPECT_EQ(turns.turn(), 1);
  EXPECT_DOUBLE_EQ(turns.best_ns(), 96);
  EXPECT_EQ(calls, (std::map<int, int>{{0, 60}, {1, 40}, {2, 40}, {3, 40}}));
}

TEST(OnlineTurnsTest, ASmallGainDoesNotReplaceWhatRuns) {
  OnlineTurns turns(0, {1}, {.calls = 40});
  Drive(turns, {{0, 100}, {1, 99.5}});
  EXPECT_EQ(turns.best(), 0);
}

TEST(OnlineTurnsTest, WhoIsFarBehindInTheMiddleOfItsTurnEndsIt) {
  OnlineTurns turns(0, {1, 2}, {.calls = 40});
  EXPECT_EQ(Drive(turns, {{0, 100}, {1, 104}, {2, 102}}),
            (std::map<int, int>{{0, 40}, {1, 20}, {2, 40}}));
  EXPECT_EQ(turns.best(), 0);
}

TEST(OnlineTurnsTest, OnlyTheLastPartOfATurnCounts) {
  OnlineTurns turns(0, {1}, {.calls = 40, .counts = 0.4});
  double gain = 0;
  for (int call = 0; call < 40; ++call) turns.Record(0, 100, &gain);
  ASSERT_EQ(turns.next(), 1);
  turns.Begin();
  // Slow while the clock is still the other's.
  for (int call = 0; call < 39; ++call) {
    EXPECT_FALSE(turns.Record(1, call < 8 ? 110 : 95, &gain)) << call;
  }
  EXPECT_TRUE(turns.Record(1, 95, &gain));
  EXPECT_NEAR(gain, 100.0 / 95, 1e-9);
}

TEST(OnlineTurnsTest, TimesOfOthersAndSkippedOnesCountForNothing) {
  OnlineTurns turns(0, {1, 2}, {.calls = 4});
  double gain = 0;
  for (int call = 0; call < 8; ++call) turns.Record(call % 2, call % 2 == 1 ? 1 : 100, &gain);
  EXPECT_EQ(turns.best(), 0);
  EXPECT_EQ(turns.next(), 1);
  EXPECT_EQ(Drive(turns, {{0, 100}, {2, 101}}, /*skipped=*/{1}), (std::map<int, int>{{2, 4}}));
}

TEST(OnlineTurnsTest, OneThatFailsLosesItsTurn) {
  OnlineTurns turns(0, {1, 2}, {.calls = 4});
  double gain = 0;
  for (int call = 0; call < 4; ++call) turns.Record(0, 100, &gain);
  turns.Begin();
  ASSERT_EQ(turns.turn(), 1);
  turns.Drop(1);
  EXPECT_EQ(turns.turn(), 0);
  EXPECT_EQ(turns.next(), 2);
  turns.Drop(2);
  EXPECT_TRUE(turns.over());
}

TEST(OnlineTurnsTest, NobodyToLookAtIsOverAtOnce) {
  EXPECT_TRUE(OnlineTurns(3, {}, {}).over());
  EXPECT_EQ(OnlineTurns(3, {}, {}).best(), 3);
}

}  // namespace
}  // namespace whet
