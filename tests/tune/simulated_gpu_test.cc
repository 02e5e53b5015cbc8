// The simulated GPU against the figures that it is fit to.

#include "tests/support/simulated_gpu.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"
#include "src/tune/statistics.h"

namespace whet {
namespace {

constexpr double kBoostNs = 843'100;

// Runs launches back to back and gives the median of those that start in [from, to) ms after now.
class Trace {
 public:
  Trace(SimulatedGpu& gpu, double& now_ns, int kernel, double length_ms) {
    const double begin = now_ns;
    while (now_ns - begin < length_ms * 1e6) {
      const auto start = static_cast<int64_t>(now_ns);
      const auto ns = static_cast<double>(gpu.DurationNanoseconds(kernel, 0, start, start));
      at_ms_.push_back((now_ns - begin) / 1e6);
      ms_.push_back(ns / 1e6);
      now_ns += ns;
    }
  }
  double Between(double from_ms, double to_ms) const {
    std::vector<double> part;
    for (size_t i = 0; i < ms_.size(); ++i) {
      if (at_ms_[i] >= from_ms && at_ms_[i] < to_ms) part.push_back(ms_[i]);
    }
    return Median(part);
  }
  double Longest() const { return *std::max_element(ms_.begin(), ms_.end()); }

 private:
  std::vector<double> at_ms_, ms_;
};

class SimulatedGpuTest : public testing::TestWithParam<uint64_t> {
 protected:
  SimulatedGpuTest() : gpu_({.seed = GetParam()}) {
    gpu_.AddKernel({.boost_ns = kBoostNs, .watts = SimulatedGpu::kWattsZeros});
    gpu_.AddKernel({.boost_ns = kBoostNs, .watts = SimulatedGpu::kWattsNormal});
  }
  SimulatedGpu gpu_;
  double now_ns_ = 0;
};

TEST_P(SimulatedGpuTest, FromIdleToNormalData) {
  const Trace t(gpu_, now_ns_, 1, 1500);
  EXPECT_NEAR(t.Between(0, 5), 0.889, 0.01);  // boost, less what the fast limiter takes
  EXPECT_NEAR(t.Between(85, 120), 1.00, 0.03);
  EXPECT_NEAR(t.Between(200, 700), 1.006, 0.02);
  EXPECT_GT(t.Between(900, 1000), 1.03);  // the dip, measured 1.07 to 1.085
  EXPECT_NEAR(t.Between(1200, 1500), 1.012, 0.025);
  EXPECT_NEAR(gpu_.SteadyNanoseconds(1) / 1e6, 1.018, 0.01);
  EXPECT_GT(t.Longest(), 1.2);
}

TEST_P(SimulatedGpuTest, FromNormalDataToZerosAndBack) {
  Trace(gpu_, now_ns_, 1, 2000);
  const Trace zeros(gpu_, now_ns_, 0, 1000);
  EXPECT_NEAR(zeros.Between(100, 400), 0.848, 0.012);
  EXPECT_NEAR(zeros.Between(400, 1000), 0.843, 0.004);
  EXPECT_NEAR(gpu_.SteadyNanoseconds(0) / 1e6, 0.8431, 1e-6);
  const Trace back(gpu_, now_ns_, 1, 300);
  EXPECT_NEAR(back.Between(0, 3), 0.887, 0.01);
  EXPECT_NEAR(back.Between(100, 300), 1.00, 0.03);
}

TEST_P(SimulatedGpuTest, GapsKeepTheClockNearBoost) {
  std::vector<double> medians;
  for (int i = 0; i < 20; ++i) {
    medians.push_back(Trace(gpu_, now_ns_, 1, 30).Between(0, 30));
    now_ns_ += 25e6;
  }
  EXPECT_LT(Median(medians), 0.925);
}

TEST_P(SimulatedGpuTest, TakingTurnsMeansTheAverageClock) {
  // Twice the launches of either in turn: both run at one clock, and a difference that is there
  // alone is hidden.
  SimulatedGpu gpu({.seed = GetParam(), .wander = 0});
  gpu.AddKernel({.boost_ns = 1e6, .watts = 950});
  gpu.AddKernel({.boost_ns = 1e6, .watts = 800});
  std::vector<double> a, b;
  for (int i = 0; i < 2000; ++i) {
    const int kernel = i % 2;
    const auto start = static_cast<int64_t>(now_ns_);
    const auto ns = static_cast<double>(gpu.DurationNanoseconds(kernel, 0, start, start));
    now_ns_ += ns;
    if (i > 400) (kernel == 0 ? a : b).push_back(ns);
  }
  const double alone = gpu.SteadyNanoseconds(0) / gpu.SteadyNanoseconds(1);
  EXPECT_NEAR(alone, 1.071, 0.005);
  EXPECT_LT(Median(a) / Median(b), 1.03);
}

INSTANTIATE_TEST_SUITE_P(Seeds, SimulatedGpuTest, testing::Values(1, 2, 3));

}  // namespace
}  // namespace whet
