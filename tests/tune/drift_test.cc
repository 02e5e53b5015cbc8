#include "src/tune/drift.h"

#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace whet {
namespace {

DataSignature Of(double toggles) {
  return {.inputs = {{.name = "k", .toggles_inner = toggles, .toggles_outer = toggles}}};
}

const DataSignature kNormal = Of(0.35), kNear = Of(0.34), kZeros = Of(0);

// Counts calls until a check is due; how many it took.
int64_t CallsToCheck(DriftWatch& watch) {
  int64_t calls = 1;
  while (!watch.CountCall()) ++calls;
  return calls;
}

TEST(DriftTest, ChecksBecomeRarerWhileNothingIsFound) {
  DriftWatch watch(kNormal, 1e5, {.every_calls = 10});
  std::vector<int64_t> intervals;
  for (int i = 0; i < 9; ++i) {
    intervals.push_back(CallsToCheck(watch));
    watch.CheckSignature(kNear, 0);
    watch.CheckTime(1.05e5);
  }
  EXPECT_THAT(intervals, testing::ElementsAre(10, 20, 40, 80, 160, 320, 640, 640, 640));
  EXPECT_EQ(watch.verdict(), Drift::kNone);
  EXPECT_EQ(watch.checks(), 9);
}

TEST(DriftTest, ChecksNeverCostMoreThanTheirShare) {
  DriftWatch watch(kNormal, 1e5, {.every_calls = 10, .share = 0.001});
  CallsToCheck(watch);
  watch.CheckSignature(kNear, 2e6);  // 20 calls' time: 20,000 calls until the next
  EXPECT_EQ(CallsToCheck(watch), 20'000);
}

TEST(DriftTest, OtherDataMustBeSeenSeveralTimesInARow) {
  DriftWatch watch(kNormal, 1e5, {.every_calls = 10});
  for (int i = 0; i < 20; ++i) {
    watch.CheckSignature(i % 3 == 2 ? kNear : kZeros, 0);  // two strikes, then none
    ASSERT_EQ(watch.verdict(), Drift::kNone);
  }
  for (int i = 0; i < 3; ++i) watch.CheckSignature(kZeros, 0);
  EXPECT_EQ(watch.verdict(), Drift::kData);
  watch.CheckSignature(kNear, 0);
  EXPECT_EQ(watch.verdict(), Drift::kData);  // stays
}

TEST(DriftTest, SlowerCallsCountAndFasterOnesDoNot) {
  DriftWatch watch(kNormal, 1e5, {});
  for (int i = 0; i < 10; ++i) watch.CheckTime(5e4);
  EXPECT_EQ(watch.verdict(), Drift::kNone);
  for (int i = 0; i < 3; ++i) watch.CheckTime(1.2e5);
  EXPECT_EQ(watch.verdict(), Drift::kTime);

  DriftWatch unknown(kNormal, 0, {});
  for (int i = 0; i < 10; ++i) unknown.CheckTime(1e9);
  EXPECT_EQ(unknown.verdict(), Drift::kNone);
}

TEST(DriftTest, ThreadsCountTogether) {
  DriftWatch watch(kNormal, 1e5, {.every_calls = 1000});
  std::atomic<int> due{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) due += watch.CountCall();
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(due, 1);  // until someone has checked, nobody else is asked to
}

TEST(BestFewTest, WinnerThenFinalistsThenTheRest) {
  TuningResult r;
  const auto add = [&r](const char* id, VariantOutcome outcome, double ns, bool final_round) {
    VariantEvidence e;
    e.variant = Variant::Parse(id).value();
    e.outcome = outcome;
    e.median_ns = ns;
    e.final_round = final_round;
    r.evidence.push_back(e);
  };
  add("k:a=1", VariantOutcome::kDropped, 90, false);
  add("k:a=2", VariantOutcome::kTimed, 110, true);
  add("k:a=3", VariantOutcome::kTimed, 100, true);
  add("k:a=4", VariantOutcome::kWrong, 50, false);
  add("k:a=5", VariantOutcome::kTimed, 105, true);
  add("k:a=6", VariantOutcome::kUntried, 0, false);
  r.winner = Variant::Parse("k:a=3").value();
  std::vector<std::string> ids;
  for (const Variant& v : BestFew(r, 10)) ids.push_back(v.id());
  EXPECT_THAT(ids, testing::ElementsAre("k:a=3", "k:a=5", "k:a=2", "k:a=1"));
  EXPECT_EQ(BestFew(r, 2).size(), 2u);
}

}  // namespace
}  // namespace whet
