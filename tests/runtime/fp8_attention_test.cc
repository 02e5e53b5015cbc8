// FP8 attention from BF16 tensors through the C++ interface: the error stays where e4m3 puts it, keys are reusable, the recipe
// follows the data and is remembered.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "src/base/files.h"
#include "whet/whet.hpp"

namespace whet {
namespace {

using ::testing::HasSubstr;

constexpr int kHeads = 2, kTokens = 130, kDim = 64;

struct Tensors {
  std::vector<float> q, k, v, lse;
  std::vector<uint16_t> o;  // BF16
};

// Normal; `spread` widens four channels of q and k, `bias` moves four channels of k.
Tensors MakeTensors(float spread, float bias) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  Tensors t;
  for (auto* x : {&t.q, &t.k, &t.v}) {
    x->resize(kHeads * kTokens * kDim);
    for (size_t i = 0; i < x->size(); ++i) {
      const bool wide = x != &t.v && i % kDim % 16 == 3;
      (*x)[i] = normal(random) * (wide ? spread : 1) + (wide && x == &t.k ? bias : 0);
    }
  }
  t.o.assign(t.q.size(), 0x7fc0);
  t.lse.assign(kHeads * kTokens, NAN);
  return t;
}

float Bf16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

// Relative L2 of o against causal attention in double; the largest difference of lse.
std::pair<double, double> Errors(const Tensors& t) {
  double difference = 0, reference = 0, lse = 0;
  for (int h = 0; h < kHeads; ++h) {
    for (int i = 0; i < kTokens; ++i) {
      std::vector<double> out(kDim, 0.0), logits;
      double top = -INFINITY, sum = 0;
      for (int j = 0; j <= i; ++j) {
        double dot = 0;
        for (int d = 0; d < kDim; ++d) {
          dot += static_cast<double>(t.q[static_cast<size_t>((h * kTokens + i) * kDim + d)]) *
                 static_cast<double>(t.k[static_cast<size_t>((h * kTokens + j) * kDim + d)]);
        }
        logits.push_back(dot / 8);
        top = std::max(top, logits.back());
      }
      for (int j = 0; j <= i; ++j) {
        const double weight = std::exp(logits[static_cast<size_t>(j)] - top);
        sum += weight;
        for (int d = 0; d < kDim; ++d) {
          out[static_cast<size_t>(d)] +=
              weight * static_cast<double>(t.v[static_cast<size_t>((h * kTokens + j) * kDim + d)]);
        }
      }
      for (int d = 0; d < kDim; ++d) {
        const double expected = out[static_cast<size_t>(d)] / sum;
        const double actual = Bf16(t.o[static_cast<size_t>((h * kTokens + i) * kDim + d)]);
        difference += (actual - expected) * (actual - expected);
        reference += expected * expected;
      }
      lse =
          std::max(lse, std::fabs(static_cast<double>(t.lse[static_cast<size_t>(h * kTokens + i)]) -
                                  (top + std::log(sum))));
    }
  }
  return {std::sqrt(difference / reference), lse};
}

class Fp8AttentionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto directory = TemporaryDirectory::Create("whet-fp8-test");
    ASSERT_TRUE(directory.ok()) << directory.status();
    directory_.emplace(*std::move(directory));
    Open();
  }
  void Open() {
    api::Runtime::Options options;
    options.cache_directory = directory_->path().c_str();
    options.tuning = "never";
    options.cpu_threads = 1;
    runtime_ = api::Runtime();
    const api::Status status = api::Runtime::Open(options, api::Platform::kCpu, 0, &runtime_);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  static api::AttentionForward ProblemOf(Tensors& t) {
    return api::AttentionForward(api::DType::kF32)
        .Shape(1, kHeads, kHeads, kTokens, kTokens, kDim, kDim)
        .Causal()
        .Tensors(nullptr, nullptr, nullptr, nullptr, t.lse.data());
  }
  std::optional<TemporaryDirectory> directory_;
  api::Runtime runtime_;
};

TEST_F(Fp8AttentionTest, ErrorsAreThoseOfE4m3AndKeysAreReusable) {
  Tensors t = MakeTensors(1, 30);
  api::AttentionForward problem = ProblemOf(t);
  api::Fp8Attention attention;
  api::Status status = api::Fp8Attention::Open(runtime_, problem, &attention);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(attention.Recipe(), "center=1,rotate=0,scale_rows=0");

  EXPECT_THAT(attention.Forward(t.q.data(), t.o.data(), t.lse.data(), nullptr).message(),
              HasSubstr("no keys and values are quantised"));
  status = attention.Keys(t.k.data(), t.v.data(), nullptr);
  ASSERT_TRUE(status.ok()) << status.message();
  for (int i = 0; i < 2; ++i) {
    status = attention.Forward(t.q.data(), t.o.data(), t.lse.data(), nullptr);
    ASSERT_TRUE(status.ok()) << status.message();
    const auto [error, lse] = Errors(t);
    EXPECT_LT(error, 0.07);
    EXPECT_GT(error, 0.005) << "nothing was rounded: this is no FP8";
    EXPECT_LT(lse, 0.3) << "what centring takes from the log-sum-exp is given back";
  }
}

TEST_F(Fp8AttentionTest, TheRecipeFollowsTheDataAndIsRemembered) {
  Tensors t = MakeTensors(12, 0);
  api::AttentionForward problem = ProblemOf(t);
  const auto run = [&](api::Fp8Attention& attention) {
    const api::Status status =
        attention.Run(t.q.data(), t.k.data(), t.v.data(), t.o.data(), t.lse.data(), nullptr);
    EXPECT_TRUE(status.ok()) << status.message();
    return Errors(t).first;
  };
  api::Fp8Attention attention;
  ASSERT_TRUE(api::Fp8Attention::Open(runtime_, problem, &attention).ok());
  const double before = run(attention);
  ASSERT_TRUE(attention.Tune(t.q.data(), t.k.data(), t.v.data(), nullptr).ok());
  EXPECT_THAT(attention.Recipe(), HasSubstr("rotate=1"));
  EXPECT_LT(run(attention), 0.9 * before);

  attention = api::Fp8Attention();
  Open();
  ASSERT_TRUE(api::Fp8Attention::Open(runtime_, problem, &attention).ok());
  EXPECT_THAT(attention.Recipe(), HasSubstr("rotate=1")) << "from the cache";
}

TEST_F(Fp8AttentionTest, RefusesWhatItDoesNotKnow) {
  Tensors t = MakeTensors(1, 0);
  api::AttentionForward problem = ProblemOf(t);
  api::Fp8Attention attention;
  EXPECT_THAT(api::Fp8Attention::Open(runtime_, problem, &attention, 1, "rotate=2").message(),
              HasSubstr("is no FP8 recipe"));
  EXPECT_THAT(api::Fp8Attention::Open(runtime_, problem, &attention, 3).message(),
              HasSubstr("accuracy"));
  problem.args().dtype = WHET_DTYPE_F16;
  EXPECT_THAT(api::Fp8Attention::Open(runtime_, problem, &attention).message(),
              HasSubstr("bf16 or f32"));
}

}  // namespace
}  // namespace whet
