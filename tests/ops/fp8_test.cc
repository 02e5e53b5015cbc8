// Quantisation on the host: the two remedies change nothing in exact arithmetic, scales follow their rules, bytes lie where they
// should, and a recipe follows the data.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/ops/attention_forward_fp8.h"
#include "src/ops/attention_reference.h"
#include "src/ops/fp8_host.h"
#include "src/ops/fp8_recipe.h"
#include "src/ops/quantize_fp8.h"

namespace whet {
namespace {

using ::testing::HasSubstr;

HostTensor Data(const std::string& kind, absl::string_view name, std::vector<int64_t> shape,
                DType dtype = DType::kF32) {
  HostTensor t = *HostTensor::Make(dtype, std::move(shape));
  EXPECT_TRUE(FillData({.kind = kind, .seed = 3}, name, &t).ok());
  return t;
}

TEST(RotationTest, KeepsEveryDotProduct) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  for (const size_t dim : {64u, 128u, 192u, 256u}) {
    std::vector<double> a(dim), b(dim);
    for (size_t i = 0; i < dim; ++i) {
      a[i] = normal(random);
      b[i] = normal(random) * (i % 24 == 0 ? 100 : 1);
    }
    double before = 0, after = 0, size = 0, largest = 0;
    for (size_t i = 0; i < dim; ++i) before += a[i] * b[i];
    for (size_t i = 0; i < dim; ++i) size += std::fabs(a[i] * b[i]);
    RotateRow(&a);
    RotateRow(&b);
    for (size_t i = 0; i < dim; ++i) after += a[i] * b[i];
    for (const double x : b) largest = std::max(largest, std::fabs(x));
    EXPECT_NEAR(before, after, 1e-12 * size) << dim;
    EXPECT_LT(largest, 100.0) << dim << ": outliers are spread";
  }
}

TEST(CentringTest, ChangesNoWeightAndShiftsTheLogSumExpByWhatIsKnown) {
  const HostTensor q = Data("normal", "q", {1, 1, 5, 64});
  const HostTensor k = Data("biased", "k", {1, 1, 40, 64});
  const HostTensor v = Data("normal", "v", {1, 1, 40, 64});
  HostTensor centred = k.Clone();
  HostTensor mean = *HostTensor::Make(DType::kF32, {1, 1, 64});
  for (int64_t d = 0; d < 64; ++d) {
    // A vector that f32 subtracts exactly.
    const double m = std::round(k.At(d));
    mean.Set(d, m);
    for (int64_t j = 0; j < 40; ++j) centred.Set(j * 64 + d, k.At(j * 64 + d) - m);
  }
  const HostTensor shift = *LseShiftOnHost(q, mean, 0.125);
  const AttentionReferenceHead plain(k, v, 0, 0), moved(centred, v, 0, 0);
  for (int64_t i = 0; i < 5; ++i) {
    std::vector<double> row(64), o, o_moved;
    for (int64_t d = 0; d < 64; ++d) row[static_cast<size_t>(d)] = q.At(i * 64 + d);
    const double lse = plain.Row(row, 0.125, 40, &o);
    const double lse_moved = moved.Row(row, 0.125, 40, &o_moved);
    for (size_t d = 0; d < 64; ++d) EXPECT_NEAR(o[d], o_moved[d], 1e-5);
    EXPECT_NEAR(lse, lse_moved + shift.At(i), 1e-4);
  }
}

TEST(ScaleTest, FollowsItsRule) {
  const struct {
    double largest;
    DType to;
    bool power_of_two;
    double scale;
  } cases[] = {
      {448, DType::kE4M3, false, 1},          {448, DType::kE4M3, true, 1},
      {448.5, DType::kE4M3, true, 2},         {240, DType::kE4M3Fnuz, true, 1},
      {241, DType::kE4M3Fnuz, true, 2},       {1, DType::kE4M3, true, 1.0 / 256},
      {0.9, DType::kE4M3, false, 0.9 / 448},  {0, DType::kE4M3, true, 1},
      {1e-45, DType::kE4M3, false, 0x1p-120},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(ScaleForLargest(c.largest, 1, c.to, c.power_of_two), c.scale) << c.largest;
  }
  for (const double scale : {1 / std::sqrt(128.0), 1 / std::sqrt(192.0), 1.0, 0.3}) {
    const double multiplier = FoldedMultiplier(scale);
    EXPECT_GE(multiplier, std::sqrt(0.5));
    EXPECT_LT(multiplier, std::sqrt(2.0) + 1e-9);
    const double rest = std::log2(scale * 1.4426950408889634 / multiplier);
    EXPECT_NEAR(rest, std::round(rest), 1e-12) << "a power of two remains";
  }
}

TEST(QuantizeOnHostTest, EveryElementIsWithinHalfAStepAndLiesInItsPlace) {
  const HostTensor x = Data("outlier", "x", {2, 3, 130, 64});
  for (const int64_t scale_rows : {0, 64, 128}) {
    for (const bool transpose : {false, true}) {
      const HostQuantized y = *QuantizeOnHost(
          x, {.scale_rows = scale_rows, .power_of_two = true, .transpose = transpose});
      EXPECT_EQ(y.bytes.strides()[2], transpose ? 144 : 64);
      const int64_t blocks = y.scale.shape()[2];
      EXPECT_EQ(blocks, scale_rows == 0 ? 1 : (130 + scale_rows - 1) / scale_rows);
      for (int64_t head = 0; head < 6; ++head) {
        for (int64_t row = 0; row < 130; ++row) {
          for (int64_t d = 0; d < 64; ++d) {
            const int64_t at =
                head * y.bytes.strides()[1] + (transpose ? d * 144 + row : row * 64 + d);
            const double scale = y.scale.At(head * blocks + ScaleBlock(row, scale_rows));
            const double value = x.At((head * 130 + row) * 64 + d);
            // Half a step of a normal number, or of a subnormal one.
            ASSERT_NEAR(y.bytes.At(at) * scale, value,
                        std::max(std::fabs(value) / 16, scale * 0x1p-10) * 1.0001);
          }
        }
      }
    }
  }
}

TEST(QuantizeOnHostTest, ASampledMeanIsThatOfSixteenRowsOfEvery256) {
  for (const int64_t rows : {1, 15, 16, 17, 255, 256, 257, 300, 1000, 4096}) {
    std::vector<int64_t> of_chunk(static_cast<size_t>((rows + 255) / 256), 0);
    for (int64_t row = 0; row < rows; ++row) {
      of_chunk[static_cast<size_t>(row / 256)] += InSampledMean(row, rows);
    }
    for (size_t c = 0; c < of_chunk.size(); ++c) {
      const int64_t there = std::min<int64_t>(256, rows - static_cast<int64_t>(c) * 256);
      EXPECT_GE(of_chunk[c], std::min<int64_t>(1, there)) << rows << " rows, chunk " << c;
      EXPECT_LE(of_chunk[c], 16);
      if (there == 256) {
        EXPECT_EQ(of_chunk[c], 16);
      }
    }
  }
  // A head whose rows are all the same has that mean, whichever count.
  HostTensor x = Data("normal", "x", {1, 1, 300, 8});
  for (int64_t i = 0; i < 300 * 8; ++i) x.Set(i, static_cast<double>(i % 8) - 2);
  const HostQuantized y = *QuantizeOnHost(x, {.center = true, .sampled_mean = true});
  for (int64_t d = 0; d < 8; ++d) EXPECT_EQ(y.mean.At(d), static_cast<double>(d) - 2);
}

TEST(QuantizeOnHostTest, WhatIsNotFiniteBecomesNaNAndSpoilsNoScale) {
  HostTensor x = Data("normal", "x", {1, 1, 4, 8});
  x.Set(9, NAN);
  x.Set(18, INFINITY);
  for (const bool center : {false, true}) {
    const HostQuantized y = *QuantizeOnHost(x, {.center = center});
    EXPECT_TRUE(std::isfinite(y.scale.At(0)));
    for (int64_t i = 0; i < 32; ++i) {
      EXPECT_EQ(std::isnan(y.bytes.At(i)), i == 9 || i == 18) << i << " centred " << center;
    }
  }
}

TEST(QuantizeOnHostTest, RefusesWhatItCannotDo) {
  EXPECT_THAT(
      std::string(
          QuantizeOnHost(Data("normal", "x", {1, 1, 4, 80}), {.rotate = true}).status().message()),
      HasSubstr("there are rotations of 64, 128, 192 and 256"));
  EXPECT_THAT(std::string(QuantizeOnHost(Data("normal", "x", {4, 80}), {}).status().message()),
              HasSubstr("must have 4 dimensions"));
}

TEST(RecipeTest, FollowsTheData) {
  const auto choose = [](const std::string& kind) {
    return *ChooseFp8Recipe({.q = Data(kind, "q", {1, 4, 200, 128}),
                             .k = Data(kind, "k", {1, 2, 200, 128}),
                             .v = Data(kind, "v", {1, 2, 200, 128}),
                             .scale = 1 / std::sqrt(128.0),
                             .causal = true});
  };
  const Fp8RecipeChoice normal = choose("normal");
  EXPECT_EQ(normal.recipe, Fp8Recipe());
  EXPECT_EQ(normal.evidence.size(), 4u);
  EXPECT_EQ(normal.rows, 96) << "24 of each query head";
  for (const Fp8RecipeEvidence& e : normal.evidence) {
    EXPECT_LT(e.total_error, 0.08) << e.recipe.ToString();
    EXPECT_GT(e.total_error, 0.01) << e.recipe.ToString();
  }
  const Fp8RecipeChoice outlier = choose("outlier");
  EXPECT_TRUE(outlier.recipe.rotate) << "outlying channels want to be spread";
  EXPECT_FALSE(choose("biased").recipe.rotate) << "a mean is taken away without rotating";
}

// The first and the last query head do not see the outlying channels of the keys; those between them do.
TEST(RecipeTest, IsNotMisledByTwoQueryHeads) {
  HostTensor q = Data("outlier", "q", {1, 4, 200, 128});
  const HostTensor k = Data("outlier", "k", {1, 1, 200, 128});
  const HostTensor calm = Data("normal", "q", {1, 1, 200, 128});
  for (int64_t d = 0; d < 128; ++d) {
    double largest = 0;
    for (int64_t row = 0; row < 200; ++row) {
      largest = std::max(largest, std::abs(k.At(row * 128 + d)));
    }
    for (int64_t row = 0; row < 200; ++row) {
      const double x = largest > 8 ? 0 : calm.At(row * 128 + d);
      for (const int64_t head : {0, 3}) q.Set((head * 200 + row) * 128 + d, x);
    }
  }
  const auto choose = [&](int64_t query_heads) {
    return *ChooseFp8Recipe({.q = q,
                             .k = k,
                             .v = Data("normal", "v", {1, 1, 200, 128}),
                             .scale = 1 / std::sqrt(128.0),
                             .causal = true,
                             .query_heads = query_heads});
  };
  EXPECT_FALSE(choose(2).recipe.rotate) << "or these two mislead nobody";
  const Fp8RecipeChoice choice = choose(8);
  EXPECT_EQ(choice.rows, 96);
  EXPECT_TRUE(choice.recipe.rotate);
  EXPECT_EQ(choice.recipe.scale_rows, 64) << "as exact as one scale for a head, and faster";
}

TEST(RecipeTest, ParsesWhatItWrites) {
  for (const int64_t dim : {80, 128}) {
    for (const Fp8Recipe& recipe : Fp8Recipes(dim)) {
      EXPECT_EQ(*Fp8Recipe::Parse(recipe.ToString()), recipe);
      EXPECT_FALSE(recipe.rotate && dim == 80);
    }
  }
  EXPECT_FALSE(Fp8Recipe::Parse("center=1,rotate=0").ok());
}

TEST(AttentionForwardFp8Test, RefusesBadScalesAndValuesThatAreNotTransposed) {
  const Operation& op = OperationFor("attention_forward_fp8");
  HostTensor q = Data("normal", "q", {1, 2, 48, 32}, DType::kE4M3);
  HostTensor v = Data("normal", "v", {1, 2, 32, 48}, DType::kE4M3);
  HostTensor one = *HostTensor::Make(DType::kF32, {1, 2, 1});
  for (int i = 0; i < 2; ++i) one.Set(i, 1);
  const auto message = [&](const HostTensor& values, NamedTensors scales) {
    NamedTensors tensors = {{"q", q}, {"k", q}, {"v", values}};
    tensors.insert(tensors.end(), scales.begin(), scales.end());
    return std::string(op.FieldsFromTensors(tensors, {}).status().message());
  };
  const NamedTensors scales = {{"q_scale", one}, {"k_scale", one}, {"v_scale", one}};
  EXPECT_EQ(message(v, scales), "");
  EXPECT_THAT(message(q, scales), HasSubstr("it must lie transposed"));
  EXPECT_THAT(message(v.Permuted({0, 1, 3, 2}).Permuted({0, 1, 3, 2}), {}),
              HasSubstr("q_scale is missing"));
  EXPECT_THAT(message(Data("normal", "v", {1, 2, 32, 48}, DType::kBF16), scales),
              HasSubstr("must be e4m3 or e4m3fnuz"));
  EXPECT_THAT(message(Data("normal", "v", {1, 2, 32, 48}, DType::kE4M3Fnuz), scales),
              HasSubstr("v has dtype = e4m3fnuz, but dtype = e4m3"));
  for (const double bad : {0.0, -1.0, static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
    one.Set(1, bad);
    EXPECT_THAT(std::string(CheckScales(one, "k_scale").message()),
                HasSubstr("scale 0 of head 1 is"));
  }
}

}  // namespace
}  // namespace whet
