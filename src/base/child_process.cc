#include "src/base/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace whet {
namespace {

// For kernels before 5.11. Only system calls: the child may not allocate.
void MarkAllCloseOnExecSlowly() {
  const int directory = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return;
  alignas(8) char buffer[2048];
  long n;
  while ((n = syscall(SYS_getdents64, directory, buffer, sizeof buffer)) > 0) {
    long offset = 0;
    while (offset < n) {
      // struct linux_dirent64: u64 inode, s64 offset, u16 length, u8 type, char name[].
      uint16_t length = 0;
      std::memcpy(&length, buffer + offset + 16, sizeof length);
      int fd = 0;
      const char* name = buffer + offset + 19;
      while (*name >= '0' && *name <= '9') fd = fd * 10 + (*name++ - '0');
      if (*name == '\0' && fd > 2) fcntl(fd, F_SETFD, FD_CLOEXEC);
      offset += length;
    }
  }
  close(directory);
}

// Runs in the child, which borrows the parent's memory (vfork) while other threads of the parent
// run: only async-signal-safe calls, no allocation, no locks.
[[noreturn]] __attribute__((noinline)) void RunChild(const ChildPlan& plan) {
  const auto fail = [&plan](ChildStep step) {
    const ChildReport report = {step, errno};
    (void)!write(plan.report_fd, &report, sizeof report);
    _exit(127);
  };
  // The parent's handlers must not run here; the parent blocked every signal until this is done.
  struct sigaction by_default = {};
  by_default.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) sigaction(signal, &by_default, nullptr);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);

  // A group of its own, so that what it starts can be ended with it.
  if (setpgid(0, 0) != 0) fail(ChildStep::kPrepare);
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) fail(ChildStep::kPrepare);
  if (getppid() != plan.parent) _exit(127);  // the parent died before that took hold
  const struct rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  if (plan.memory_limit_bytes > 0) {
    const auto bytes = static_cast<rlim_t>(plan.memory_limit_bytes);
    const struct rlimit limit = {bytes, bytes};
    if (setrlimit(RLIMIT_DATA, &limit) != 0) fail(ChildStep::kPrepare);
  }
  for (int i = 0; i < 3; ++i) {
    if (dup2(plan.streams[i], i) < 0) fail(ChildStep::kPrepare);
  }
  if (plan.working_directory != nullptr && chdir(plan.working_directory) != 0) {
    fail(ChildStep::kWorkingDirectory);
  }
#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC 4U
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
  if (syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC) != 0) MarkAllCloseOnExecSlowly();
  if (plan.program_fd >= 0) {
    syscall(SYS_execveat, plan.program_fd, "", plan.argv, plan.environment, AT_EMPTY_PATH);
  } else {
    execve(plan.program, plan.argv, plan.environment);
  }
  fail(ChildStep::kExecute);
  _exit(127);
}

}  // namespace

__attribute__((noinline)) pid_t StartChild(const ChildPlan& plan) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t child = vfork();
  if (child == 0) RunChild(plan);
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return child;
}

Child::Child(pid_t pid)
    : pid_(pid), exit_event_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))) {}

Child::~Child() {
  if (pid_ <= 0) return;
  KillGroup();
  Reap(nullptr);
}

bool Child::HasEnded() {
  siginfo_t info = {};
  const int rc = waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
  if (rc == 0) return info.si_pid == pid_;
  if (errno == EINTR) return false;
  pid_ = 0;  // reaped by somebody else: the number may already be another process's
  return true;
}

void Child::KillGroup() const {
  if (pid_ <= 0) return;
  kill(-pid_, SIGKILL);
  kill(pid_, SIGKILL);
}

bool Child::Reap(int* status) {
  if (pid_ <= 0) return false;
  int ignored = 0;
  pid_t rc;
  do {
    rc = waitpid(pid_, status != nullptr ? status : &ignored, 0);
  } while (rc < 0 && errno == EINTR);
  pid_ = 0;
  return rc > 0;
}

}  // namespace whet
