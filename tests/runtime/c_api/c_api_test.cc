// The C interface as an application sees it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "src/base/files.h"
#include "tests/runtime/scale_add.h"
#include "whet/whet.hpp"

namespace whet {
namespace {

using ::testing::HasSubstr;

class CApiTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto directory = TemporaryDirectory::Create("whet-c-api-test");
    ASSERT_TRUE(directory.ok()) << directory.status();
    directory_.emplace(*std::move(directory));
    api::Runtime::Options options;
    options.cache_directory = directory_->path().c_str();
    options.tuning = "never";
    options.cpu_threads = 1;
    const api::Status status = api::Runtime::Open(options, api::Platform::kCpu, 0, &runtime_);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  std::optional<TemporaryDirectory> directory_;
  api::Runtime runtime_;
};

TEST_F(CApiTest, AttentionOfOneVisibleKeyIsItsValue) {
  constexpr int kTokens = 5, kDim = 24;
  std::vector<float> q(kTokens * kDim, 0.25f), k = q, v(q.size()), o(q.size(), NAN),
                                               lse(kTokens, NAN);
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i);
  struct Seen {
    std::string problem, variant_origin;
    int events = 0;
  } seen;
  whet_event_callback(
      runtime_.handle(),
      [](const whet_event* event, void* user) {
        auto* s = static_cast<Seen*>(user);
        s->problem = event->problem;
        s->variant_origin = event->variant_origin;
        ++s->events;
      },
      &seen);
  const api::AttentionForward attention =
      api::AttentionForward(api::DType::kF32)
          .Shape(1, 1, 1, kTokens, kTokens, kDim, kDim)
          .Causal()
          .Tensors(q.data(), k.data(), v.data(), o.data(), lse.data());
  for (int i = 0; i < 2; ++i) {
    const api::Status status = attention.Launch(runtime_, nullptr);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  for (int d = 0; d < kDim; ++d)
    EXPECT_NEAR(o[static_cast<size_t>(d)], v[static_cast<size_t>(d)], 1e-4);
  // All keys are equal, so row i averages its i + 1 values and its weights sum to i + 1 times one exponential.
  const double logit = 0.25 * 0.25 * kDim / std::sqrt(static_cast<double>(kDim));
  EXPECT_NEAR(lse[kTokens - 1], logit + std::log(static_cast<double>(kTokens)), 1e-5);
  EXPECT_EQ(seen.events, 1);
  EXPECT_THAT(seen.problem, HasSubstr("attention_forward:dtype=f32"));
  EXPECT_EQ(seen.variant_origin, "default");

  whet_counters counters = {};
  counters.struct_size = sizeof(counters);
  ASSERT_EQ(whet_stats(runtime_.handle(), &counters), WHET_OK);
  EXPECT_EQ(counters.resolutions, 1);
  EXPECT_EQ(counters.compiles, 1);
}

TEST_F(CApiTest, A81_TheCachesCountersAndEventsArrive) {
  struct Seen {
    std::vector<std::string> kinds, layers;
    size_t Count(const std::string& kind) const {
      return static_cast<size_t>(std::count(kinds.begin(), kinds.end(), kind));
    }
  };
  const auto listen = [](whet_runtime* runtime, Seen* seen) {
    return whet_cache_event_callback(
        runtime,
        [](const whet_cache_event* event, void* user) {
          auto* s = static_cast<Seen*>(user);
          s->kinds.emplace_back(event->kind);
          s->layers.emplace_back(event->layer);
        },
        seen);
  };
  const auto launch = [](api::Runtime& runtime) {
    alignas(16) float q[8] = {}, k[8] = {}, v[8] = {}, o[8];
    const api::Status status = api::AttentionForward(api::DType::kF32)
                                   .Shape(1, 1, 1, 1, 1, 8, 8)
                                   .Tensors(q, k, v, o)
                                   .Launch(runtime, nullptr);
    EXPECT_TRUE(status.ok()) << status.message();
  };
  Seen first;
  ASSERT_EQ(listen(runtime_.handle(), &first), WHET_OK);
  launch(runtime_);
  EXPECT_GE(first.Count("miss"), 1u);
  EXPECT_EQ(first.Count("stored"), 1u);
  EXPECT_EQ(first.Count("hit"), 0u);
  ASSERT_EQ(whet_cache_event_callback(runtime_.handle(), nullptr, nullptr), WHET_OK);
  EXPECT_EQ(whet_cache_event_callback(nullptr, nullptr, nullptr), WHET_INVALID_ARGUMENT);

  // Another process of the same user: a hit in the user's layer, and a pack that it may not use is
  // told of though nobody listened yet when that happened.
  const std::string no_pack = directory_->path() + "/none.whetpack";
  api::Runtime::Options options;
  options.cache_directory = directory_->path().c_str();
  options.packs = no_pack.c_str();
  options.tuning = "never";
  options.cpu_threads = 1;
  api::Runtime second;
  ASSERT_TRUE(api::Runtime::Open(options, api::Platform::kCpu, 0, &second).ok());
  Seen later;
  ASSERT_EQ(listen(second.handle(), &later), WHET_OK);
  EXPECT_EQ(later.kinds, std::vector<std::string>{"pack_refused"});
  EXPECT_EQ(later.layers, std::vector<std::string>{no_pack});
  launch(second);
  EXPECT_EQ(later.Count("hit"), 1u);
  EXPECT_EQ(later.layers.back(), "user");
  whet_counters counters = {};
  counters.struct_size = sizeof(counters);
  ASSERT_EQ(whet_stats(second.handle(), &counters), WHET_OK);
  EXPECT_EQ(counters.user_hits, 1);
  EXPECT_EQ(counters.pack_hits, 0);
  EXPECT_EQ(counters.packs_refused, 1);
  EXPECT_EQ(counters.compiles, 0);
  EXPECT_GT(counters.bytes_read, 0);
}

TEST_F(CApiTest, AnOldCallersShorterStructIsFilledNoFurther) {
  whet_counters counters;
  std::memset(&counters, 0x5A, sizeof(counters));
  counters.struct_size = offsetof(whet_counters, compiles);
  ASSERT_EQ(whet_stats(runtime_.handle(), &counters), WHET_OK);
  EXPECT_EQ(counters.resolutions, 0);
  EXPECT_EQ(counters.compiles, 0x5A5A5A5A5A5A5A5A);
}

TEST_F(CApiTest, MistakesAreNamed) {
  float x[64] = {};
  whet_attention_forward_args good = WHET_ATTENTION_FORWARD_ARGS_INIT;
  good.dtype = WHET_DTYPE_F32;
  good.seq_q = good.seq_kv = 2;
  good.dqk = good.dv = 8;
  good.q = good.k = good.v = x;
  good.o = x + 32;
  struct Case {
    const char* text;
    void (*spoil)(whet_attention_forward_args&);
  };
  const Case cases[] = {
      {"struct_size is not set", [](auto& a) { a.struct_size = 0; }},
      {"dtype", [](auto& a) { a.dtype = static_cast<whet_dtype>(99); }},
      {"dtype", [](auto& a) { a.dtype = WHET_DTYPE_I8; }},
      {"heads_q must be a multiple of heads_kv", [](auto& a) { a.heads_q = 3, a.heads_kv = 2; }},
      {"dqk", [](auto& a) { a.dqk = 257; }},
      {"seq_q", [](auto& a) { a.seq_q = -1; }},
      {"argument q is a null pointer", [](auto& a) { a.q = nullptr; }},
      {"argument o is a null pointer", [](auto& a) { a.o = nullptr; }},
      {"rows of o overlap",
       [](auto& a) { a.o_strides[0] = 16, a.o_strides[1] = 16, a.o_strides[2] = 4; }},
  };
  for (const Case& c : cases) {
    whet_attention_forward_args args = good;
    c.spoil(args);
    EXPECT_EQ(whet_attention_forward(runtime_.handle(), &args, nullptr), WHET_INVALID_ARGUMENT)
        << c.text;
    EXPECT_THAT(std::string(whet_last_error()), HasSubstr(c.text));
  }
  EXPECT_EQ(whet_attention_forward(nullptr, &good, nullptr), WHET_INVALID_ARGUMENT);
  EXPECT_EQ(whet_attention_forward(runtime_.handle(), nullptr, nullptr), WHET_INVALID_ARGUMENT);

  const whet_template* t = nullptr;
  EXPECT_EQ(whet_template_find(runtime_.handle(), "conv", &t), WHET_NOT_FOUND);
  EXPECT_EQ(t, nullptr);
  ASSERT_EQ(whet_template_find(runtime_.handle(), "rms_norm", &t), WHET_OK);
  std::vector<int64_t> fields(whet_template_field_count(t));
  EXPECT_EQ(whet_problem_parse(t, "dtype=bf16,rows", fields.data()), WHET_INVALID_ARGUMENT);
  EXPECT_EQ(whet_problem_parse(t, "dtype=bf16,rows=1,columns=2,depth=3", fields.data()),
            WHET_INVALID_ARGUMENT);
  EXPECT_THAT(std::string(whet_last_error()), HasSubstr("depth"));
}

TEST(CApiOpenTest, BadOptionsAndPlatformsAreNamed) {
  whet_runtime* runtime = nullptr;
  whet_options options = WHET_OPTIONS_INIT;
  options.cache_directory = "";
  options.cache_policy = "sometimes";
  EXPECT_EQ(whet_runtime_open(&options, WHET_PLATFORM_CPU, 0, &runtime), WHET_INVALID_ARGUMENT);
  EXPECT_THAT(std::string(whet_last_error()), HasSubstr("sometimes"));
  EXPECT_EQ(runtime, nullptr);
  options.cache_policy = nullptr;
  EXPECT_EQ(whet_runtime_open(&options, static_cast<whet_platform>(9), 0, &runtime),
            WHET_INVALID_ARGUMENT);
  EXPECT_EQ(whet_runtime_open(&options, WHET_PLATFORM_CPU, 0, nullptr), WHET_INVALID_ARGUMENT);
  whet_runtime_close(nullptr);
}

TEST(CApiOpenTest, MessagesBelongToTheirThread) {
  EXPECT_EQ(whet_runtime_open(nullptr, static_cast<whet_platform>(9), 0, nullptr),
            WHET_INVALID_ARGUMENT);
  const std::string mine = whet_last_error();
  std::thread([] { EXPECT_STREQ(whet_last_error(), ""); }).join();
  EXPECT_EQ(whet_last_error(), mine);
}

TEST_F(CApiTest, AnOwnTemplateRuns) {
  const TemplateFiles files = ScaleAddFiles("[0]", 0);
  std::vector<const char*> paths, texts;
  for (const auto& [path, text] : files) {
    paths.push_back(path.c_str());
    texts.push_back(text.c_str());
  }
  const whet_template* t = nullptr;
  ASSERT_EQ(whet_template_create(runtime_.handle(), "scale_add", paths.data(), texts.data(),
                                 paths.size(), &t),
            WHET_OK)
      << whet_last_error();
  api::Problem problem;
  ASSERT_TRUE(api::Problem::Parse(runtime_, "scale_add", "n=100", &problem).ok())
      << whet_last_error();
  alignas(16) float x[100], y[100];
  std::fill_n(x, 100, 2.0f);
  std::fill_n(y, 100, 1.0f);
  float *xp = x, *yp = y, factor = 3;
  ASSERT_TRUE(problem.Prepare(runtime_, {}, nullptr).ok()) << whet_last_error();
  EXPECT_EQ(y[0], 1.0f);
  ASSERT_TRUE(problem.Launch(runtime_, {&xp, &yp, &factor}, nullptr).ok()) << whet_last_error();
  EXPECT_EQ(y[99], 7.0f);
}

}  // namespace
}  // namespace whet
