// Where the source and the log of a failed compile are left, and the one-line message that says so.
//
//   FailureStore failures("");
//   return failures.Report(identity, request, options,
//                          {.code = absl::StatusCode::kInvalidArgument, .log = log});
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "src/compile/compiler.h"

namespace whet {

struct CompileFailure {
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
  std::string cause;  // one clause, such as "it was killed by signal 6 (Aborted)"; may be empty
  std::string log;    // cleaned; may be empty
};

// Thread-safe; several processes may share the directory.
class FailureStore {
 public:
  // Empty: whet-failures-<uid> under the system's temporary directory. The directory is made when
  // first needed, 0700; one that is not the user's own is not written to.
  explicit FailureStore(std::string directory, int keep = 16);

  // "cannot compile <label> for <target> with <compiler> <version> [<options>]: <cause>: <first
  // diagnostic>; source and log are in <directory>". Only the newest `keep` are kept.
  absl::Status Report(const ToolchainIdentity& identity, const CompileRequest& request,
                      const std::vector<std::string>& options, const CompileFailure& failure) const;

 private:
  absl::StatusOr<std::string> Keep(const CompileRequest& request, const std::string& log) const;
  absl::Status Prepare() const;
  void DropOldest() const;

  std::string directory_;
  size_t keep_;
};

}  // namespace whet
