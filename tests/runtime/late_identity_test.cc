// A first launch does not wait for the power cap, and what was chosen without it is looked at again.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cache/store.h"
#include "src/base/background.h"
#include "src/base/log.h"
#include "src/device/devices.h"
#include "src/runtime/code_provider.h"
#include "src/runtime/resolver.h"
#include "tests/runtime/scale_add.h"
#include "tests/support/late_device.h"

namespace whet {
namespace {

constexpr char kWinner[] = "plain";
constexpr char kDefault[] = "blocks:flavour=0";

class LateIdentityTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto cpu = OpenDevice(Platform::kCpu, 0, {.cpu_threads = 1});
    ASSERT_TRUE(cpu.ok()) << cpu.status();
    cpu_ = *std::move(cpu);
    options_.tuning = TuningMode::kNever;
  }

  void StoreWinner(int64_t watts) {
    DeviceIdentity device = cpu_->identity();
    device.power_cap_watts = watts;
    WinnerEntry entry;
    entry.key = TuningKeyOf(template_, problem_, device).bytes();
    entry.variant = kWinner;
    ASSERT_TRUE(store_->PutWinner(entry).ok());
  }
  void EraseWinner(int64_t watts) {
    DeviceIdentity device = cpu_->identity();
    device.power_cap_watts = watts;
    ASSERT_TRUE(store_->EraseWinner(TuningKeyOf(template_, problem_, device).bytes()).ok());
  }

  const KernelTemplate template_ = *KernelTemplate::Parse("scale_add", Files());
  const Problem problem_ = *template_.MakeProblem({{"n", int64_t{100}}});
  std::unique_ptr<Device> cpu_;
  const std::unique_ptr<Store> store_ = Store::Open({.path = ""}, Logger());
  Options options_;

 private:
  static TemplateFiles Files() {
    TemplateFiles files = ScaleAddFiles("[0]", 0);
    files["common/cpu_block.h"] = "struct WhetCpuBlock { int index[3]; };\n";
    return files;
  }
};

TEST_F(LateIdentityTest, AFirstLaunchTakesWhatIsStoredAndConfirmsItLater) {
  const struct {
    const char* what;
    std::vector<int64_t> stored_watts;
    int64_t watts;
    Purpose purpose;
    const char* variant;
    bool waits;
    bool confirmed;  // where it did not wait
  } cases[] = {
      {"nothing stored", {}, 700, Purpose::kLaunch, kDefault, false, true},
      {"the right class", {700}, 700, Purpose::kLaunch, kWinner, false, true},
      {"another class", {500}, 700, Purpose::kLaunch, kWinner, false, false},
      {"no cap is known, then and now", {0}, 0, Purpose::kLaunch, kWinner, false, true},
      {"no cap was known, now it is", {0}, 700, Purpose::kLaunch, kWinner, false, false},
      {"two classes, one of them right", {500, 700}, 700, Purpose::kLaunch, kWinner, true, true},
      {"two classes, none of them right", {500, 600}, 700, Purpose::kLaunch, kDefault, true, true},
      {"a class that is not asked for", {9000}, 9000, Purpose::kLaunch, kDefault, false, false},
      {"a warm-up has time", {700}, 700, Purpose::kPrepare, kWinner, true, true},
      {"a warm-up, another class", {500}, 700, Purpose::kPrepare, kDefault, true, true},
  };
  Toolchains toolchains({});
  const Logger log{LogSink()};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    for (const int64_t watts : c.stored_watts) StoreWinner(watts);
    LateDevice device(*cpu_, c.watts);
    ResolverCounters counters;
    BackgroundThreads background;
    Resolver resolver(device, *store_, toolchains, options_, log, counters, background, background);
    const auto resolve = [&] {
      return resolver.Resolve(template_, problem_, /*args=*/nullptr, nullptr, c.purpose,
                              [](absl::string_view, int, int) {});
    };
    const int64_t looks = store_->counters().winner_hits + store_->counters().winner_misses;
    const absl::StatusOr<Resolved> first = resolve();
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_EQ(first->plan->resolution().variant, c.variant);
    EXPECT_EQ(device.identity_is_settled(), c.waits);
    EXPECT_EQ(first->confirm == nullptr, c.waits);
    EXPECT_LE(store_->counters().winner_hits + store_->counters().winner_misses, looks + 2);
    if (first->confirm) {
      EXPECT_EQ(first->confirm(), c.confirmed);
    }
    // Once the cap is known, the choice is the one of its class.
    const absl::StatusOr<Resolved> second = resolve();
    ASSERT_TRUE(second.ok()) << second.status();
    EXPECT_EQ(second->confirm, nullptr);
    const bool right =
        std::find(c.stored_watts.begin(), c.stored_watts.end(), c.watts) != c.stored_watts.end();
    EXPECT_EQ(second->plan->resolution().variant, right ? kWinner : kDefault);
    for (const int64_t watts : c.stored_watts) EraseWinner(watts);
  }
}

TEST_F(LateIdentityTest, ModesThatKeepRecordsWaitForTheKey) {
  StoreWinner(700);
  Toolchains toolchains({});
  const Logger log{LogSink()};
  const struct {
    TuningMode tuning;
    bool drift;
    bool waits;
  } cases[] = {
      {TuningMode::kBlocking, false, false}, {TuningMode::kBlocking, true, true},
      {TuningMode::kOnline, false, false},   {TuningMode::kOnline, true, true},
      {TuningMode::kOffline, false, false},  {TuningMode::kDeterministic, false, false},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(absl::StrCat(TuningModeName(c.tuning), c.drift ? ", watched" : ""));
    options_.tuning = c.tuning;
    options_.drift = c.drift;
    LateDevice device(*cpu_, 700);
    ResolverCounters counters;
    BackgroundThreads background;
    Resolver resolver(device, *store_, toolchains, options_, log, counters, background, background);
    const absl::StatusOr<Resolved> resolved =
        resolver.Resolve(template_, problem_, /*args=*/nullptr, nullptr, Purpose::kLaunch,
                         [](absl::string_view, int, int) {});
    ASSERT_TRUE(resolved.ok()) << resolved.status();
    EXPECT_EQ(resolved->plan->resolution().variant,
              c.tuning == TuningMode::kDeterministic ? kDefault : kWinner);
    EXPECT_EQ(device.identity_is_settled(), c.waits);
  }
}

TEST_F(LateIdentityTest, AnErrorThatNamesTheKeyNamesTheWholeOne) {
  options_.tuning = TuningMode::kOffline;
  Toolchains toolchains({});
  const Logger log{LogSink()};
  LateDevice device(*cpu_, 700);
  ResolverCounters counters;
  BackgroundThreads background;
  Resolver resolver(device, *store_, toolchains, options_, log, counters, background, background);
  const absl::Status status = resolver
                                  .Resolve(template_, problem_, /*args=*/nullptr, nullptr,
                                           Purpose::kLaunch, [](absl::string_view, int, int) {})
                                  .status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_NE(
      status.message().find(TuningKeyOf(template_, problem_, device.identity()).hash().ToHex()),
      absl::string_view::npos)
      << status;
}

}  // namespace
}  // namespace whet
