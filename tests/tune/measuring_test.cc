#include "src/tune/measuring.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/arguments.h"
#include "tests/support/fake_device.h"

namespace whet {
namespace {

using testing::Each;

TEST(BatchForTest, FillsTheLength) {
  const struct {
    double estimate_ns;
    absl::Duration length;
    int launches, samples;
  } kCases[] = {
      {1e6, absl::Milliseconds(10), 1, 10}, {20e3, absl::Milliseconds(1), 1, 50},
      {19e3, absl::Milliseconds(1), 2, 26}, {100, absl::Milliseconds(1), 200, 50},
      {5e7, absl::Milliseconds(10), 1, 1},  {0, absl::Milliseconds(1), 20000, 50},
      {20e3, absl::Seconds(10), 1, 2000},
  };
  for (const auto& c : kCases) {
    const Batch batch = BatchFor(c.estimate_ns, c.length);
    EXPECT_EQ(batch.launches_per_sample, c.launches) << c.estimate_ns;
    EXPECT_EQ(batch.samples, c.samples) << c.estimate_ns;
  }
}

// Remembers whether the device ever waited for the host.
class IdleWatch final : public TimingModel {
 public:
  int64_t DurationNanoseconds(int, int64_t nominal_ns, int64_t start_ns,
                              int64_t idle_since_ns) override {
    if (launches_++ > 0) idle_ns_ += start_ns - idle_since_ns;
    return nominal_ns;
  }
  int64_t idle_ns() const { return idle_ns_; }

 private:
  int64_t launches_ = 0;
  int64_t idle_ns_ = 0;
};

class StopwatchTest : public testing::Test {
 protected:
  // (out y, inout z), both one float.
  explicit StopwatchTest(bool reads_back = false)
      : arguments_({TensorArgument("y", reads_back ? Direction::kInOut : Direction::kOut,
                                   DType::kF32, {1})}),
        scratch_(Scratch::Create(arguments_, {&y_}, device_, nullptr).value()),
        watch_(device_, nullptr, scratch_) {
    device_.SetTimingModel(&idle_);
  }

  Candidate Make(int64_t duration_ns, FakeDevice::Function function = nullptr) {
    Candidate c;
    c.kernel = device_.AddKernel("k", std::move(function), duration_ns);
    c.pack = std::make_unique<ArgumentPack>(arguments_, std::vector<TensorMap>());
    scratch_.Bind(*c.pack);
    c.estimate_ns = static_cast<double>(duration_ns);
    return c;
  }

  float y_ = 1;
  FakeDevice device_;
  IdleWatch idle_;
  std::vector<Argument> arguments_;
  Scratch scratch_;
  Stopwatch watch_;
};

// All but the first: into that one the host leaks, because the queue was empty.
std::vector<double> WithoutFirst(std::vector<double> samples) {
  EXPECT_FALSE(samples.empty());
  samples.erase(samples.begin());
  return samples;
}

TEST_F(StopwatchTest, SamplesAreOneLaunch) {
  for (int64_t duration : {50'000, 3'000'000}) {
    Candidate c = Make(duration);
    Stopwatch::Ticket ticket = watch_.Enqueue(c, {.samples = 7}).value();
    const std::vector<double> samples = watch_.Read(std::move(ticket)).value();
    EXPECT_EQ(samples.size(), 7u);
    EXPECT_THAT(WithoutFirst(samples), Each(static_cast<double>(duration)));
  }
}

TEST_F(StopwatchTest, RunUntilNeverLetsTheQueueRunDry) {
  for (int64_t duration : {5'000, 100'000, 30'000'000}) {
    Candidate c = Make(duration);
    const int64_t idle_before = idle_.idle_ns();
    int asked = 0;
    const std::vector<double> samples =
        watch_
            .RunUntil(c,
                      [&](absl::Span<const double>, double elapsed_ns) {
                        ++asked;
                        device_.HostWorks(1'000'000);  // looking at the samples takes a while
                        return elapsed_ns >= 200e6;
                      })
            .value();
    EXPECT_THAT(WithoutFirst(samples), Each(static_cast<double>(duration)));
    EXPECT_GE(asked, 7);
    // What the first launch waited for the host is all.
    EXPECT_LE(idle_.idle_ns() - idle_before, 12'000'000) << duration;
  }
}

TEST_F(StopwatchTest, LaunchErrorsComeBackAndNothingLeaks) {
  for (FakeDevice::Call call :
       {FakeDevice::Call::kLaunch, FakeDevice::Call::kRecord, FakeDevice::Call::kElapsed}) {
    Candidate c = Make(100'000);
    device_.Fail(call, 150, absl::InternalError("broken"));
    const absl::Status status =
        watch_.RunUntil(c, [](absl::Span<const double>, double ns) { return ns > 1e9; }).status();
    EXPECT_EQ(status.message(), "broken");
    // The watch is as good as new.
    EXPECT_TRUE(watch_.RunUntil(c, [](absl::Span<const double>, double) { return true; }).ok());
  }
}

class RestoringStopwatchTest : public StopwatchTest {
 protected:
  RestoringStopwatchTest() : StopwatchTest(/*reads_back=*/true) {}
};

TEST_F(RestoringStopwatchTest, EveryTimedLaunchSeesTheCallersValue) {
  std::vector<float> seen;
  Candidate c = Make(5'000, [&](void* const* params) {
    float& y = **static_cast<float* const*>(params[0]);
    seen.push_back(y);
    y *= 2;
  });
  Stopwatch::Ticket ticket = watch_.Enqueue(c, {.launches_per_sample = 4, .samples = 6}).value();
  const std::vector<double> samples = watch_.Read(std::move(ticket)).value();
  EXPECT_EQ(samples.size(), 6u);
  EXPECT_THAT(WithoutFirst(samples), Each(5'000));
  EXPECT_THAT(seen, testing::AllOf(testing::SizeIs(6), Each(1.0f)));
  EXPECT_EQ(y_, 1.0f);
}

}  // namespace
}  // namespace whet
