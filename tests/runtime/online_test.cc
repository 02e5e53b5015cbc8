// The online mode end to end: the C interface, the CPU device, the host's compiler, the disk.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "src/base/files.h"
#include "src/runtime/runtime.h"
#include "tests/runtime/scale_add.h"
#include "whet/whet.h"

namespace whet {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr int64_t kElements = 8'000;

struct Events {
  std::vector<std::string> origins, variants, notes;
};

class OnlineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto directory = TemporaryDirectory::Create("whet-online-test");
    ASSERT_TRUE(directory.ok()) << directory.status();
    directory_.emplace(*std::move(directory));
    // Kernels of microseconds would spend the budget on their first trial process; what trials cost
    // is for bench/tune/online_bench to say.
    setenv("WHET_ONLINE_SLOWDOWN", "1", /*overwrite=*/1);
  }
  void TearDown() override { whet_runtime_close(runtime_); }

  void Open(const char* flavours, int default_flavour, const char* tuning = "online") {
    whet_runtime_close(runtime_);
    runtime_ = nullptr;
    whet_options options = WHET_OPTIONS_INIT;
    options.cache_directory = directory_->path().c_str();
    options.tuning = tuning;
    options.cpu_threads = 2;
    options.tuning_budget_s = 1;  // which variant a blocking call takes does not matter here
    ASSERT_EQ(whet_runtime_open(&options, WHET_PLATFORM_CPU, 0, &runtime_), WHET_OK)
        << whet_last_error();
    events_ = {};
    whet_event_callback(
        runtime_,
        [](const whet_event* event, void* user) {
          auto& events = *static_cast<Events*>(user);
          events.origins.emplace_back(event->variant_origin);
          events.variants.emplace_back(event->variant);
          events.notes.emplace_back(event->note);
        },
        &events_);
    const TemplateFiles files = ScaleAddFiles(flavours, default_flavour);
    std::vector<const char*> paths, texts;
    for (const auto& [path, text] : files) {
      paths.push_back(path.c_str());
      texts.push_back(text.c_str());
    }
    ASSERT_EQ(whet_template_create(runtime_, "scale_add", paths.data(), texts.data(), paths.size(),
                                   &template_),
              WHET_OK)
        << whet_last_error();
  }

  // The compilers have the lowest priority beside live calls, which on a busy machine is a long time.
  void CompileAhead(const char* flavours, int default_flavour) {
    Options options;
    options.cache_directory = directory_->path();
    auto runtime = Runtime::Open(options, Platform::kCpu, 0);
    ASSERT_TRUE(runtime.ok()) << runtime.status();
    const auto added =
        (*runtime)->AddTemplate("scale_add", ScaleAddFiles(flavours, default_flavour));
    ASSERT_TRUE(added.ok()) << added.status();
    const Problem problem = *(*added)->MakeProblem({{"n", kElements}});
    const Target& target = (*runtime)->device().identity().target;
    const std::vector<Variant> variants = *(*added)->Variants(problem, target, DeviceLimits());
    ASSERT_TRUE(CompileVariants(**runtime, **added, problem, variants, target, nullptr).ok());
  }

  // y = 3 x + y, in place; every element is looked at.
  void CallAndCheck(std::vector<float>& x, std::vector<float>& y, int call) {
    const auto value = static_cast<float>(call % 100);
    std::fill(x.begin(), x.end(), value);
    std::fill(y.begin(), y.end(), 1.0f);
    float *xp = x.data(), *yp = y.data(), factor = 3;
    void* args[] = {&xp, &yp, &factor};
    const int64_t fields[] = {kElements, 16};
    ASSERT_EQ(whet_launch(runtime_, template_, fields, 2, args, nullptr), WHET_OK)
        << whet_last_error();
    for (const float v : y) ASSERT_EQ(v, 3 * value + 1) << "call " << call;
  }

  whet_counters Counters() {
    whet_counters counters = {};
    counters.struct_size = sizeof(counters);
    EXPECT_EQ(whet_stats(runtime_, &counters), WHET_OK);
    return counters;
  }

  // Calls until it has settled, at least 1,000 of them.
  void CallUntilSettled() {
    int call = 0;
    for (; call < 1000 || Counters().live_tunings == 0; ++call) CallAndCheck(x_, y_, call);
  }

  std::optional<TemporaryDirectory> directory_;
  whet_runtime* runtime_ = nullptr;
  const whet_template* template_ = nullptr;
  Events events_;
  std::vector<float> x_ = std::vector<float>(kElements), y_ = std::vector<float>(kElements);
};

TEST_F(OnlineTest, TheFirstCallReturnsWithTheDefaultAndEveryCallIsRight) {
  CompileAhead("[7, 2, 0]", 7);
  Open("[7, 2, 0]", 7);
  CallAndCheck(x_, y_, 1);
  EXPECT_EQ(Counters().compiles, 0);
  EXPECT_EQ(Counters().tunings, 0);
  CallUntilSettled();
  const whet_counters counters = Counters();
  EXPECT_EQ(counters.live_tunings, 1);
  // The first that is clearly better runs from then on, and what the slow default lost counts: the
  // other need not be tried.
  EXPECT_GE(counters.live_trials, 1);
  EXPECT_EQ(counters.tunings, 0);
  const int64_t fields[] = {kElements, 16};
  const whet_plan* plan = nullptr;
  ASSERT_EQ(whet_prepare(runtime_, template_, fields, 2, nullptr, nullptr, &plan), WHET_OK);
  EXPECT_THAT(std::string(whet_plan_variant(plan)), AnyOf("blocks:flavour=0", "plain"));
  const std::string winner = whet_plan_variant(plan);
  // What the background told is whole once it has ended.
  whet_runtime_close(runtime_);
  runtime_ = nullptr;
  ASSERT_EQ(events_.origins.size(), 2u);
  EXPECT_EQ(events_.origins[0], "default");
  EXPECT_EQ(events_.variants[0], "blocks:flavour=7");
  EXPECT_EQ(events_.origins[1], "tuned");
  EXPECT_EQ(events_.variants[1], winner);
  EXPECT_THAT(events_.notes[1], HasSubstr("live calls"));

  // Another process begins with what was settled, and compiles nothing.
  Open("[7, 2, 0]", 7);
  CallAndCheck(x_, y_, 2);
  EXPECT_EQ(events_.origins.at(0), "user cache");
  EXPECT_EQ(events_.variants.at(0), winner);
  EXPECT_EQ(Counters().compiles, 0);
}

TEST_F(OnlineTest, WhatHangsFaultsOrWritesBesideIsBlockedAndTheCallsGoOn) {
  CompileAhead("[7, 5, 6, 0]", 7);
  Open("[7, 5, 6, 0]", 7);
  CallUntilSettled();
  const int64_t fields[] = {kElements, 16};
  const whet_plan* plan = nullptr;
  ASSERT_EQ(whet_prepare(runtime_, template_, fields, 2, nullptr, nullptr, &plan), WHET_OK);
  EXPECT_THAT(std::string(whet_plan_variant(plan)),
              AnyOf("blocks:flavour=0", "plain", "blocks:flavour=7"));
}

TEST_F(OnlineTest, ManyThreadsGetRightResults) {
  CompileAhead("[7, 2, 0]", 7);
  Open("[7, 2, 0]", 7);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this] {
      std::vector<float> x(kElements), y(kElements);
      for (int call = 0; call < 300; ++call) CallAndCheck(x, y, call);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CallUntilSettled();
}

TEST_F(OnlineTest, ClosingInTheMiddleIsClean) {
  Open("[7, 2, 0]", 7);
  CallAndCheck(x_, y_, 0);
  EXPECT_EQ(Counters().compiles, 1) << "the first call compiles what it runs and nothing else";
  for (int call = 1; call < 5; ++call) CallAndCheck(x_, y_, call);
}

TEST_F(OnlineTest, PrepareIsAnExplicitWarmUp) {
  Open("[7, 0]", 7);
  std::fill(x_.begin(), x_.end(), 2.0f);
  std::fill(y_.begin(), y_.end(), 1.0f);
  float *xp = x_.data(), *yp = y_.data(), factor = 3;
  void* args[] = {&xp, &yp, &factor};
  const int64_t fields[] = {kElements, 16};
  ASSERT_EQ(whet_prepare(runtime_, template_, fields, 2, args, nullptr, nullptr), WHET_OK)
      << whet_last_error();
  EXPECT_EQ(Counters().tunings, 1);
  EXPECT_EQ(y_[0], 1.0f);
  CallAndCheck(x_, y_, 3);
  EXPECT_EQ(Counters().live_trials, 0);
}

TEST_F(OnlineTest, OfflineWithoutAWinnerIsAnErrorThatNamesTheKey) {
  Open("[7, 0]", 7, "offline");
  float *xp = x_.data(), *yp = y_.data(), factor = 3;
  void* args[] = {&xp, &yp, &factor};
  const int64_t fields[] = {kElements, 16};
  EXPECT_EQ(whet_launch(runtime_, template_, fields, 2, args, nullptr), WHET_NOT_FOUND);
  EXPECT_THAT(std::string(whet_last_error()), HasSubstr("tuning key "));
  EXPECT_EQ(Counters().compiles, 0);

  Open("[7, 0]", 7, "blocking");
  CallAndCheck(x_, y_, 1);
  Open("[7, 0]", 7, "offline");
  CallAndCheck(x_, y_, 2);
  EXPECT_EQ(events_.origins.at(0), "user cache");
}

TEST_F(OnlineTest, DeterministicIsTheDefaultWhateverTheCacheHolds) {
  Open("[7, 0]", 7, "blocking");
  CallAndCheck(x_, y_, 1);
  Open("[7, 0]", 7, "deterministic");
  CallAndCheck(x_, y_, 2);
  EXPECT_EQ(events_.origins.at(0), "default");
  EXPECT_EQ(events_.variants.at(0), "blocks:flavour=7");
  EXPECT_EQ(Counters().tunings, 0);
  EXPECT_EQ(Counters().live_trials, 0);
}

TEST_F(OnlineTest, ADeterministicDefaultThatCannotBeHadIsAnError) {
  Open("[3, 0]", 3, "deterministic");
  float *xp = x_.data(), *yp = y_.data(), factor = 3;
  void* args[] = {&xp, &yp, &factor};
  const int64_t fields[] = {kElements, 16};
  EXPECT_EQ(whet_launch(runtime_, template_, fields, 2, args, nullptr), WHET_INVALID_ARGUMENT);
  EXPECT_THAT(std::string(whet_last_error()), HasSubstr("this flavour does not compile"));
}

}  // namespace
}  // namespace whet
