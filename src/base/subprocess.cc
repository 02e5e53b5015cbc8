#include "src/base/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "src/base/child_process.h"
#include "src/base/descriptor.h"
#include "src/base/files.h"

namespace whet {
namespace {

using SteadyClock = std::chrono::steady_clock;

// In a caller that closed its standard streams a new descriptor may be 0, 1 or 2, which the child
// is about to overwrite.
absl::Status MoveAboveStandardStreams(Descriptor* descriptor) {
  if (descriptor->get() > 2) return absl::OkStatus();
  const int moved = fcntl(descriptor->get(), F_DUPFD_CLOEXEC, 3);
  if (moved < 0) return ErrnoStatus(errno, "duplicate a descriptor for", "a child process");
  *descriptor = Descriptor(moved);
  return absl::OkStatus();
}

absl::Status MakePipe(Descriptor* read_end, Descriptor* write_end) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return ErrnoStatus(errno, "create", "a pipe");
  *read_end = Descriptor(fds[0]);
  *write_end = Descriptor(fds[1]);
  absl::Status moved = MoveAboveStandardStreams(read_end);
  return moved.ok() ? MoveAboveStandardStreams(write_end) : moved;
}

// The input goes through an anonymous file: no writing while reading, and no SIGPIPE from a child
// that does not read it.
absl::StatusOr<Descriptor> MakeInput(const std::string& bytes) {
  Descriptor input(bytes.empty() ? open("/dev/null", O_RDONLY | O_CLOEXEC)
                                 : memfd_create("whet-input", MFD_CLOEXEC));
  if (input.get() < 0) return ErrnoStatus(errno, "create", "the input of a child process");
  absl::Status moved = MoveAboveStandardStreams(&input);
  if (!moved.ok()) return moved;
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = write(input.get(), bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "write", "the input of a child process");
    done += static_cast<size_t>(n);
  }
  if (!bytes.empty() && lseek(input.get(), 0, SEEK_SET) != 0) {
    return ErrnoStatus(errno, "rewind", "the input of a child process");
  }
  return input;
}

bool IsInherited(absl::string_view name, const SubprocessOptions& options) {
  for (const auto& [key, value] : options.environment) {
    if (key == name) return false;
  }
  for (const std::string& pattern : options.inherited_environment) {
    absl::string_view prefix = pattern;
    if (absl::ConsumeSuffix(&prefix, "*") ? absl::StartsWith(name, prefix) : name == prefix) {
      return true;
    }
  }
  return false;
}

std::vector<std::string> MakeEnvironment(const SubprocessOptions& options) {
  std::vector<std::string> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const absl::string_view text = *entry;
    if (IsInherited(text.substr(0, text.find('=')), options)) variables.emplace_back(text);
  }
  for (const auto& [key, value] : options.environment) {
    variables.push_back(absl::StrCat(key, "=", value));
  }
  return variables;
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& s : strings) pointers.push_back(const_cast<char*>(s.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// One output stream of the child.
struct Stream {
  Descriptor pipe;
  std::string* text = nullptr;
  int64_t limit = 0;

  // Reads what is there; closes at its end.
  void Drain() {
    char buffer[1 << 15];
    while (pipe.get() >= 0) {
      const ssize_t n = read(pipe.get(), buffer, sizeof buffer);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) return;
      if (n <= 0) {
        pipe.Close();
        return;
      }
      const int64_t room = std::max<int64_t>(0, limit - static_cast<int64_t>(text->size()));
      text->append(buffer, static_cast<size_t>(std::min<int64_t>(n, room)));
    }
  }
};

constexpr int kPollWithoutExitEventMs = 10;

// Reads both streams until the child has ended, or kills it at the deadline.
void Attend(Child* child, std::array<Stream, 2>* streams, SteadyClock::time_point deadline,
            bool* timed_out) {
  while (true) {
    pollfd events[3];
    nfds_t count = 0;
    for (Stream& stream : *streams) {
      if (stream.pipe.get() >= 0) events[count++] = {stream.pipe.get(), POLLIN, 0};
    }
    if (child->exit_event() >= 0) events[count++] = {child->exit_event(), POLLIN, 0};
    int wait_ms = child->exit_event() >= 0 ? -1 : kPollWithoutExitEventMs;
    if (deadline != SteadyClock::time_point::max()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyClock::now());
      const int64_t left_ms = std::clamp<int64_t>(left.count(), 0, std::numeric_limits<int>::max());
      if (wait_ms < 0 || left_ms < wait_ms) wait_ms = static_cast<int>(left_ms);
    }
    const int ready = poll(events, count, wait_ms);
    for (Stream& stream : *streams) stream.Drain();
    if (child->HasEnded()) break;
    if (ready <= 0 && SteadyClock::now() >= deadline) {
      *timed_out = true;
      break;
    }
  }
  // Whatever it started and left behind would hold the pipes open for ever.
  child->KillGroup();
  for (Stream& stream : *streams) stream.Drain();
}

absl::Status StartFailure(const ChildReport& report, const SubprocessOptions& options) {
  const std::string& program = options.argv.front();
  switch (report.step) {
    case ChildStep::kWorkingDirectory:
      return ErrnoStatus(report.error, absl::StrCat("run ", program, " in directory"),
                         options.working_directory);
    case ChildStep::kExecute:
      return ErrnoStatus(report.error, "run", program);
    case ChildStep::kPrepare:
      break;
  }
  return ErrnoStatus(report.error, "prepare a child process for", program);
}

}  // namespace

std::string SubprocessResult::Outcome() const {
  if (timed_out) return "ran past its time limit and was killed";
  if (signal != 0)
    return absl::StrCat("was killed by signal ", signal, " (", strsignal(signal), ")");
  return absl::StrCat("exited with ", exit_code);
}

absl::StatusOr<std::string> FindProgram(const std::string& name) {
  const auto executable = [](const std::string& path) {
    return IsRegularFile(path) && access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') != std::string::npos) {
    if (executable(name)) return name;
    return IsRegularFile(name)
               ? ErrnoStatus(EACCES, "run", name)
               : absl::NotFoundError(absl::StrCat("cannot run ", name, ": no such program"));
  }
  // The search path is the system's convention for finding programs, not a setting of this library.
  const char* variable = std::getenv("PATH");
  const std::string path = variable != nullptr ? variable : "/usr/local/bin:/usr/bin:/bin";
  for (absl::string_view directory : absl::StrSplit(path, ':', absl::SkipEmpty())) {
    // A relative entry would make the answer depend on the working directory.
    if (name.empty() || directory.front() != '/') continue;
    std::string candidate = JoinPath(directory, name);
    if (executable(candidate)) return candidate;
  }
  return absl::NotFoundError(absl::StrCat("cannot find program '", name, "' in PATH (", path, ")"));
}

absl::StatusOr<SubprocessResult> RunSubprocess(const SubprocessOptions& options) {
  if (options.argv.empty()) return absl::InternalError("cannot run a program without a name");
  std::string program;
  if (options.executable_fd < 0) {
    absl::StatusOr<std::string> found = FindProgram(options.argv.front());
    if (!found.ok()) return found.status();
    program = *std::move(found);
  }
  absl::StatusOr<Descriptor> input = MakeInput(options.standard_input);
  if (!input.ok()) return input.status();

  SubprocessResult result;
  std::array<Stream, 2> streams;
  streams[0].text = &result.standard_output;
  streams[1].text = &result.standard_error;
  Descriptor write_ends[2];
  for (size_t i = 0; i < 2; ++i) {
    streams[i].limit = options.output_limit_bytes;
    absl::Status made = MakePipe(&streams[i].pipe, &write_ends[i]);
    if (!made.ok()) return made;
    if (fcntl(streams[i].pipe.get(), F_SETFL, O_NONBLOCK) != 0) {
      return ErrnoStatus(errno, "prepare", "a pipe");
    }
  }
  Descriptor report_read;
  Descriptor report_write;
  absl::Status made = MakePipe(&report_read, &report_write);
  if (!made.ok()) return made;

  const std::vector<std::string> variables = MakeEnvironment(options);
  const std::vector<char*> argv = Pointers(options.argv);
  const std::vector<char*> environment = Pointers(variables);
  ChildPlan plan;
  plan.program = program.c_str();
  plan.program_fd = options.executable_fd;
  plan.argv = argv.data();
  plan.environment = environment.data();
  if (!options.working_directory.empty())
    plan.working_directory = options.working_directory.c_str();
  plan.streams[0] = input->get();
  plan.streams[1] = write_ends[0].get();
  plan.streams[2] = write_ends[1].get();
  plan.report_fd = report_write.get();
  plan.parent = getpid();
  plan.memory_limit_bytes = options.memory_limit_bytes;

  const auto start = SteadyClock::now();
  auto deadline = SteadyClock::time_point::max();
  if (options.timeout < absl::Hours(24 * 365)) {
    deadline = start + absl::ToChronoNanoseconds(options.timeout);
  }
  const pid_t pid = StartChild(plan);
  if (pid < 0) return ErrnoStatus(errno, "start a process for", options.argv.front());
  Child child(pid);
  input->Close();
  for (Descriptor& end : write_ends) end.Close();
  report_write.Close();

  // Ends at exec, which closes the other end, or at the child's death.
  ChildReport report;
  ssize_t n;
  do {
    n = read(report_read.get(), &report, sizeof report);
  } while (n < 0 && errno == EINTR);
  if (n == static_cast<ssize_t>(sizeof report)) return StartFailure(report, options);

  Attend(&child, &streams, deadline, &result.timed_out);
  int status = 0;
  if (!child.Reap(&status)) {
    return absl::InternalError(absl::StrCat(
        "cannot learn how ", options.argv.front(),
        " ended: the process ignores SIGCHLD or waits for children that are not its own"));
  }
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  return result;
}

}  // namespace whet
