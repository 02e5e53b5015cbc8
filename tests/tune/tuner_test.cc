#include "src/tune/tuner.h"

#include <map>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_variants.h"

namespace whet {
namespace {

using testing::HasSubstr;

const VariantEvidence& Of(const TuningResult& r, const std::string& id) {
  for (const VariantEvidence& e : r.evidence) {
    if (e.variant.id() == id) return e;
  }
  ADD_FAILURE() << "no evidence of " << id;
  return r.evidence.front();
}

class TunerTest : public testing::Test {
 protected:
  FakeDevice device_;
  FakeVariants op_{device_, 100};
};

TEST_F(TunerTest, FastestWinsAndTheGainIsOverTheDefault) {
  op_.Add({.id = "k:a=1", .duration_ns = 100'000});
  op_.Add({.id = "k:a=2", .duration_ns = 80'000});
  op_.Add({.id = "k:a=3", .duration_ns = 83'000});
  op_.Add({.id = "k:a=4", .duration_ns = 400'000});
  std::set<std::string> stages;
  const absl::StatusOr<TuningResult> r =
      Tune(op_.Request(), device_, op_, [&](absl::string_view stage, int done, int of) {
        stages.insert(std::string(stage));
        EXPECT_LE(done, of);
      });
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_EQ(r->winner.id(), "k:a=2");
  EXPECT_NEAR(r->gain, 1.25, 0.01);
  EXPECT_FALSE(r->budget_spent);
  EXPECT_TRUE(Of(*r, "k:a=2").final_round);
  EXPECT_TRUE(Of(*r, "k:a=3").final_round);
  EXPECT_FALSE(Of(*r, "k:a=3").tied);
  EXPECT_EQ(Of(*r, "k:a=4").outcome, VariantOutcome::kDropped);
  EXPECT_THAT(Of(*r, "k:a=4").reason, HasSubstr("slower than the leader"));
  EXPECT_EQ(Of(*r, "k:a=2").relative_error, 0);
  EXPECT_LE(Of(*r, "k:a=2").low_ns, 80'000);
  EXPECT_GE(Of(*r, "k:a=2").high_ns, 80'000);
  EXPECT_THAT(stages, testing::IsSupersetOf({"compile", "verify", "screen", "finals"}));
  EXPECT_TRUE(op_.CallersDataUntouched());
  EXPECT_EQ(device_.live_allocations(), 0);
}

TEST_F(TunerTest, EqualVariantsGoToTheFirst) {
  for (int i = 0; i < 6; ++i) {
    op_.Add({.id = "k:a=" + std::to_string(i), .duration_ns = 100'000 - 20 * i});
  }
  const TuningResult r = Tune(op_.Request(), device_, op_, nullptr).value();
  // The finals have four places for the fastest, and one for the default.
  EXPECT_EQ(r.winner.id(), "k:a=0");
  EXPECT_TRUE(Of(r, "k:a=5").tied);
}

TEST_F(TunerTest, OneVariantWins) {
  op_.Add({.id = "k:a=1"});
  const TuningResult r = Tune(op_.Request(), device_, op_, nullptr).value();
  EXPECT_EQ(r.winner.id(), "k:a=1");
  EXPECT_EQ(r.gain, 1);
  EXPECT_GT(r.evidence[0].median_ns, 0);
}

TEST_F(TunerTest, NoVariantIsAClearError) {
  const absl::Status status = Tune(op_.Request(), device_, op_, nullptr).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no variant"));
}

struct BadVariantCase {
  const char* name;
  FakeVariantSpec spec;
  VariantOutcome outcome;
  const char* reason;
};

class BadVariantTest : public TunerTest, public testing::WithParamInterface<BadVariantCase> {};

TEST_P(BadVariantTest, IsOutWithItsReasonAndNeverTimed) {
  op_.Add({.id = "k:a=1"});
  FakeVariantSpec bad = GetParam().spec;
  bad.id = "k:a=2";
  bad.duration_ns = 10'000;  // tempting
  op_.Add(bad);
  op_.Add({.id = "k:a=3", .duration_ns = 90'000});
  const TuningResult r = Tune(op_.Request(), device_, op_, nullptr).value();
  EXPECT_EQ(r.winner.id(), "k:a=3");
  EXPECT_EQ(Of(r, "k:a=2").outcome, GetParam().outcome);
  EXPECT_THAT(Of(r, "k:a=2").reason, HasSubstr(GetParam().reason));
  EXPECT_EQ(Of(r, "k:a=2").median_ns, 0);
  EXPECT_LE(device_.launches("k:a=2"), 1);
  EXPECT_TRUE(op_.CallersDataUntouched());
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, BadVariantTest,
    testing::Values(BadVariantCase{"Wrong",
                                   {.id = "", .misbehaviour = Misbehaviour::kWrongResult},
                                   VariantOutcome::kWrong,
                                   "its y differs from the reference's by 0.1"},
                    BadVariantCase{"Forgets",
                                   {.id = "", .misbehaviour = Misbehaviour::kForgetsElement},
                                   VariantOutcome::kWrong,
                                   "it gives NaN at y[50]"},
                    BadVariantCase{"PastEnd",
                                   {.id = "", .misbehaviour = Misbehaviour::kWritesPastEnd},
                                   VariantOutcome::kWrong,
                                   "past the end of argument y"},
                    BadVariantCase{"BeforeStart",
                                   {.id = "", .misbehaviour = Misbehaviour::kWritesBeforeStart},
                                   VariantOutcome::kWrong,
                                   "before argument y"},
                    BadVariantCase{
                        "DoesNotCompile",
                        {.id = "", .prepare = absl::InvalidArgumentError("no such register")},
                        VariantOutcome::kFailed,
                        "no such register"}),
    [](const auto& param) { return param.param.name; });

TEST_F(TunerTest, WhenAllAreBadEachReasonIsInTheMessage) {
  op_.Add({.id = "k:a=1"});
  op_.Add({.id = "k:a=2", .misbehaviour = Misbehaviour::kWrongResult});
  op_.Add({.id = "k:a=3", .prepare = absl::InvalidArgumentError("no such register")});
  TuningRequest request = op_.Request();
  request.variants.erase(request.variants.begin());  // the reference is not one of them
  const absl::Status status = Tune(request, device_, op_, nullptr).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("k:a=2 (wrong)"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("k:a=3 (failed): no such register"));
  EXPECT_TRUE(op_.CallersDataUntouched());
}

TEST_F(TunerTest, WithoutAReferenceNothingCanBeVerified) {
  op_.Add({.id = "k:a=1"});
  op_.Add({.id = "k:a=2", .prepare = absl::InvalidArgumentError("no such register")});
  op_.Add({.id = "k:a=3", .misbehaviour = Misbehaviour::kWritesPastEnd});
  for (size_t reference : {1, 2}) {
    TuningRequest request = op_.Request();
    request.reference = request.variants[reference];
    const absl::Status status = Tune(request, device_, op_, nullptr).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr(request.reference.id()));
  }
}

TEST_F(TunerTest, ReadWriteOperationsAreRestoredAndTheCallersStay) {
  FakeVariants op(device_, 100, Direction::kInOut);
  op.Add({.id = "k:a=1", .duration_ns = 100'000});
  op.Add({.id = "k:a=2", .duration_ns = 50'000});
  const TuningResult r = Tune(op.Request(), device_, op, nullptr).value();
  EXPECT_EQ(r.winner.id(), "k:a=2");
  EXPECT_EQ(Of(r, "k:a=2").relative_error, 0);
  EXPECT_TRUE(op.CallersDataUntouched());
}

TEST_F(TunerTest, IncumbentStaysWithoutAProvenGain) {
  op_.Add({.id = "k:a=1", .duration_ns = 100'000});
  op_.Add({.id = "k:a=2", .duration_ns = 98'000});
  op_.Add({.id = "k:a=3", .duration_ns = 103'000});
  const struct {
    const char* incumbent;
    const char* winner;
    bool kept;
  } kCases[] = {{"k:a=1", "k:a=1", true},
                {"k:a=2", "k:a=2", false},
                {"k:a=3", "k:a=2", false},
                {"k:a=9", "k:a=2", false}};
  for (const auto& c : kCases) {
    TuningRequest request = op_.Request();
    request.incumbent = c.incumbent;
    const TuningResult r = Tune(request, device_, op_, nullptr).value();
    EXPECT_EQ(r.winner.id(), c.winner) << c.incumbent;
    EXPECT_EQ(r.kept_incumbent, c.kept) << c.incumbent;
  }
}

TEST_F(TunerTest, IncumbentThatIsWrongIsReplaced) {
  op_.Add({.id = "k:a=1", .duration_ns = 100'000});
  op_.Add({.id = "k:a=2", .duration_ns = 50'000, .misbehaviour = Misbehaviour::kWrongResult});
  TuningRequest request = op_.Request();
  request.incumbent = "k:a=2";
  EXPECT_EQ(Tune(request, device_, op_, nullptr)->winner.id(), "k:a=1");
}

TEST_F(TunerTest, CompilesInChunksAndTheIncumbentEarly) {
  for (int i = 0; i < 30; ++i) op_.Add({.id = "k:a=" + std::to_string(i)});
  TuningRequest request = op_.Request();
  request.incumbent = "k:a=29";
  ASSERT_TRUE(Tune(request, device_, op_, nullptr).ok());
  ASSERT_EQ(op_.prepared().size(), 30u);
  EXPECT_EQ(op_.prepared()[0], "k:a=0");  // the reference and the default
  EXPECT_EQ(op_.prepared()[1], "k:a=29");
  EXPECT_EQ(op_.prepared()[2], "k:a=1");
  EXPECT_EQ(op_.prepared()[29], "k:a=28");
  EXPECT_GT(op_.chunks().size(), 2u);
}

TEST_F(TunerTest, LargeSpacesAreSearchedAndNotTriedWhole) {
  for (int i = 0; i < 200; ++i) {
    op_.Add({.id = "k:a=" + std::to_string(i / 10) + ",b=" + std::to_string(i % 10),
             .duration_ns = 100'000 + 1'000 * (i % 10) + 2'000 * ((i / 10 + 7) % 20)});
  }
  TuningRequest request = op_.Request();
  request.policy.most_variants = 60;
  const TuningResult r = Tune(request, device_, op_, nullptr).value();
  EXPECT_EQ(op_.prepared().size(), 60u);  // the reference is one of them
  EXPECT_EQ(r.winner.id(), "k:a=13,b=0");
  int untried = 0;
  for (const VariantEvidence& e : r.evidence) {
    if (e.outcome != VariantOutcome::kUntried) continue;
    ++untried;
    EXPECT_EQ(e.reason, "not among those that the search tried");
  }
  EXPECT_EQ(untried, 140);
  EXPECT_FALSE(r.budget_spent);
}

// A run that is killed, and the next one that goes on from what it stored.
// Somebody waits: once the patience is spent, only what goes on getting better is gone on with.
TEST_F(TunerTest, LittlePatienceEndsTheSearchWhenItGetsNoBetter) {
  for (int i = 0; i < 64; ++i) {
    op_.Add({.id = "k:a=" + std::to_string(i), .duration_ns = i == 2 ? 80'000 : 100'000 + i});
  }
  op_.SetPrepareTime(absl::Milliseconds(500));
  TuningRequest request = op_.Request();
  request.policy.patience = absl::Seconds(3);
  absl::StatusOr<TuningResult> r = Tune(request, device_, op_, nullptr);
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_EQ(r->winner.id(), "k:a=2");
  EXPECT_FALSE(r->budget_spent);
  size_t tried = 0;
  for (const VariantEvidence& e : r->evidence) tried += e.outcome != VariantOutcome::kUntried;
  EXPECT_GE(tried, 4u);
  EXPECT_LT(tried, 64u);
  EXPECT_THAT(Of(*r, "k:a=63").reason, HasSubstr("search"));
}

TEST_F(TunerTest, WhatIsKnownIsNotTriedAgain) {
  op_.Add({.id = "k:a=1", .duration_ns = 95'000});
  op_.Add({.id = "k:a=2", .duration_ns = 10'000, .misbehaviour = Misbehaviour::kWrongResult});
  op_.Add({.id = "k:a=3", .duration_ns = 90'000});
  op_.Add({.id = "k:a=4", .duration_ns = 500'000});
  op_.Add({.id = "k:a=5", .prepare = absl::InvalidArgumentError("no such register")});
  std::vector<VariantEvidence> stored;
  std::vector<std::string> begun;
  TuningRequest request = op_.Request();
  request.on_out = [&](const VariantEvidence& e) { stored.push_back(e); };
  request.before_first_launch = [&](const Variant& v) { begun.push_back(v.id()); };
  ASSERT_TRUE(Tune(request, device_, op_, nullptr).ok());
  std::map<std::string, VariantOutcome> outcomes;
  for (const VariantEvidence& e : stored) {
    EXPECT_FALSE(e.reason.empty());
    outcomes[e.variant.id()] = e.outcome;
  }
  EXPECT_EQ(outcomes, (std::map<std::string, VariantOutcome>{
                          {"k:a=2", VariantOutcome::kWrong},
                          {"k:a=4", VariantOutcome::kDropped},
                          {"k:a=5", VariantOutcome::kFailed},
                      }));
  EXPECT_THAT(begun, testing::ElementsAre("k:a=1", "k:a=2", "k:a=3", "k:a=4"));

  request = op_.Request();
  request.known = stored;
  const size_t prepared_before = op_.prepared().size();
  const int64_t wrong_launches = device_.launches("k:a=2");
  const TuningResult r = Tune(request, device_, op_, nullptr).value();
  EXPECT_EQ(r.winner.id(), "k:a=3");
  EXPECT_EQ(op_.prepared().size() - prepared_before,
            2u);  // those that were timed, one of them the reference
  EXPECT_EQ(device_.launches("k:a=2"), wrong_launches);
  EXPECT_EQ(Of(r, "k:a=2").outcome, VariantOutcome::kWrong);
  EXPECT_FALSE(Of(r, "k:a=5").reason.empty());
}

TEST_F(TunerTest, SpentBudgetGivesTheBestThatIsKnown) {
  for (int i = 0; i < 60; ++i) {
    op_.Add({.id = "k:a=" + std::to_string(i), .duration_ns = 200'000 - 900 * i});
  }
  op_.SetPrepareTime(absl::Milliseconds(100));
  for (double seconds : {0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 60.0}) {
    TuningRequest request = op_.Request();
    request.policy.budget = absl::Seconds(seconds);
    const int64_t before = device_.clock().MonotonicNanoseconds();
    const absl::StatusOr<TuningResult> r = Tune(request, device_, op_, nullptr);
    ASSERT_TRUE(r.ok()) << seconds << ": " << r.status();
    const double taken = static_cast<double>(device_.clock().MonotonicNanoseconds() - before) / 1e9;
    // One chunk of compiles, one round and one visit are the grain.
    EXPECT_LE(taken, seconds + 4.0) << seconds;
    EXPECT_EQ(r->budget_spent, seconds < 20) << seconds;
    if (seconds < 8) {
      EXPECT_EQ(r->evidence.back().outcome, VariantOutcome::kUntried);
    }
    if (seconds > 20) {
      EXPECT_EQ(r->winner.id(), "k:a=58");  // 0.6 % behind the last, and before it
    }
    EXPECT_TRUE(op_.CallersDataUntouched());
    EXPECT_EQ(device_.live_allocations(), 0);
  }
}

TEST_F(TunerTest, SpentBudgetKeepsTheIncumbent) {
  for (int i = 0; i < 3; ++i) op_.Add({.id = "k:a=" + std::to_string(i)});
  TuningRequest request = op_.Request();
  request.policy.budget = absl::ZeroDuration();
  EXPECT_EQ(Tune(request, device_, op_, nullptr)->winner.id(), "k:a=0");
  request.incumbent = "k:a=1";
  EXPECT_EQ(Tune(request, device_, op_, nullptr)->winner.id(), "k:a=0");  // not verified in time
}

TEST_F(TunerTest, RefusesBadRequests) {
  op_.Add({.id = "k:a=1"});
  TuningRequest request = op_.Request();
  request.scalars.pop_back();
  EXPECT_EQ(Tune(request, device_, op_, nullptr).status().code(),
            absl::StatusCode::kInvalidArgument);
  request = op_.Request();
  request.pointers[1] = request.pointers[0];
  request.pointers[1] = static_cast<float*>(request.pointers[1]) + 1;
  EXPECT_EQ(Tune(request, device_, op_, nullptr).status().code(),
            absl::StatusCode::kInvalidArgument);
  device_.SetFreeMemory(100);
  EXPECT_EQ(Tune(op_.Request(), device_, op_, nullptr).status().code(),
            absl::StatusCode::kResourceExhausted);
  device_.SetFreeMemory(1 << 30);
  device_.SetCapturing(true);
  EXPECT_EQ(Tune(op_.Request(), device_, op_, nullptr).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(device_.calls(FakeDevice::Call::kAllocate), 0);
}

// Every call of the device fails once, at every place where it can: the result is a winner or a
// status, nothing leaks and the caller's data stays.
TEST_F(TunerTest, TheNthCallFails) {
  op_.Add({.id = "k:a=1", .duration_ns = 1'000'000});
  op_.Add({.id = "k:a=2", .duration_ns = 900'000});
  for (FakeDevice::Call call :
       {FakeDevice::Call::kLaunch, FakeDevice::Call::kAllocate, FakeDevice::Call::kCopy,
        FakeDevice::Call::kFill, FakeDevice::Call::kRecord, FakeDevice::Call::kElapsed,
        FakeDevice::Call::kSynchronize}) {
    for (bool lost : {false, true}) {
      int64_t step = 1;
      for (int64_t nth = 1;; nth += step) {
        if (nth > 40) step = 97;  // hundreds of launches in the finals are all alike
        FakeDevice device;
        FakeVariants op(device, 100);
        op.Add({.id = "k:a=1", .duration_ns = 1'000'000});
        op.Add({.id = "k:a=2", .duration_ns = 900'000});
        device.Fail(call, static_cast<int>(nth),
                    lost ? absl::UnavailableError("lost") : absl::InternalError("broken"), lost);
        const absl::StatusOr<TuningResult> r = Tune(op.Request(), device, op, nullptr);
        EXPECT_TRUE(op.CallersDataUntouched());
        EXPECT_EQ(device.live_allocations(), 0);
        if (device.calls(call) < nth) {
          EXPECT_TRUE(r.ok());
          break;
        }
        if (lost) {
          EXPECT_EQ(r.status().code(), absl::StatusCode::kUnavailable) << nth;
        }
        if (r.ok()) {
          EXPECT_THAT(r->winner.id(), testing::AnyOf("k:a=1", "k:a=2"));
        }
      }
    }
  }
}

}  // namespace
}  // namespace whet
