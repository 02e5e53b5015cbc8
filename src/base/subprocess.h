// Runs a child process under limits, without a shell.
//
//   absl::StatusOr<SubprocessResult> r = RunSubprocess({.argv = {"/usr/bin/clang++", "--version"},
//                                                       .timeout = absl::Seconds(10)});
//   if (r.ok() && r->Succeeded()) Use(r->standard_output);
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace whet {

struct SubprocessOptions {
  // argv[0] is a path, or a name that is looked up in PATH; executable_fd (a memfd, say) is run
  // instead when >= 0.
  std::vector<std::string> argv;
  int executable_fd = -1;
  std::string standard_input;
  std::string working_directory;  // empty: the caller's
  // Which of the caller's variables the child gets: names, or prefixes that end in * ("*": all).
  std::vector<std::string> inherited_environment = {"*"};
  std::vector<std::pair<std::string, std::string>> environment;  // on top, replacing those
  absl::Duration timeout = absl::InfiniteDuration();  // then the whole process group is killed
  // Private writable memory of each process of the child (RLIMIT_DATA; not the address space, which
  // GPU runtimes reserve by the terabyte without using it); 0: none.
  int64_t memory_limit_bytes = 0;
  int64_t output_limit_bytes = 64 << 20;  // of each stream; what is beyond is dropped
};

struct SubprocessResult {
  int exit_code = -1;  // -1 when ended by a signal
  int signal = 0;      // 0 when it exited by itself
  bool timed_out = false;
  std::string standard_output;
  std::string standard_error;
  bool Succeeded() const { return exit_code == 0; }
  // "exited with 3", "was killed by signal 6 (Aborted)", "ran past its limit of 60s".
  std::string Outcome() const;
};

// OK whenever a child was started, however it ended. Otherwise NotFound (no such program or working
// directory), PermissionDenied, ResourceExhausted, or Internal (another part of the process reaped
// the child: it waits for any child, or ignores SIGCHLD). Thread-safe, and safe in a process with
// other threads; blocks until the child and what it started in its process group are gone. The
// child inherits no descriptor but its standard streams, leaves no core file, and dies with the
// calling process.
absl::StatusOr<SubprocessResult> RunSubprocess(const SubprocessOptions& options);

// The absolute path of `name` in PATH (or `name` itself when it holds a slash and is executable).
absl::StatusOr<std::string> FindProgram(const std::string& name);

}  // namespace whet
