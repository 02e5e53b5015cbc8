#include "src/base/subprocess.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/files.h"

namespace whet {
namespace {

SubprocessOptions Shell(const std::string& script) {
  SubprocessOptions options;
  options.argv = {"/bin/sh", "-c", script};
  options.timeout = absl::Minutes(2);  // only bounds a broken test
  return options;
}

SubprocessResult RunOk(const SubprocessOptions& options) {
  absl::StatusOr<SubprocessResult> result = RunSubprocess(options);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *std::move(result) : SubprocessResult();
}

TEST(Subprocess, SeparatesStreamsAndPassesInput) {
  SubprocessOptions options = Shell("cat; echo problem >&2; exit 3");
  std::string input;
  for (int i = 0; i < 500000; ++i) input.push_back(static_cast<char>(i));
  options.standard_input = input;
  const SubprocessResult result = RunOk(options);
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_FALSE(result.Succeeded());
  EXPECT_EQ(result.standard_output, input);
  EXPECT_EQ(result.standard_error, "problem\n");
  EXPECT_EQ(result.Outcome(), "exited with 3");
}

TEST(Subprocess, UnreadInputIsNoError) {
  SubprocessOptions options = Shell("exit 0");
  options.standard_input = std::string(1 << 20, 'x');
  EXPECT_TRUE(RunOk(options).Succeeded());
  EXPECT_EQ(RunOk(Shell("cat")).standard_output, "");
}

TEST(Subprocess, BothStreamsMayBeLongAndAreCutAtTheLimit) {
  SubprocessOptions options =
      Shell("head -c 3000000 /dev/zero & head -c 3000000 /dev/zero >&2; wait");
  SubprocessResult result = RunOk(options);
  EXPECT_EQ(result.standard_output.size(), 3000000u);
  EXPECT_EQ(result.standard_error.size(), 3000000u);
  options.output_limit_bytes = 1000;
  result = RunOk(options);
  EXPECT_TRUE(result.Succeeded());
  EXPECT_EQ(result.standard_output.size(), 1000u);
  EXPECT_EQ(result.standard_error.size(), 1000u);
}

TEST(Subprocess, DeathBySignalIsTold) {
  const SubprocessResult result = RunOk(Shell("kill -ABRT $$"));
  EXPECT_EQ(result.signal, SIGABRT);
  EXPECT_EQ(result.exit_code, -1);
  EXPECT_EQ(result.Outcome(), "was killed by signal 6 (Aborted)");
}

TEST(Subprocess, TimeoutKillsTheWholeGroup) {
  TemporaryDirectory directory = *TemporaryDirectory::Create("whet-subprocess-test-");
  ASSERT_EQ(mkfifo(JoinPath(directory.path(), "pipe").c_str(), 0600), 0);
  // Both the shell and its child hold the lock and read from a pipe that nobody writes.
  SubprocessOptions options = Shell("exec 9>lock; flock 9; echo held; (cat <pipe) & cat <pipe");
  options.working_directory = directory.path();
  options.timeout = absl::Milliseconds(500);
  const SubprocessResult result = RunOk(options);
  EXPECT_TRUE(result.timed_out);
  EXPECT_EQ(result.signal, SIGKILL);
  EXPECT_EQ(result.standard_output, "held\n");
  EXPECT_EQ(result.Outcome(), "ran past its time limit and was killed");
  const int lock = open(JoinPath(directory.path(), "lock").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(lock, 0);
  // Waits for the last holder: for ever if one was left alive.
  EXPECT_EQ(flock(lock, LOCK_EX), 0);
  close(lock);
}

TEST(Subprocess, ReturnsThoughAGrandchildHoldsThePipes) {
  TemporaryDirectory directory = *TemporaryDirectory::Create("whet-subprocess-test-");
  ASSERT_EQ(mkfifo(JoinPath(directory.path(), "pipe").c_str(), 0600), 0);
  SubprocessOptions options = Shell("(cat <pipe) & echo started");
  options.working_directory = directory.path();
  const SubprocessResult result = RunOk(options);
  EXPECT_TRUE(result.Succeeded());
  EXPECT_EQ(result.standard_output, "started\n");
}

TEST(Subprocess, MemoryLimitIsTheChildsAlone) {
  // The copy in $x needs more than the limit.
  SubprocessOptions options = Shell("x=$(head -c 200000000 /dev/zero | tr '\\0' x); echo ${#x}");
  options.memory_limit_bytes = 64 << 20;
  const SubprocessResult result = RunOk(options);
  EXPECT_FALSE(result.Succeeded() && result.standard_output == "200000000\n");
  EXPECT_EQ(RunOk(Shell("ulimit -d")).standard_output, "unlimited\n");
  options = Shell("ulimit -d; ulimit -c");
  options.memory_limit_bytes = 64 << 20;
  EXPECT_EQ(RunOk(options).standard_output, "65536\n0\n");
}

TEST(Subprocess, EnvironmentIsAsAsked) {
  SubprocessOptions options;
  options.argv = {"/usr/bin/env"};
  options.inherited_environment = {};
  options.environment = {{"B", "2"}, {"A", "x=y"}};
  EXPECT_EQ(RunOk(options).standard_output, "B=2\nA=x=y\n");

  ASSERT_EQ(setenv("WHET_SUBPROCESS_ONE", "1", 1), 0);
  ASSERT_EQ(setenv("WHET_SUBPROCESS_TWO", "2", 1), 0);
  ASSERT_EQ(setenv("WHET_ANOTHER", "3", 1), 0);
  options.inherited_environment = {"WHET_SUBPROCESS_*", "WHET_ANOTHER"};
  options.environment = {{"WHET_ANOTHER", "changed"}};
  EXPECT_EQ(RunOk(options).standard_output,
            "WHET_SUBPROCESS_ONE=1\nWHET_SUBPROCESS_TWO=2\nWHET_ANOTHER=changed\n");
  options.inherited_environment = {"*"};
  const std::string everything = RunOk(options).standard_output;
  EXPECT_NE(everything.find("PATH="), std::string::npos);
  EXPECT_EQ(everything.find("WHET_ANOTHER=3"), std::string::npos);
}

TEST(Subprocess, InheritsNoDescriptor) {
  // Without O_CLOEXEC on purpose: what an application does.
  const int leak = open("/dev/null", O_RDONLY);
  ASSERT_GE(leak, 3);
  // The shell's glob sees the descriptors of the shell itself (and its own directory handle).
  const std::string open_now =
      RunOk(Shell("for f in /proc/self/fd/*; do echo ${f##*/}; done")).standard_output;
  close(leak);
  EXPECT_TRUE(open_now == "0\n1\n2\n3\n" || open_now == "0\n1\n2\n") << open_now;
}

TEST(Subprocess, LeaksNoDescriptorHere) {
  const auto count = [] { return ListDirectory("/proc/self/fd")->size(); };
  const size_t before = count();
  for (int i = 0; i < 5; ++i) {
    RunOk(Shell("exit 1"));
    SubprocessOptions options = Shell("true");
    options.working_directory = "/nowhere";
    EXPECT_FALSE(RunSubprocess(options).ok());
  }
  EXPECT_EQ(count(), before);
}

TEST(Subprocess, SignalsStartFresh) {
  // A caller that ignores SIGTERM or blocks it must not make a compiler that cannot be stopped.
  struct sigaction ignore = {};
  struct sigaction before = {};
  ignore.sa_handler = SIG_IGN;
  ASSERT_EQ(sigaction(SIGTERM, &ignore, &before), 0);
  sigset_t term;
  sigset_t mask_before;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &term, &mask_before), 0);
  const SubprocessResult result = RunOk(Shell("kill -TERM $$; echo alive"));
  sigset_t mask_after;
  pthread_sigmask(SIG_SETMASK, &mask_before, &mask_after);
  sigaction(SIGTERM, &before, nullptr);
  EXPECT_EQ(result.signal, SIGTERM);
  EXPECT_EQ(result.standard_output, "");
  EXPECT_EQ(sigismember(&mask_after, SIGTERM), 1);
}

TEST(Subprocess, IgnoredChildSignalIsAClearError) {
  struct sigaction ignore = {};
  struct sigaction before = {};
  ignore.sa_handler = SIG_IGN;
  ASSERT_EQ(sigaction(SIGCHLD, &ignore, &before), 0);
  const absl::Status status = RunSubprocess(Shell("exit 0")).status();
  sigaction(SIGCHLD, &before, nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
}

TEST(Subprocess, FailuresToStart) {
  TemporaryDirectory directory = *TemporaryDirectory::Create("whet-subprocess-test-");
  const std::string plain = JoinPath(directory.path(), "plain");
  ASSERT_TRUE(WriteFileAtomically(plain, "text").ok());
  const std::string garbage = JoinPath(directory.path(), "garbage");
  ASSERT_TRUE(WriteFileAtomically(garbage,
                                  "\x7f"
                                  "ELF not really")
                  .ok());
  ASSERT_EQ(chmod(garbage.c_str(), 0700), 0);
  const struct {
    std::string program;
    std::string working_directory;
    absl::StatusCode code;
  } cases[] = {
      {"/nowhere/program", "", absl::StatusCode::kNotFound},
      {"whet-no-such-program", "", absl::StatusCode::kNotFound},
      {"", "", absl::StatusCode::kNotFound},
      {plain, "", absl::StatusCode::kPermissionDenied},
      {garbage, "", absl::StatusCode::kInternal},
      {"/bin/true", "/nowhere", absl::StatusCode::kNotFound},
  };
  for (const auto& c : cases) {
    SubprocessOptions options;
    options.argv = {c.program};
    options.working_directory = c.working_directory;
    const absl::Status status = RunSubprocess(options).status();
    EXPECT_EQ(status.code(), c.code) << c.program << ": " << status;
    EXPECT_NE(status.message().find(c.working_directory.empty() ? c.program : "/nowhere"),
              absl::string_view::npos)
        << status;
  }
  EXPECT_FALSE(RunSubprocess({}).ok());
}

TEST(Subprocess, RunsAnAnonymousFile) {
  const std::string bytes = *ReadFile("/bin/echo", 16 << 20);
  const int fd = memfd_create("program", MFD_CLOEXEC);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(write(fd, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  SubprocessOptions options;
  options.argv = {"from-memory", "hello"};
  options.executable_fd = fd;
  EXPECT_EQ(RunOk(options).standard_output, "hello\n");
  close(fd);
}

TEST(Subprocess, ManyAtOnceFromManyThreads) {
  std::vector<std::thread> threads;
  std::vector<std::string> outputs(8);
  for (size_t t = 0; t < outputs.size(); ++t) {
    threads.emplace_back([t, &outputs] {
      for (int i = 0; i < 5; ++i) {
        SubprocessOptions options = Shell("cat");
        options.standard_input = std::to_string(t);
        outputs[t] += RunOk(options).standard_output;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t t = 0; t < outputs.size(); ++t) {
    EXPECT_EQ(outputs[t], std::string(5, static_cast<char>('0' + t)));
  }
}

TEST(Subprocess, WorksWithItsOwnStandardStreamsClosed) {
  EXPECT_EXIT(
      {
        const int out = fcntl(1, F_DUPFD_CLOEXEC, 10);
        for (int fd = 0; fd < 3; ++fd) close(fd);
        SubprocessOptions options = Shell("cat; echo err >&2");
        options.standard_input = "in";
        absl::StatusOr<SubprocessResult> result = RunSubprocess(options);
        close(out);
        _exit(result.ok() && result->standard_output == "in" && result->standard_error == "err\n"
                  ? 42
                  : 1);
      },
      ::testing::ExitedWithCode(42), "");
}

TEST(FindProgram, LooksInPath) {
  EXPECT_EQ(*FindProgram("/bin/sh"), "/bin/sh");
  EXPECT_EQ(FindProgram("sh")->front(), '/');
  EXPECT_EQ(FindProgram("whet-no-such-program").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace whet
