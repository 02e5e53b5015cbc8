#include "src/tune/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>

namespace whet {
namespace {

constexpr size_t kDriftSamples = 8;
constexpr int kDriftBlocks = 24;

// P(X <= k) for X binomial(n, 1/2), by the log of factorials: exact enough for any n.
double BinomialHalfCdf(int64_t k, int64_t n) {
  double sum = 0;
  const double log_all = static_cast<double>(n) * std::log(2.0);
  for (int64_t i = 0; i <= k; ++i) {
    sum +=
        std::exp(std::lgamma(static_cast<double>(n + 1)) - std::lgamma(static_cast<double>(i + 1)) -
                 std::lgamma(static_cast<double>(n - i + 1)) - log_all);
  }
  return sum;
}

}  // namespace

double Quantile(absl::Span<const double> samples, double q) {
  if (samples.empty()) return 0;
  std::vector<double> sorted(samples.begin(), samples.end());
  const double position = std::clamp(q, 0.0, 1.0) * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::ptrdiff_t>(position);
  std::nth_element(sorted.begin(), sorted.begin() + below, sorted.end());
  const double low = sorted[static_cast<size_t>(below)];
  if (static_cast<size_t>(below) + 1 == sorted.size()) return low;
  const double high = *std::min_element(sorted.begin() + below + 1, sorted.end());
  return low + (position - static_cast<double>(below)) * (high - low);
}

double Median(absl::Span<const double> samples) { return Quantile(samples, 0.5); }

Interval MedianInterval(absl::Span<const double> samples) {
  if (samples.empty()) return {};
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  const auto n = static_cast<int64_t>(sorted.size());
  // The interval from the (k+1)-th to the (n-k)-th value misses the median with probability
  // 2 P(X <= k): the largest k that keeps this within 5 %.
  int64_t k = -1;
  if (n > 2000) {
    k = static_cast<int64_t>(static_cast<double>(n) / 2 - 0.98 * std::sqrt(static_cast<double>(n)) -
                             1);
  } else {
    while (2 * (k + 1) < n - 1 && 2 * BinomialHalfCdf(k + 1, n) <= 0.05) ++k;
  }
  if (k < 0) k = 0;
  return {.low = sorted[static_cast<size_t>(k)], .high = sorted[static_cast<size_t>(n - 1 - k)]};
}

std::vector<double> BlockMedians(absl::Span<const double> samples, int blocks) {
  const size_t count = std::min(samples.size(), static_cast<size_t>(std::max(blocks, 1)));
  std::vector<double> medians;
  medians.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const size_t begin = i * samples.size() / count;
    const size_t end = (i + 1) * samples.size() / count;
    medians.push_back(Median(samples.subspan(begin, end - begin)));
  }
  return medians;
}

Interval BlockBootstrapInterval(absl::Span<const double> samples, int blocks, uint64_t seed) {
  if (samples.empty()) return {};
  constexpr int kResamples = 400;
  const std::vector<double> medians = BlockMedians(samples, blocks);
  std::mt19937_64 random(seed);
  std::vector<double> estimates;
  estimates.reserve(kResamples);
  std::vector<double> drawn(medians.size());
  for (int i = 0; i < kResamples; ++i) {
    for (double& d : drawn) d = medians[random() % medians.size()];
    estimates.push_back(Median(drawn));
  }
  return {.low = Quantile(estimates, 0.025), .high = Quantile(estimates, 0.975)};
}

double RelativeDrift(absl::Span<const double> samples) {
  if (samples.size() < kDriftSamples) return 0;
  const double centre = Median(samples);
  if (!(centre > 0)) return 0;
  const std::vector<double> medians = BlockMedians(samples, kDriftBlocks);
  std::vector<double> slopes;
  slopes.reserve(medians.size() * (medians.size() - 1) / 2);
  for (size_t i = 0; i < medians.size(); ++i) {
    for (size_t j = i + 1; j < medians.size(); ++j) {
      slopes.push_back((medians[j] - medians[i]) / static_cast<double>(j - i));
    }
  }
  return Median(slopes) * static_cast<double>(medians.size() - 1) / centre;
}

bool IsFlat(absl::Span<const double> samples, double tolerance) {
  if (samples.size() < kDriftSamples) return false;
  if (std::abs(RelativeDrift(samples)) > tolerance) return false;
  // A step in the middle has a small Theil-Sen slope at its edges, but two different halves.
  const size_t half = samples.size() / 2;
  const double first = Median(samples.first(half));
  const double second = Median(samples.subspan(half));
  return first > 0 && std::abs(second / first - 1) <= tolerance;
}

double StudentT975(double degrees) {
  // Cornish-Fisher expansion around the normal quantile; exact values where it is poor.
  if (degrees < 1.5) return 12.706;
  if (degrees < 2.5) return 4.303;
  if (degrees < 3.5) return 3.182;
  const double z = 1.959964;
  const double z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z;
  const double d = degrees;
  return z + (z3 + z) / (4 * d) + (5 * z5 + 16 * z3 + 3 * z) / (96 * d * d) +
         (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * d * d * d);
}

}  // namespace whet
