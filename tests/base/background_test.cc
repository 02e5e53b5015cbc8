#include "src/base/background.h"

#include <sched.h>

#include <latch>

#include "gtest/gtest.h"

namespace whet {
namespace {

TEST(BackgroundTest, TasksOfSeveralThreadsRunAtOnce) {
  std::latch both(2);
  BackgroundThreads background({.threads = 2});
  // Each waits for the other.
  for (int i = 0; i < 2; ++i) background.Post([&] { both.arrive_and_wait(); }, /*keep=*/true);
}

TEST(BackgroundTest, WhatMustNotBeLostIsRunAtTheEnd) {
  int ran = 0;
  {
    BackgroundThreads background;
    for (int i = 0; i < 20; ++i) background.Post([&] { ++ran; }, /*keep=*/true);
  }
  EXPECT_EQ(ran, 20);
}

TEST(BackgroundTest, IdleTasksAndWhatTheyStartGetIdleProcessorsOnly) {
  for (const bool idle : {false, true}) {
    int policy = -1;
    {
      BackgroundThreads background({.idle = idle});
      background.Post([&] { policy = sched_getscheduler(0); }, /*keep=*/true);
    }
    EXPECT_EQ(policy, idle ? SCHED_IDLE : SCHED_OTHER);
  }
}

}  // namespace
}  // namespace whet
