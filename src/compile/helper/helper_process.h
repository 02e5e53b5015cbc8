// Runs the compile helper: one child process per request.
//
//   HelperProcess helper("");                       // the program embedded in this library
//   HelperRun run = helper.Run(request, {.timeout = absl::Minutes(1)});
//   if (run.status.ok()) Use(run.reply);
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "src/compile/helper/protocol.h"

namespace whet {

struct HelperLimits {
  absl::Duration timeout = absl::InfiniteDuration();
  int64_t memory_limit_bytes = 0;  // 0: none
};

struct HelperRun {
  // Not OK when no reply came: DeadlineExceeded, Internal (it crashed, left, or answered with
  // garbage), or what kept it from starting. The message is one clause about the helper.
  absl::Status status;
  HelperReply reply;
  std::string chatter;  // what was printed on the way; temporary paths taken out
};

// Thread-safe.
class HelperProcess {
 public:
  // `program`: a path; empty: the embedded copy, which is run from memory, or from a private
  // temporary directory where the system does not allow that.
  explicit HelperProcess(std::string program);
  ~HelperProcess();
  HelperProcess(const HelperProcess&) = delete;
  HelperProcess& operator=(const HelperProcess&) = delete;

  HelperRun Run(const HelperRequest& request, const HelperLimits& limits) const;

 private:
  struct Program;
  std::unique_ptr<Program> program_;
};

}  // namespace whet
