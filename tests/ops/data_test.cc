#include "src/ops/data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "src/base/hash.h"

namespace whet {
namespace {

using ::testing::HasSubstr;

HostTensor Filled(absl::string_view kind, absl::string_view name, std::vector<int64_t> shape,
                  uint64_t seed = 1) {
  HostTensor t = *HostTensor::Make(DType::kF32, std::move(shape));
  EXPECT_TRUE(FillData({.kind = std::string(kind), .seed = seed}, name, &t).ok());
  return t;
}

// Mean and mean square of a part of each row.
struct Moments {
  double mean = 0;
  double square = 0;
};
Moments MomentsOfRows(const HostTensor& t, int64_t first_row, int64_t rows) {
  Moments m;
  for (int64_t row = first_row; row < first_row + rows; ++row) {
    for (int64_t i = 0; i < t.RowLength(); ++i) {
      const double x = t.At(t.RowOffset(row) + i);
      m.mean += x;
      m.square += x * x;
    }
  }
  const double count = static_cast<double>(rows * t.RowLength());
  return {m.mean / count, m.square / count};
}

TEST(NormalQuantileTest, MatchesTheDistribution) {
  EXPECT_NEAR(NormalQuantile(0.5), 0, 1e-9);
  EXPECT_NEAR(NormalQuantile(0.975), 1.959963985, 1e-6);
  EXPECT_NEAR(NormalQuantile(0.025), -1.959963985, 1e-6);
  EXPECT_NEAR(NormalQuantile(1e-9), -5.997807015, 1e-5);
  for (double p = 1e-12; p < 1; p = p < 0.01 ? p * 1.7 : p + 0.0013) {
    EXPECT_NEAR(0.5 * std::erfc(-NormalQuantile(p) / std::sqrt(2.0)), p, 1e-6 * p + 2e-7);
  }
}

// The bytes are a promise: a stored result names its seed and kind, not its data.
TEST(DataTest, IsTheSameForEver) {
  const HostTensor t = Filled("normal", "q", {2, 64, 32}, 7);
  const absl::string_view bytes(reinterpret_cast<const char*>(t.data()),
                                static_cast<size_t>(t.span_bytes()));
  EXPECT_EQ(HashBytes(bytes).ToHex(), "423907f473b4f31ea4fc974d1e6a7d19");
}

TEST(DataTest, DependsOnSeedNameAndPlaceOnly) {
  const HostTensor a = Filled("normal", "q", {4, 8, 16});
  HostTensor padded = *HostTensor::Make(DType::kF32, {4, 8, 16}, {1000, 100, 1});
  ASSERT_TRUE(FillData({}, "q", &padded).ok());
  const HostTensor other_seed = Filled("normal", "q", {4, 8, 16}, 2);
  const HostTensor other_name = Filled("normal", "k", {4, 8, 16});
  int same = 0;
  for (int64_t row = 0; row < a.RowCount(); ++row) {
    for (int64_t i = 0; i < 16; ++i) {
      const double x = a.At(a.RowOffset(row) + i);
      ASSERT_EQ(x, padded.At(padded.RowOffset(row) + i));
      same += x == other_seed.At(a.RowOffset(row) + i);
      same += x == other_name.At(a.RowOffset(row) + i);
    }
  }
  EXPECT_EQ(same, 0);
  // Padding keeps what it held.
  EXPECT_TRUE(std::isnan(padded.At(16)));
}

TEST(DataTest, KindsAreWhatTheySay) {
  const std::vector<int64_t> shape = {1, 2, 256, 64};
  const Moments normal = MomentsOfRows(Filled("normal", "q", shape), 0, 512);
  EXPECT_NEAR(normal.mean, 0, 0.03);
  EXPECT_NEAR(normal.square, 1, 0.05);
  EXPECT_NEAR(MomentsOfRows(Filled("uniform", "q", shape), 0, 512).square, 1.0 / 3, 0.02);
  EXPECT_NEAR(MomentsOfRows(Filled("sparse", "q", shape), 0, 512).square, 0.1, 0.02);
  EXPECT_NEAR(MomentsOfRows(Filled("peaky", "q", shape), 0, 512).square, 6.25, 0.3);
  EXPECT_NEAR(MomentsOfRows(Filled("peaky", "k", shape), 0, 512).square, 1, 0.05);
  EXPECT_NEAR(MomentsOfRows(Filled("smooth", "k", shape), 0, 512).square, 1, 0.15);
  EXPECT_EQ(MomentsOfRows(Filled("v_ones", "v", shape), 0, 512).mean, 1);
  const HostTensor growing = Filled("growing_max", "k", shape);
  EXPECT_LT(MomentsOfRows(growing, 0, 16).square, 0.5);
  EXPECT_GT(MomentsOfRows(growing, 240, 16).square, 6);
  EXPECT_GT(MomentsOfRows(Filled("outlier", "k", shape), 0, 512).square, 2);
}

// With sinks, q.k of the one key stands far above all others.
TEST(DataTest, SinksDrawTheQueries) {
  for (const auto& [kind, row] : {std::pair("sink", 0), std::pair("late_outlier", 239)}) {
    const HostTensor q = Filled(kind, "q", {1, 1, 256, 64});
    const HostTensor k = Filled(kind, "k", {1, 1, 256, 64});
    double sink = 0;
    double others = 0;
    for (int64_t i = 0; i < 256; ++i) {
      for (int64_t j = 0; j < 256; ++j) {
        double dot = 0;
        for (int64_t d = 0; d < 64; ++d) dot += q.At(i * 64 + d) * k.At(j * 64 + d);
        (j == row ? sink : others) += dot / (j == row ? 256 : 256 * 255);
      }
    }
    EXPECT_GT(sink, 30) << kind;
    EXPECT_LT(std::fabs(others), 3) << kind;
  }
}

TEST(DataTest, EveryKindFillsEveryElement) {
  for (const DataKind& kind : DataKinds()) {
    for (const absl::string_view name : {"q", "k", "v", "x", "weight"}) {
      for (const std::vector<int64_t>& shape :
           {std::vector<int64_t>{}, {3}, {5, 7}, {2, 3, 1, 4}, {2, 0, 3}}) {
        const HostTensor t = Filled(kind.name, name, shape);
        for (int64_t i = 0; i < t.elements(); ++i) {
          ASSERT_TRUE(std::isfinite(t.At(i))) << kind.name << " " << name << " " << i;
        }
      }
    }
  }
}

TEST(DataTest, RefusesUnknownKinds) {
  HostTensor t = *HostTensor::Make(DType::kF32, {2});
  const absl::Status status = FillData({.kind = "zeroes"}, "q", &t);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("known are normal, uniform, sparse, sink"));
}

}  // namespace
}  // namespace whet
