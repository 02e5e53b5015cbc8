#include "src/device/cpu/trial_launch.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/clock.h"
#include "src/device/cpu/scratch_memory.h"

namespace whet {
namespace {

// fork() without the handlers that other libraries may have registered, and without a signal to the
// application at the end: the child runs nothing but the kernel. Only async-signal-safe calls here.
pid_t ForkQuietly() {
  return static_cast<pid_t>(syscall(SYS_clone, 0, nullptr, nullptr, nullptr, 0));
}

[[noreturn]] void RunShare(const BlockJob& job, void* shared, int64_t first, int64_t step,
                           int64_t total, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(0);
  const struct rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  for (const int fault : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS}) {
    signal(fault, SIG_DFL);
  }
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_UNBLOCK, &all, nullptr);
  for (int64_t i = first; i < total; i += step) {
    const CpuBlock block = {.index = {static_cast<uint32_t>(i % job.grid[0]),
                                      static_cast<uint32_t>(i / job.grid[0] % job.grid[1]),
                                      static_cast<uint32_t>(i / job.grid[0] / job.grid[1])},
                            .grid = {job.grid[0], job.grid[1], job.grid[2]},
                            .shared = shared};
    job.function(&block, job.params);
  }
  _exit(0);
}

void Sleep(int64_t ns) {
  const struct timespec span = {ns / 1'000'000'000, ns % 1'000'000'000};
  nanosleep(&span, nullptr);
}

}  // namespace

absl::Status TrialLaunch(const BlockJob& job, int processes, absl::Duration limit) {
  const int64_t total = int64_t{job.grid[0]} * job.grid[1] * job.grid[2];
  const int64_t count = std::clamp<int64_t>(processes, 1, std::max<int64_t>(total, 1));
  ScratchMemory memory;
  void* const shared = memory.AtLeast(job.shared_bytes);
  if (shared == nullptr && job.shared_bytes > 0) return absl::OkStatus();
  const int64_t deadline_ns =
      Clock::Real()->MonotonicNanoseconds() + absl::ToInt64Nanoseconds(limit);

  const pid_t parent = getpid();
  std::vector<pid_t> running;
  for (int64_t c = 0; c < count; ++c) {
    const pid_t child = ForkQuietly();
    if (child == 0) RunShare(job, shared, c, count, total, parent);
    if (child > 0) running.push_back(child);
  }

  absl::Status result;
  int64_t pause_ns = 20'000;
  while (!running.empty()) {
    std::erase_if(running, [&](pid_t child) {
      int status = 0;
      const pid_t ended = waitpid(child, &status, WNOHANG | __WALL);
      if (ended == 0) return false;
      if (ended == child && result.ok() && WIFSIGNALED(status)) {
        result = absl::FailedPreconditionError(
            absl::StrCat("it was killed by signal ", WTERMSIG(status), " (",
                         strsignal(WTERMSIG(status)), ") in a trial launch"));
      } else if (ended == child && result.ok() && WEXITSTATUS(status) != 0) {
        result = absl::FailedPreconditionError(
            absl::StrCat("it exited with ", WEXITSTATUS(status), " in a trial launch"));
      }
      return true;
    });
    const bool late = Clock::Real()->MonotonicNanoseconds() >= deadline_ns;
    if (running.empty()) break;
    if (late && result.ok()) {
      result = absl::FailedPreconditionError(absl::StrCat(
          "it did not end within ", absl::FormatDuration(limit), " in a trial launch"));
    }
    if (!result.ok()) {
      for (const pid_t child : running) {
        kill(child, SIGKILL);
        waitpid(child, nullptr, __WALL);
      }
      break;
    }
    Sleep(pause_ns);
    pause_ns = std::min<int64_t>(pause_ns * 3 / 2, 1'000'000);
  }
  return result;
}

}  // namespace whet
