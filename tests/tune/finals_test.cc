#include "src/tune/finals.h"

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/arguments.h"
#include "tests/support/fake_device.h"

namespace whet {
namespace {

// After a change of kernel the old speed holds for 15 ms; then the new kernel's own settles with a
// time constant of 40 ms. Kernel 0 draws more power: its clock falls by 10 %, others' by 2 %.
class LaggingClock final : public TimingModel {
 public:
  int64_t DurationNanoseconds(int kernel, int64_t nominal_ns, int64_t start_ns, int64_t) override {
    if (kernel != kernel_) {
      kernel_ = kernel;
      changed_ns_ = start_ns;
      from_ = now_;
      order_.push_back(kernel);
    }
    const double target = kernel == 0 ? 0.90 : 0.98;
    const double since = static_cast<double>(start_ns - changed_ns_) - 15e6;
    now_ = since <= 0 ? from_ : target + (from_ - target) * std::exp(-since / 40e6);
    return static_cast<int64_t>(static_cast<double>(nominal_ns) / now_);
  }
  const std::vector<int>& order() const { return order_; }

 private:
  int kernel_ = -1;
  int64_t changed_ns_ = 0;
  double from_ = 1, now_ = 1;
  std::vector<int> order_;
};

class FinalsTest : public testing::Test {
 protected:
  FinalsTest()
      : arguments_({TensorArgument("y", Direction::kOut, DType::kF32, {1})}),
        scratch_(Scratch::Create(arguments_, {&y_}, device_, nullptr).value()),
        watch_(device_, nullptr, scratch_) {
    device_.SetTimingModel(&clock_);
    device_.SetClockLag(absl::Milliseconds(100));
  }

  void Add(int64_t duration_ns, bool incumbent = false) {
    auto c = std::make_unique<Candidate>();
    c->index = static_cast<int>(candidates_.size());
    c->kernel = device_.AddKernel("k" + std::to_string(c->index), nullptr, duration_ns);
    c->pack = std::make_unique<ArgumentPack>(arguments_, std::vector<TensorMap>());
    scratch_.Bind(*c->pack);
    c->estimate_ns = static_cast<double>(duration_ns);
    inputs_.push_back({.candidate = c.get(), .incumbent = incumbent});
    candidates_.push_back(std::move(c));
  }

  float y_ = 0;
  FakeDevice device_;
  LaggingClock clock_;
  std::vector<Argument> arguments_;
  Scratch scratch_;
  Stopwatch watch_;
  std::vector<std::unique_ptr<Candidate>> candidates_;
  std::vector<FinalistInput> inputs_;
};

bool Always() { return true; }

TEST_F(FinalsTest, EachIsTimedAtItsOwnSteadyStateByTurns) {
  Add(1'000'000);  // faster at the same clock, slower at its own
  Add(1'050'000);
  const FinalsResult r = RunFinals(inputs_, watch_, {}, Always).value();
  EXPECT_EQ(r.deciding[r.decision.winner], 1u);
  EXPECT_NEAR(r.decision.median_ns[0], 1e6 / 0.90, 1e6 * 0.005);
  EXPECT_NEAR(r.decision.median_ns[1], 1.05e6 / 0.98, 1e6 * 0.005);
  EXPECT_THAT(clock_.order(), testing::ElementsAre(0, 1, 0, 1));
  for (const FinalistResult& f : r.finalists) {
    EXPECT_TRUE(f.steady);
    EXPECT_EQ(f.visits.size(), 2u);
    EXPECT_GE(f.soak_ns, 80e6);
    EXPECT_GE(f.telemetry.size(), 5u);
  }
}

TEST_F(FinalsTest, FixedSoakIsTakenAtItsWord) {
  Add(1'000'000);
  const FinalsResult r =
      RunFinals(inputs_, watch_, {.soak = absl::Milliseconds(300)}, Always).value();
  EXPECT_NEAR(r.finalists[0].soak_ns, 300e6, 12e6);
  EXPECT_EQ(r.finalists[0].visits.size(), 1u);  // nobody to tell it from
}

TEST_F(FinalsTest, WhoIsFarBehindIsVisitedOnce) {
  Add(1'000'000);  // its clock falls
  Add(1'000'000);
  Add(1'500'000);
  Add(1'010'000);
  const FinalsResult r = RunFinals(inputs_, watch_, {}, Always).value();
  for (size_t far : {0, 2}) {
    EXPECT_EQ(r.finalists[far].visits.size(), 1u);
    EXPECT_GT(r.finalists[far].place, 2);
    EXPECT_GT(r.finalists[far].behind, 0.05);
  }
  for (size_t near : {1, 3}) {
    EXPECT_EQ(r.finalists[near].visits.size(), 2u);
    EXPECT_EQ(r.finalists[near].place, 0);
  }
  EXPECT_THAT(r.deciding, testing::ElementsAre(1, 3));
  EXPECT_EQ(r.deciding[r.decision.winner], 1u);
}

TEST_F(FinalsTest, OnlySoManyGoOn) {
  Add(1'200'000);
  for (int i = 0; i < 6; ++i) Add(1'000'000 + 1'000 * i);
  const FinalsResult r = RunFinals(inputs_, watch_, {.places = 2}, Always).value();
  EXPECT_THAT(r.deciding, testing::ElementsAre(1, 2));
}

// The one that looked best when taking turns is disturbed for as long as its first visit takes.
class BusyOnceDevice final : public TimingModel {
 public:
  int64_t DurationNanoseconds(int kernel, int64_t nominal_ns, int64_t start_ns, int64_t) override {
    if (kernel == 0 && begin_ns_ < 0) begin_ns_ = start_ns;
    const bool busy = kernel == 0 && start_ns - begin_ns_ < 170'000'000;
    return busy ? nominal_ns * 13 / 10 : nominal_ns;
  }

 private:
  int64_t begin_ns_ = -1;
};

TEST_F(FinalsTest, WhoLosesMoreThanCanBeBelievedIsVisitedAgain) {
  BusyOnceDevice busy;
  device_.SetTimingModel(&busy);
  Add(1'000'000);
  Add(1'030'000);
  for (auto& c : candidates_) c->screened_ns = c->estimate_ns;
  const FinalsResult r = RunFinals(inputs_, watch_, {}, Always).value();
  EXPECT_GE(r.finalists[0].visits.size(), 2u);
  EXPECT_EQ(r.deciding[r.decision.winner], 0u);
}

TEST_F(FinalsTest, IncumbentFarBehindIsVisitedAgain) {
  Add(1'000'000);
  Add(1'500'000, /*incumbent=*/true);
  const FinalsResult r = RunFinals(inputs_, watch_, {}, Always).value();
  EXPECT_EQ(r.finalists[1].visits.size(), 2u);
  EXPECT_EQ(r.deciding[r.decision.winner], 0u);
}

TEST_F(FinalsTest, StoppedInTheHeatsNothingIsDecided) {
  Add(1'000'000);
  Add(1'500'000);
  const FinalsResult r = RunFinals(inputs_, watch_, {}, [] { return false; }).value();
  EXPECT_EQ(r.finalists[0].visits.size(), 1u);
  EXPECT_EQ(r.finalists[1].visits.size(), 0u);
  EXPECT_TRUE(r.deciding.empty());
}

TEST_F(FinalsTest, StoppedAfterTheHeatsTheyDecide) {
  Add(1'020'000);
  Add(1'100'000);
  int visits = 1;
  const FinalsResult r = RunFinals(inputs_, watch_, {}, [&] { return ++visits <= 2; }).value();
  EXPECT_EQ(r.finalists[0].visits.size(), 1u);
  EXPECT_EQ(r.finalists[1].visits.size(), 1u);
  EXPECT_EQ(r.deciding[r.decision.winner], 1u);
}

TEST_F(FinalsTest, AFailingFinalistIsOutAndALostDeviceIsTheEnd) {
  Add(1'000'000);
  Add(1'020'000);
  device_.Fail(FakeDevice::Call::kLaunch, 50, absl::InternalError("broken"));
  FinalsResult r = RunFinals(inputs_, watch_, {}, Always).value();
  EXPECT_EQ(r.finalists[0].error.message(), "broken");
  EXPECT_THAT(r.deciding, testing::ElementsAre(1));
  EXPECT_EQ(r.decision.winner, 0u);

  device_.Fail(FakeDevice::Call::kLaunch, 50, absl::InternalError("broken"), /*for_ever=*/true);
  r = RunFinals(inputs_, watch_, {}, Always).value();
  EXPECT_TRUE(r.deciding.empty());

  device_.Fail(FakeDevice::Call::kLaunch, 50, absl::UnavailableError("lost"));
  EXPECT_EQ(RunFinals(inputs_, watch_, {}, Always).status().message(), "lost");
}

// A clock that never comes to rest.
class RestlessClock final : public TimingModel {
 public:
  int64_t DurationNanoseconds(int, int64_t nominal_ns, int64_t start_ns, int64_t) override {
    return nominal_ns + start_ns / 1000;
  }
};

TEST_F(FinalsTest, NeverFlatIsTimedAfterTheLongestSoakAndSaysSo) {
  RestlessClock restless;
  device_.SetTimingModel(&restless);
  Add(1'000'000);
  const FinalsResult r =
      RunFinals(inputs_, watch_, {.longest_soak = absl::Milliseconds(400)}, Always).value();
  EXPECT_FALSE(r.finalists[0].steady);
  EXPECT_NEAR(r.finalists[0].soak_ns, 400e6, 25e6);
}

}  // namespace
}  // namespace whet
