#include "src/tune/statistics.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace whet {
namespace {

TEST(StatisticsTest, MedianAndQuantile) {
  EXPECT_EQ(Median({}), 0);
  EXPECT_EQ(Median({3}), 3);
  EXPECT_EQ(Median({4, 1}), 2.5);
  EXPECT_EQ(Median({9, 1, 5}), 5);
  EXPECT_EQ(Median({1, 2, 3, 1000}), 2.5);
  EXPECT_EQ(Quantile({10, 20, 30}, 0), 10);
  EXPECT_EQ(Quantile({10, 20, 30}, 1), 30);
  EXPECT_EQ(Quantile({10, 20, 30}, 0.25), 15);
  EXPECT_EQ(Quantile({10, 20, 30}, 7), 30);
}

TEST(StatisticsTest, MedianIntervalOrderStatistics) {
  // Known table: n = 6 covers 96.9 % with [1st, 6th]; n = 10 97.9 % with [2nd, 9th]; n = 20 95.9 %
  // with [6th, 15th].
  const struct {
    int n;
    int low, high;  // 1-based ranks
  } kCases[] = {{1, 1, 1}, {3, 1, 3}, {5, 1, 5},  {6, 1, 6},
                {8, 1, 8}, {9, 2, 8}, {10, 2, 9}, {20, 6, 15}};
  for (const auto& c : kCases) {
    std::vector<double> samples;
    for (int i = c.n; i >= 1; --i) samples.push_back(i);
    const Interval interval = MedianInterval(samples);
    EXPECT_EQ(interval.low, c.low) << c.n;
    EXPECT_EQ(interval.high, c.high) << c.n;
  }
  EXPECT_EQ(MedianInterval({}).high, 0);
}

// Coverage against a known truth: skewed, heavy-tailed timings around a median of 100.
TEST(StatisticsTest, MedianIntervalCoversTheTruth) {
  std::mt19937 random(17);
  std::lognormal_distribution<double> noise(0, 0.1);
  for (int n : {6, 12, 50, 2500}) {
    int covered = 0;
    constexpr int kRuns = 400;
    for (int run = 0; run < kRuns; ++run) {
      std::vector<double> samples;
      for (int i = 0; i < n; ++i) {
        samples.push_back(100 * noise(random) * (random() % 20 == 0 ? 5 : 1));
      }
      // A twentieth of outliers moves the true median of the mixture by a known little.
      const double truth = 100 * std::exp(0.1 * 0.066);
      const Interval interval = MedianInterval(samples);
      covered += interval.low <= truth && truth <= interval.high;
    }
    EXPECT_GE(covered, kRuns * 0.93) << n;
  }
}

TEST(StatisticsTest, BlockBootstrapIsWideForSamplesThatRemember) {
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  std::vector<double> independent, remembering;
  double state = 0;
  for (int i = 0; i < 4000; ++i) {
    independent.push_back(100 + normal(random));
    state = 0.998 * state + std::sqrt(1 - 0.998 * 0.998) * normal(random);
    remembering.push_back(100 + state);
  }
  const auto width = [](const Interval& i) { return i.high - i.low; };
  const double narrow = width(BlockBootstrapInterval(independent, 10, 1));
  const double wide = width(BlockBootstrapInterval(remembering, 10, 1));
  EXPECT_GT(wide, 5 * narrow);
  EXPECT_GT(wide, 5 * width(MedianInterval(remembering)));  // which believes in independence
  EXPECT_EQ(width(BlockBootstrapInterval(remembering, 10, 1)), wide);  // seeded
  EXPECT_EQ(width(BlockBootstrapInterval({}, 10, 1)), 0);
}

struct TraceCase {
  const char* name;
  double step_at;   // share of the series; 2: none
  double step;      // relative
  double slope;     // relative, over the whole
  double outliers;  // share of samples ten times as long
  bool flat;
};

class FlatnessTest : public testing::TestWithParam<TraceCase> {};

TEST_P(FlatnessTest, FindsDriftUnderNoise) {
  const TraceCase& c = GetParam();
  std::mt19937 random(23);
  std::normal_distribution<double> noise(0, 0.004);
  for (int n : {40, 400, 4000}) {
    std::vector<double> trace;
    for (int i = 0; i < n; ++i) {
      const double at = static_cast<double>(i) / n;
      double value = 1e6 * (1 + c.slope * at + (at >= c.step_at ? c.step : 0) + noise(random));
      if (static_cast<double>(random() % 1000) < c.outliers * 1000) value *= 10;
      trace.push_back(value);
    }
    EXPECT_EQ(IsFlat(trace, 0.006), c.flat)
        << c.name << " with " << n << " samples, drift " << RelativeDrift(trace);
  }
}

INSTANTIATE_TEST_SUITE_P(Traces, FlatnessTest,
                         testing::Values(TraceCase{"Constant", 2, 0, 0, 0, true},
                                         TraceCase{"ConstantWithOutliers", 2, 0, 0, 0.05, true},
                                         TraceCase{"Rising", 2, 0, 0.03, 0, false},
                                         TraceCase{"Falling", 2, 0, -0.03, 0.05, false},
                                         TraceCase{"StepInTheMiddle", 0.5, 0.05, 0, 0, false},
                                         TraceCase{"StepAtTheThird", 0.3, 0.05, 0, 0.02, false}),
                         [](const auto& param) { return param.param.name; });

TEST(StatisticsTest, TooFewSamplesAreNotFlat) {
  EXPECT_FALSE(IsFlat({}, 0.1));
  EXPECT_FALSE(IsFlat(std::vector<double>(7, 1.0), 0.1));
  EXPECT_TRUE(IsFlat(std::vector<double>(8, 1.0), 0.1));
  EXPECT_EQ(RelativeDrift(std::vector<double>(7, 1.0)), 0);
  EXPECT_EQ(RelativeDrift(std::vector<double>(9, 0.0)), 0);
}

TEST(StatisticsTest, RelativeDriftIsTheChangeOverTheSeries) {
  std::vector<double> trace;
  for (int i = 0; i < 1000; ++i) trace.push_back(100 + 0.005 * i);
  EXPECT_NEAR(RelativeDrift(trace), 0.05, 0.004);
}

TEST(StatisticsTest, StudentQuantiles) {
  const struct {
    double degrees, t;
  } kTable[] = {{1, 12.706}, {2, 4.303},  {3, 3.182},  {4, 2.776},   {5, 2.571},
                {8, 2.306},  {15, 2.131}, {30, 2.042}, {1000, 1.962}};
  for (const auto& row : kTable) EXPECT_NEAR(StudentT975(row.degrees), row.t, 0.01) << row.degrees;
}

TEST(StatisticsTest, BlockMedians) {
  EXPECT_EQ(BlockMedians({1, 2, 3, 10, 11, 12}, 2), (std::vector<double>{2, 11}));
  EXPECT_EQ(BlockMedians({1, 2}, 5), (std::vector<double>{1, 2}));
  EXPECT_TRUE(BlockMedians({}, 5).empty());
}

}  // namespace
}  // namespace whet
