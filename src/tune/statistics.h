// Estimators for noisy timings. Robust: a few launches that took ten times as long (an interrupt, a
// neighbour) must not move them.
//
//   double m = Median(samples);
//   Interval i = MedianInterval(samples);        // i.low <= m <= i.high
//   bool settled = IsFlat(samples, /*tolerance=*/0.004);
//
// All are pure functions; none looks at the order of samples but IsFlat and RelativeDrift.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace whet {

struct Interval {
  double low = 0;
  double high = 0;
};

// The middle value, or the mean of the two middle ones; 0 for no samples.
double Median(absl::Span<const double> samples);

// Linear interpolation between order statistics; `q` in 0..1; 0 for no samples.
double Quantile(absl::Span<const double> samples, double q);

// Distribution-free 95 % confidence interval of the median from order statistics: true coverage is
// at least 95 % for independent samples whatever their distribution. With fewer than 6 samples
// there is no such interval and the whole range stands in for it. {0, 0} for no samples.
Interval MedianInterval(absl::Span<const double> samples);

// 95 % confidence interval of the median by bootstrap of `blocks` consecutive blocks, for samples
// that depend on their neighbours (a clock that wanders): it is as wide as the blocks disagree. The
// same seed gives the same interval. {0, 0} for no samples.
Interval BlockBootstrapInterval(absl::Span<const double> samples, int blocks, uint64_t seed);

// The change over the whole series, relative to its median, by the median of pairwise slopes of up
// to 24 block medians (Theil-Sen: a fifth of the blocks may be anything). 0.02: it grew by 2 %. 0
// for fewer than 8 samples.
double RelativeDrift(absl::Span<const double> samples);

// Whether the series has no drift beyond `tolerance` either way, neither by slope nor between its
// first and second half. False for fewer than 8 samples: nothing is known then.
bool IsFlat(absl::Span<const double> samples, double tolerance);

// The 97.5 % quantile of Student's t, what a two-sided 95 % interval is made of. `degrees` >= 1.
double StudentT975(double degrees);

// Medians of `blocks` consecutive pieces of nearly equal size; fewer pieces when there are fewer
// samples.
std::vector<double> BlockMedians(absl::Span<const double> samples, int blocks);

}  // namespace whet
