// Live tuning on the device in virtual time: every call's result is looked at.
#include "src/runtime/live/live_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"
#include "tests/support/fake_variants.h"
#include "tests/support/live_harness.h"
#include "tests/support/simulated_space.h"

namespace whet {
namespace {

using ::testing::HasSubstr;

// One problem with its live calls; y = 2 x is checked after every call.
class Live {
 public:
  Live(FakeDevice& device, FakeVariants& op, LiveOptions options = {}) {
    request_ = op.Request();
    first_ = *FakePlan(device, op, request_.variants.front());
    options = FakeLiveOptions(device, op, background_, std::move(options));
    variants_ = static_cast<FakeLiveVariants*>(options.variants.get());
    options.on_settled = [this](const LiveOutcome& outcome) { outcomes_.push_back(outcome); };
    calls_ = std::make_unique<LiveCalls>(*first_, std::move(options));
    first_->set_live(calls_.get());
    x_ = *static_cast<float**>(static_cast<void*>(&request_.pointers[0]));
    y_ = *static_cast<float**>(static_cast<void*>(&request_.pointers[1]));
    elements_ = request_.arguments[0].shape[0];
  }

  void Tune() { calls_->Tune(request_.variants, /*incumbent=*/false); }

  absl::Status Call() {
    std::fill_n(y_, elements_, -1.0f);
    absl::Status status = first_->Launch(args_, nullptr);
    if (status.ok()) {
      wrong_ += std::any_of(y_, y_ + elements_, [this](float v) { return v != 2 * x_[0]; });
    }
    background_.Run();
    return status;
  }
  void Calls(int n) {
    for (int i = 0; i < n; ++i) ASSERT_TRUE(Call().ok());
  }

  void SetInput(float* x) { x_ = x; }
  LiveCalls& calls() { return *calls_; }
  const std::vector<LiveOutcome>& outcomes() const { return outcomes_; }
  FakeLiveVariants& variants() { return *variants_; }
  const std::vector<Variant>& list() const { return request_.variants; }
  const TuningRequest& request() const { return request_; }
  int wrong() const { return wrong_; }
  std::string current() const { return calls_->Current().resolution().variant; }
  const VariantEvidence& Of(const std::string& id) const {
    for (const VariantEvidence& e : outcomes_.back().result.evidence) {
      if (e.variant.id() == id) return e;
    }
    ADD_FAILURE() << "no evidence of " << id;
    return outcomes_.back().result.evidence.front();
  }

 private:
  TuningRequest request_;
  LaterBackground background_;
  std::unique_ptr<Plan> first_;
  FakeLiveVariants* variants_ = nullptr;
  std::unique_ptr<LiveCalls> calls_;
  std::vector<LiveOutcome> outcomes_;
  float *x_ = nullptr, *y_ = nullptr;
  void* args_[2] = {&x_, &y_};
  int64_t elements_ = 0;
  int wrong_ = 0;
};

class LiveCallsTest : public ::testing::Test {
 protected:
  void Add(const char* id, int64_t duration_ns, Misbehaviour how = Misbehaviour::kNone,
           absl::Status prepare = absl::OkStatus()) {
    op_.Add({.id = id, .duration_ns = duration_ns, .misbehaviour = how, .prepare = prepare});
  }
  FakeDevice device_;
  FakeVariants op_{device_, 500};
};

TEST_F(LiveCallsTest, TheFirstCallLaunchesOnceAndTheBestIsFound) {
  Add("k:a=1", 300'000);
  Add("k:a=2", 200'000);
  Add("k:a=3", 260'000);
  Live live(device_, op_);
  live.Tune();
  ASSERT_TRUE(live.Call().ok());
  EXPECT_EQ(device_.calls(FakeDevice::Call::kLaunch), 1);
  EXPECT_EQ(live.variants().loads(), 0);
  live.Calls(1000);
  EXPECT_EQ(live.wrong(), 0);
  EXPECT_FALSE(live.calls().busy());
  EXPECT_EQ(live.current(), "k:a=2");
  ASSERT_EQ(live.outcomes().size(), 1u);
  EXPECT_EQ(live.outcomes()[0].result.winner.id(), "k:a=2");
  EXPECT_NEAR(live.outcomes()[0].result.gain, 1.5, 0.02);
  EXPECT_FALSE(live.outcomes()[0].signature.inputs.empty());
  EXPECT_EQ(device_.live_allocations(), 0);
  EXPECT_EQ(live.calls().counters().admissions, 2);
}

TEST_F(LiveCallsTest, WhoTheBudgetDidNotReachGetsAnotherRound) {
  for (int a = 1; a < 8; ++a) Add(absl::StrCat("k:a=", a).c_str(), 200'000);
  Add("k:a=8", 150'000);
  for (const bool watched : {true, false}) {
    SCOPED_TRACE(watched);
    LiveOptions options;
    options.online.slowdown = 0.002;  // two calls of 1,000: a verification or two
    options.drift = {.every_calls = 100, .share = 1};
    options.watch_drift = watched;
    Live live(device_, op_, std::move(options));
    live.Tune();
    for (int n = 0; live.outcomes().empty() && n < 400; ++n) live.Calls(1);
    ASSERT_EQ(live.outcomes().size(), 1u) << "an empty budget is settled, and said";
    EXPECT_EQ(live.Of("k:a=8").outcome, VariantOutcome::kUntried);
    EXPECT_EQ(live.current(), "k:a=1");
    live.Calls(5000);
    EXPECT_EQ(live.current(), watched ? "k:a=8" : "k:a=1");
    if (!watched) EXPECT_EQ(live.outcomes().size(), 1u);
    EXPECT_EQ(live.wrong(), 0);
    EXPECT_FALSE(live.calls().busy());
  }
}

TEST_F(LiveCallsTest, WhatIsWrongOrBrokenNeverReachesTheCaller) {
  Add("k:a=1", 300'000);
  Add("k:a=2", 100'000, Misbehaviour::kWrongResult);
  Add("k:a=3", 100'000, Misbehaviour::kForgetsElement);
  Add("k:a=4", 100'000, Misbehaviour::kWritesPastEnd);
  Add("k:a=5", 100'000, Misbehaviour::kWritesBeforeStart);
  Add("k:a=6", 100'000, Misbehaviour::kNone, absl::InvalidArgumentError("does not load"));
  Add("k:a=7", 250'000);
  Live live(device_, op_);
  live.Tune();
  live.Calls(1000);
  EXPECT_EQ(live.wrong(), 0);
  EXPECT_EQ(live.current(), "k:a=7");
  ASSERT_EQ(live.outcomes().size(), 1u);
  EXPECT_EQ(live.Of("k:a=2").outcome, VariantOutcome::kWrong);
  EXPECT_THAT(live.Of("k:a=2").reason, HasSubstr("differs from the running variant's"));
  EXPECT_EQ(live.Of("k:a=3").outcome, VariantOutcome::kWrong);
  EXPECT_THAT(live.Of("k:a=4").reason, HasSubstr("past the end of argument y"));
  EXPECT_THAT(live.Of("k:a=5").reason, HasSubstr("before argument y"));
  EXPECT_EQ(live.Of("k:a=6").outcome, VariantOutcome::kFailed);
  EXPECT_THAT(live.Of("k:a=6").reason, HasSubstr("does not load"));
}

TEST_F(LiveCallsTest, NothingHappensWhileTheStreamIsCaptured) {
  Add("k:a=1", 300'000);
  Add("k:a=2", 200'000);
  Live live(device_, op_);
  live.Tune();
  live.Calls(5);
  device_.SetCapturing(true);
  const int loads = live.variants().loads(), fetches = live.variants().fetches();
  const int64_t launches = device_.calls(FakeDevice::Call::kLaunch);
  const int64_t allocations = device_.calls(FakeDevice::Call::kAllocate);
  const int64_t events = device_.calls(FakeDevice::Call::kRecord);
  const int64_t copies = device_.calls(FakeDevice::Call::kCopy);
  live.Calls(50);
  EXPECT_EQ(device_.calls(FakeDevice::Call::kLaunch), launches + 50);
  EXPECT_EQ(device_.calls(FakeDevice::Call::kAllocate), allocations);
  EXPECT_EQ(device_.calls(FakeDevice::Call::kRecord), events);
  EXPECT_EQ(device_.calls(FakeDevice::Call::kCopy), copies);
  EXPECT_EQ(live.variants().loads(), loads);
  EXPECT_EQ(live.variants().fetches(), fetches);
  device_.SetCapturing(false);
  live.Calls(1000);
  EXPECT_EQ(live.current(), "k:a=2");
  EXPECT_EQ(live.wrong(), 0);
}

TEST_F(LiveCallsTest, WithoutRoomForScratchWhatRunsStays) {
  Add("k:a=1", 300'000);
  Add("k:a=2", 200'000);
  device_.SetFreeMemory(1000);
  Live live(device_, op_);
  live.Tune();
  live.Calls(100);
  EXPECT_EQ(live.current(), "k:a=1");
  EXPECT_FALSE(live.calls().busy());
  EXPECT_EQ(live.wrong(), 0);
  ASSERT_EQ(live.outcomes().size(), 1u);
  EXPECT_THAT(live.Of("k:a=2").reason, HasSubstr("scratch"));
}

// The N-th call of each kind fails, once and for ever: the caller's launches fail only where they
// would have failed without tuning, and no result is wrong.
TEST_F(LiveCallsTest, TheNthDeviceCallFails) {
  using Call = FakeDevice::Call;
  for (const Call kind :
       {Call::kAllocate, Call::kCopy, Call::kFill, Call::kRecord, Call::kElapsed}) {
    for (const bool for_ever : {false, true}) {
      for (int nth = 1; nth <= 40; nth += 3) {
        FakeDevice device;
        FakeVariants op(device, 100);
        op.Add({.id = "k:a=1", .duration_ns = 300'000});
        op.Add({.id = "k:a=2", .duration_ns = 200'000});
        Live live(device, op);
        live.Tune();
        device.Fail(kind, nth, absl::InternalError("injected"), for_ever);
        for (int call = 0; call < 200; ++call) ASSERT_TRUE(live.Call().ok());
        EXPECT_EQ(live.wrong(), 0) << static_cast<int>(kind) << " " << nth;
      }
    }
  }
}

TEST_F(LiveCallsTest, ALaunchThatFailsIsTheCallersErrorAndTuningGoesOn) {
  Add("k:a=1", 300'000);
  Add("k:a=2", 200'000);
  Live live(device_, op_);
  live.Tune();
  device_.Fail(FakeDevice::Call::kLaunch, 3, absl::InternalError("injected"));
  int failures = 0;
  for (int call = 0; call < 500; ++call) failures += !live.Call().ok();
  EXPECT_LE(failures, 1);
  EXPECT_EQ(live.wrong(), 0);
}

// What launches cost now, by kernel.
class Durations final : public TimingModel {
 public:
  std::vector<int64_t> ns;
  int64_t DurationNanoseconds(int kernel, int64_t, int64_t, int64_t) override {
    return ns[static_cast<size_t>(kernel)];
  }
};

class DriftTest : public LiveCallsTest {
 protected:
  DriftTest() : zeros_(500, 0.0f), noise_(500) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    // Small whole numbers, so that twice of them is exact; all alike so that the check is simple.
    for (float& v : noise_) v = normal(random);
    device_.SetTimingModel(&durations_);
  }
  DataSignature SignatureOfInput(const Live& live, const std::vector<float>& x) {
    DataSignature signature;
    signature.inputs.push_back(
        SignatureOf(live.request().arguments[0],
                    absl::string_view(reinterpret_cast<const char*>(x.data()), x.size() * 4)));
    return signature;
  }
  Durations durations_;
  std::vector<float> zeros_, noise_;
};

TEST_F(DriftTest, OtherDataIsNoticedAndTheBestFewAreTriedAgain) {
  Add("k:a=1", 0);
  Add("k:a=2", 0);
  Add("k:a=3", 0);
  durations_.ns = {200'000, 210'000, 300'000};
  LiveOptions options;
  options.drift = {.every_calls = 100, .share = 1};
  Live live(device_, op_, std::move(options));
  // Tuned on noise; what comes are ones.
  live.calls().Watch(SignatureOfInput(live, noise_), 200'000, live.list());
  durations_.ns = {200'000, 150'000, 300'000};
  live.Calls(3000);
  EXPECT_EQ(live.calls().counters().drifts, 1);
  EXPECT_EQ(live.current(), "k:a=2");
  EXPECT_EQ(live.wrong(), 0);
  ASSERT_GE(live.outcomes().size(), 1u);
  EXPECT_LT(SignatureDistance(live.outcomes()[0].signature,
                              SignatureOfInput(live, std::vector<float>(500, 1.5f))),
            kSameClass);
}

TEST_F(DriftTest, AnIncumbentIsReplacedOnlyOnAProvenThreePercent) {
  Add("k:a=1", 0);
  Add("k:a=2", 0);
  for (const auto& [other_ns, winner] :
       {std::pair<int64_t, const char*>(196'000, "k:a=1"), {190'000, "k:a=2"}}) {
    durations_.ns = {200'000, other_ns};
    LiveOptions options;
    options.drift = {.every_calls = 100, .share = 1};
    Live live(device_, op_, std::move(options));
    live.calls().Watch(SignatureOfInput(live, noise_), 200'000, live.list());
    live.Calls(2500);
    EXPECT_EQ(live.calls().counters().drifts, 1) << other_ns;
    EXPECT_EQ(live.current(), winner) << other_ns;
    ASSERT_EQ(live.outcomes().size(), 1u);
    EXPECT_EQ(live.outcomes()[0].result.kept_incumbent, other_ns == 196'000);
    EXPECT_EQ(live.wrong(), 0);
  }
}

TEST_F(DriftTest, ASlowerWinnerIsNoticedAndNothingElseCostsAnything) {
  Add("k:a=1", 0);
  Add("k:a=2", 0);
  durations_.ns = {200'000, 260'000};
  LiveOptions options;
  options.drift = {.every_calls = 200, .share = 1};
  Live live(device_, op_, std::move(options));
  const std::vector<float> ones(500, 1.5f);
  live.calls().Watch(SignatureOfInput(live, ones), 200'000, live.list());
  live.Calls(150);
  EXPECT_EQ(device_.calls(FakeDevice::Call::kRecord), 0) << "a call that is not looked at";
  live.Calls(5000);
  EXPECT_GT(live.calls().counters().checks, 1);
  EXPECT_LT(live.calls().counters().checks, 8) << "looks that find nothing become rarer";
  EXPECT_EQ(live.calls().counters().drifts, 0);
  durations_.ns = {400'000, 260'000};
  live.Calls(20000);
  EXPECT_EQ(live.calls().counters().drifts, 1);
  EXPECT_EQ(live.current(), "k:a=2");
}

// 1,000 calls on the simulated GPU against the best variant all along, with all that tuning costs
// the device. What exploring costs is bounded in every run; that a settled one is itself several
// percent slower at its own steady state, which 0.3 s of calls cannot show, is left to one run of 40.
TEST(LiveCallsSimulationTest, WithinFivePercentOfTheBestAllAlong) {
  double worst = 0;
  int beyond = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const SpaceOptions options{.variants = 8, .space_seed = seed, .noise_seed = seed, .gpu = {}};
    SimulatedSpace ideal(options);
    int best = 0;
    for (int i = 1; i < ideal.variants(); ++i) {
      if (ideal.steady_ns(i) < ideal.steady_ns(best)) best = i;
    }
    TuningRequest request = ideal.request();
    void* args[] = {&request.pointers[0], &request.pointers[1]};
    for (int call = 0; call < 1000; ++call) {
      ASSERT_TRUE(ideal.device().Launch(ideal.kernel(best), {}, args, nullptr).ok());
    }
    ASSERT_TRUE(ideal.device().Synchronize(nullptr).ok());

    SimulatedSpace space(options);
    Live live(space.device(), space.source());
    live.Tune();
    live.Calls(1000);
    ASSERT_TRUE(space.device().Synchronize(nullptr).ok());
    EXPECT_EQ(live.wrong(), 0);
    const double ratio = static_cast<double>(space.device().clock().MonotonicNanoseconds()) /
                         static_cast<double>(ideal.device().clock().MonotonicNanoseconds());
    worst = std::max(worst, ratio);
    beyond += ratio > 1.05;
    const double settled = space.Regret(*Variant::Parse(live.current()));
    EXPECT_LE(ratio - settled, 1.05) << "seed " << seed;
  }
  EXPECT_LE(beyond, 1);
  RecordProperty("worst_ratio", std::to_string(worst));
}

}  // namespace
}  // namespace whet
