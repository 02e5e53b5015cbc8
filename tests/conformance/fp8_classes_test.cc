// The bounds of the accuracy classes (docs/fp8.md), on the rule by which the Hopper kernel makes weights e4m3: tiles of keys from the last to
// the first, a reference that lags behind the maximum by less than four octaves and follows a low tile down, weights that are either
// rounded powers or bytes that a line makes. Rows that one key dominates are where such weights fail, so one key gets every strength.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace whet {
namespace {

struct Rule {
  bool direct;        // the byte is a linear function of the logit
  bool scale_blocks;  // the reference goes down with a tile
};

double FromByte(int byte) {
  const int exponent = byte >> 3, mantissa = byte & 7;
  return exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
}

// To nearest even, at most 448.
double RoundedToE4m3(double x) {
  const int step = std::max(-9, std::ilogb(std::max(x, 1e-30)) - 3);
  return std::min(448.0, std::ldexp(std::nearbyint(std::ldexp(x, -step)), step));
}

double Weight(const Rule& rule, double octaves) {
  if (!rule.direct) return RoundedToE4m3(std::exp2(octaves));
  return FromByte(
      static_cast<int>(std::clamp(std::nearbyint(8 * (octaves + 7 - 0.043)), 0.0, 126.0)));
}

constexpr int kTile = 128;
constexpr int kChannels = 32;
constexpr int kRows = 4;
constexpr double kWindow = 7, kDepth = 60;

// The output of one row, from binary logits and [key][channel] values.
std::vector<double> Attend(const Rule& rule, const std::vector<double>& logits,
                           const std::vector<double>& values) {
  const int keys = static_cast<int>(logits.size());
  std::vector<double> out(kChannels, 0.0);
  const double lift = rule.scale_blocks ? 5 : 6, room = 8.75 - lift;
  const double moved =
      rule.scale_blocks ? 2 : 0;  // how much higher a maximum that passes the room is put
  double reference = 0, total = 0, depth = 0;
  for (int start = (keys - 1) / kTile * kTile; start >= 0; start -= kTile) {
    const int end = std::min(keys, start + kTile);
    const double top = *std::max_element(logits.begin() + start, logits.begin() + end);
    double move = 0;
    if (end == keys) {
      reference = top;
    } else if (top > reference + room) {
      move = std::ceil(top - reference - moved);
    } else if (rule.scale_blocks && top < reference - kWindow) {
      move = -std::min(std::floor(reference - top), kDepth - depth);
    }
    reference += move;
    depth = std::max(0.0, depth - move);
    for (double& x : out) x *= std::exp2(-move);
    total *= std::exp2(-move);
    for (int key = start; key < end; ++key) {
      const double weight = Weight(rule, logits[key] - reference + lift);
      total += weight;
      for (int c = 0; c < kChannels; ++c) out[c] += weight * values[key * kChannels + c];
    }
  }
  for (double& x : out) x /= total;
  return out;
}

std::vector<double> AttendExactly(const std::vector<double>& logits,
                                  const std::vector<double>& values) {
  const double top = *std::max_element(logits.begin(), logits.end());
  std::vector<double> out(kChannels, 0.0);
  double total = 0;
  for (size_t key = 0; key < logits.size(); ++key) {
    const double weight = std::exp2(logits[key] - top);
    total += weight;
    for (int c = 0; c < kChannels; ++c) out[c] += weight * values[key * kChannels + c];
  }
  for (double& x : out) x /= total;
  return out;
}

// Largest relative L2 over the strengths of one dominant key, its place and the size of its value; a few rows together.
double WorstError(const Rule& rule, int keys) {
  std::mt19937 random(20261130);
  std::normal_distribution<double> normal;
  std::vector<std::vector<double>> logits(kRows, std::vector<double>(keys));
  std::vector<double> values(static_cast<size_t>(keys) * kChannels);
  for (std::vector<double>& row : logits) {
    for (double& x : row) x = 1.4427 * normal(random);
  }
  for (double& x : values) x = normal(random);
  double worst = 0;
  for (const int place : {0, keys / 2, keys - 1}) {
    for (const double size : {1.0, 0.05}) {
      std::vector<double> v = values;
      for (int c = 0; c < kChannels; ++c) v[place * kChannels + c] *= size;
      for (int strength = 2; strength <= 34; strength += 6) {
        double difference = 0, norm = 0;
        for (std::vector<double> row : logits) {
          row[place] = strength;
          const std::vector<double> got = Attend(rule, row, v), want = AttendExactly(row, v);
          for (int c = 0; c < kChannels; ++c) {
            difference += (got[c] - want[c]) * (got[c] - want[c]);
            norm += want[c] * want[c];
          }
        }
        worst = std::max(worst, std::sqrt(difference / norm));
      }
    }
  }
  return worst;
}

TEST(Fp8ClassesTest, RowsThatOneKeyDominatesStayWithinTheirClass) {
  for (const int keys : {500, 3000, 10000}) {
    EXPECT_LE(WorstError({.direct = false, .scale_blocks = true}, keys), 0.035) << keys;
    EXPECT_LE(WorstError({.direct = true, .scale_blocks = true}, keys), 0.05) << keys;
  }
}

TEST(Fp8ClassesTest, WithoutAScaleForEachTileTheyDoNot) {
  EXPECT_GT(WorstError({.direct = true, .scale_blocks = false}, 4000), 0.1);
  // What class 2 may do, and up to how many keys.
  EXPECT_LE(WorstError({.direct = true, .scale_blocks = false}, 1024), 0.1);
  EXPECT_LE(WorstError({.direct = false, .scale_blocks = false}, 16384), 0.1);
}

}  // namespace
}  // namespace whet
