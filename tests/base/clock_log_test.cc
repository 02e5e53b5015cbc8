#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "src/base/clock.h"
#include "src/base/log.h"

namespace whet {
namespace {

TEST(ManualClockTest, MovesOnlyWhenTold) {
  ManualClock clock(absl::UnixEpoch());
  EXPECT_EQ(clock.Now(), absl::UnixEpoch());
  clock.Advance(absl::Seconds(2));
  EXPECT_EQ(clock.Now(), absl::UnixEpoch() + absl::Seconds(2));
  EXPECT_EQ(clock.MonotonicNanoseconds(), 2'000'000'000);
}

TEST(ManualClockTest, AJumpOfWallTimeLeavesTheMonotonicClock) {
  ManualClock clock(absl::UnixEpoch() + absl::Hours(5));
  clock.JumpTo(absl::UnixEpoch());
  EXPECT_EQ(clock.Now(), absl::UnixEpoch());
  EXPECT_EQ(clock.MonotonicNanoseconds(), 0);
}

TEST(RealClockTest, NeverGoesBack) {
  int64_t last = Clock::Real()->MonotonicNanoseconds();
  for (int i = 0; i < 1000; ++i) {
    const int64_t now = Clock::Real()->MonotonicNanoseconds();
    EXPECT_GE(now, last);
    last = now;
  }
  EXPECT_GT(Clock::Real()->Now(), absl::UnixEpoch());
}

TEST(LoggerTest, HandsLinesToItsSink) {
  std::vector<std::pair<LogLevel, std::string>> lines;
  const Logger log([&](LogLevel level, absl::string_view line) {
    lines.emplace_back(level, std::string(line));
  });
  log.Info("a");
  log.Warning("b");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0], std::make_pair(LogLevel::kInfo, std::string("a")));
  EXPECT_EQ(lines[1], std::make_pair(LogLevel::kWarning, std::string("b")));
}

TEST(LoggerTest, OnlyWarningsReachStandardError) {
  testing::internal::CaptureStderr();
  const Logger log;
  log.Info("quiet");
  log.Warning("loud");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "whet: warning: loud\n");
}

TEST(LoggerTest, AnEmptySinkDropsEverything) {
  testing::internal::CaptureStderr();
  const Logger log{LogSink()};
  log.Warning("dropped");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace whet
