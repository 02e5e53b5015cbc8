#include "src/tune/screening.h"

#include <cmath>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/arguments.h"
#include "tests/support/fake_device.h"

namespace whet {
namespace {

TEST(RoundRatioTest, DriftThatBothShareCancels) {
  std::vector<double> leader, other;
  for (int i = 0; i < 9; ++i) {
    leader.push_back(100 * (1 + 0.05 * i));
    other.push_back(108 * (1 + 0.05 * i));
  }
  other[4] *= 10;  // one disturbed round
  const Interval ratio = RoundRatio(other, leader);
  EXPECT_NEAR(ratio.low, 1.08, 1e-9);
  EXPECT_NEAR(ratio.high, 1.08, 1e-9);
  EXPECT_EQ(RoundRatio({}, leader).low, 0);
}

// Every launch is longer by log-normal noise, now and then by a lot, and by a clock that falls.
class NoisyModel final : public TimingModel {
 public:
  explicit NoisyModel(unsigned seed) : random_(seed) {}
  int64_t DurationNanoseconds(int, int64_t nominal_ns, int64_t start_ns, int64_t) override {
    const double clock = 1 + 0.1 * std::min(1.0, static_cast<double>(start_ns) / 50e6);
    const double outlier = random_() % 50 == 0 ? 4 : 1;
    return static_cast<int64_t>(static_cast<double>(nominal_ns) * clock * outlier *
                                std::exp(noise_(random_)));
  }

 private:
  std::mt19937 random_;
  std::normal_distribution<double> noise_{0, 0.01};
};

class ScreeningTest : public testing::Test {
 protected:
  ScreeningTest()
      : arguments_({TensorArgument("y", Direction::kOut, DType::kF32, {1})}),
        scratch_(Scratch::Create(arguments_, {&y_}, device_, nullptr).value()),
        watch_(device_, nullptr, scratch_) {}

  void Add(double duration_ns) {
    auto c = std::make_unique<Candidate>();
    c->index = static_cast<int>(candidates_.size());
    c->kernel = device_.AddKernel("k", nullptr, static_cast<int64_t>(duration_ns));
    c->pack = std::make_unique<ArgumentPack>(arguments_, std::vector<TensorMap>());
    scratch_.Bind(*c->pack);
    c->estimate_ns = duration_ns;
    pointers_.push_back(c.get());
    candidates_.push_back(std::move(c));
  }

  float y_ = 0;
  FakeDevice device_;
  std::vector<Argument> arguments_;
  Scratch scratch_;
  Stopwatch watch_;
  std::vector<std::unique_ptr<Candidate>> candidates_;
  std::vector<Candidate*> pointers_;
};

bool Always(int) { return true; }

TEST_F(ScreeningTest, DropsWhoIsSurelyBeyondTheMargin) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  NoisyModel model(seed);
  device_.SetTimingModel(&model);
  for (double percent : {0, 2, 4, 20, 50, 100}) Add(100'000 * (1 + percent / 100));
  const std::vector<ScreenedCandidate> r =
      Screen(pointers_, watch_, {.enough = 1, .keep = {}}, Always).value();
  for (size_t i : {0, 1, 2}) EXPECT_FALSE(r[i].dropped) << i;
  for (size_t i : {3, 4, 5}) {
    EXPECT_TRUE(r[i].dropped) << i;
    EXPECT_EQ(r[i].dropped_in_round, 5);
    EXPECT_GT(r[i].surely_slower, 0.06);
  }
  EXPECT_EQ(r[0].rounds_ns.size(), 9u);
  EXPECT_NEAR(pointers_[1]->estimate_ns / pointers_[0]->estimate_ns, 1.02, 0.02);
}

TEST_F(ScreeningTest, KeepsWhomItMustKeep) {
  Add(100'000);
  Add(300'000);
  const std::vector<ScreenedCandidate> r =
      Screen(pointers_, watch_, {.enough = 1, .keep = {1}}, Always).value();
  EXPECT_FALSE(r[1].dropped);
}

TEST_F(ScreeningTest, FewEnoughNeedNoMoreThanOneRound) {
  Add(100'000);
  Add(120'000);
  const std::vector<ScreenedCandidate> r =
      Screen(pointers_, watch_, {.enough = 2, .keep = {}}, Always).value();
  EXPECT_EQ(r[0].rounds_ns.size(), 1u);
  EXPECT_FALSE(r[1].dropped);
}

TEST_F(ScreeningTest, EndsWhenToldTo) {
  for (int i = 0; i < 3; ++i) Add(100'000);
  std::vector<int> asked;
  const std::vector<ScreenedCandidate> r =
      Screen(pointers_, watch_, {.enough = 1, .keep = {}}, [&](int done) {
        asked.push_back(done);
        return asked.size() < 4;
      }).value();
  EXPECT_THAT(asked, testing::ElementsAre(0, 0, 1, 2));
  EXPECT_EQ(r[2].rounds_ns.size(), 3u);  // what was enqueued is read
}

TEST_F(ScreeningTest, AFailingCandidateIsOutAndALostDeviceIsTheEnd) {
  for (int i = 0; i < 3; ++i) Add(1'000'000);
  // Two launches per turn: the third belongs to the second candidate.
  device_.Fail(FakeDevice::Call::kLaunch, 3, absl::InternalError("misaligned"));
  std::vector<ScreenedCandidate> r =
      Screen(pointers_, watch_, {.enough = 1, .keep = {}}, Always).value();
  EXPECT_TRUE(r[0].error.ok());
  EXPECT_EQ(r[1].error.message(), "misaligned");
  EXPECT_TRUE(r[2].error.ok());
  EXPECT_EQ(r[2].rounds_ns.size(), 9u);

  device_.Fail(FakeDevice::Call::kElapsed, 3, absl::UnavailableError("lost"));
  EXPECT_EQ(Screen(pointers_, watch_, {.enough = 1, .keep = {}}, Always).status().message(),
            "lost");
}

}  // namespace
}  // namespace whet
