// Kernels that would end this process, or never end.
#include "src/device/cpu/trial_launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

namespace whet {
namespace {

using ::testing::HasSubstr;

// One counter per block.
void Count(const CpuBlock* block, void* const* params) {
  ++(*static_cast<int* const*>(params[0]))[block->index[0]];
}

void Fault(const CpuBlock* block, void* const*) {
  if (block->index[0] == 3) *reinterpret_cast<volatile int*>(uintptr_t{16}) = 1;
}

void NeverEnds(const CpuBlock* block, void* const* params) {
  const auto* stop = *static_cast<volatile int* const*>(params[0]);
  while (block->index[0] == 1 && *stop == 0) {
  }
}

void Exits(const CpuBlock*, void* const*) { _exit(7); }

void Aborts(const CpuBlock*, void* const*) { std::abort(); }

void UsesShared(const CpuBlock* block, void* const*) {
  for (int i = 0; i < 4096; ++i) static_cast<char*>(block->shared)[i] = 1;
}

class TrialLaunchTest : public ::testing::Test {
 protected:
  absl::Status Run(CpuKernelFunction function, absl::Duration limit = absl::Seconds(30)) {
    return TrialLaunch(
        {.function = function, .params = params_, .grid = {4, 1, 1}, .shared_bytes = 4096}, 2,
        limit);
  }
  int counts_[4] = {};
  int* pointer_ = counts_;
  void* params_[1] = {&pointer_};
};

TEST_F(TrialLaunchTest, AGoodKernelLeavesNoTrace) {
  EXPECT_TRUE(Run(Count).ok());
  EXPECT_TRUE(Run(UsesShared).ok());
  for (int count : counts_) EXPECT_EQ(count, 0) << "what the child wrote is seen here";
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG | __WALL), -1);
  EXPECT_EQ(errno, ECHILD) << "a child was left";
}

TEST_F(TrialLaunchTest, EveryBadEndIsNamed) {
  const struct {
    CpuKernelFunction function;
    const char* text;
  } cases[] = {
      {Fault, "it was killed by signal 11"},
      {Exits, "it exited with 7"},
      {Aborts, "it was killed by signal 6"},
  };
  for (const auto& c : cases) {
    const absl::Status status = Run(c.function);
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.text));
  }
}

TEST_F(TrialLaunchTest, AnEndlessLoopIsEnded) {
  const absl::Status status = Run(NeverEnds, absl::Milliseconds(50));
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("did not end within 50ms"));
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG | __WALL), -1);
}

}  // namespace
}  // namespace whet
