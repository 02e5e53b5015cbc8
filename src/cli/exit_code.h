// What the tool's exit status means; docs/cli.md says the same to people. Never renumber.
//
//   return {ExitCode::kBadInput, status};
#pragma once

#include "absl/status/status.h"

namespace whet {

enum class ExitCode : int {
  kDone = 0,
  kFailed = 1,         // none of the below: memory, a disk, a bug
  kUsage = 2,          // the command line is wrong
  kBadInput = 3,       // a problem, tensor, file or setting is wrong
  kMissing = 4,        // this machine lacks a device, a compiler or a library
  kCompileFailed = 5,  // a compiler was there and failed, or no variant could be run
  kWrongResult = 6,    // the output is further from float64 than its tolerance, or has findings
};

// How a verb ended. The message of `status`, when not OK, is the one line that the user reads.
struct Outcome {
  ExitCode code = ExitCode::kDone;
  absl::Status status;
};

// A failure while reading what the user gave.
inline Outcome InputFailure(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return {};
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kInternal:
      return {ExitCode::kFailed, status};
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kUnimplemented:
      return {ExitCode::kMissing, status};
    default:
      return {ExitCode::kBadInput, status};
  }
}

// A failure while compiling, tuning or launching a problem that was understood.
inline Outcome ExecutionFailure(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return {};
    case absl::StatusCode::kNotFound:  // no compiler, or offline and not in the cache
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kUnimplemented:
      return {ExitCode::kMissing, status};
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kInternal:
      return {ExitCode::kCompileFailed, status};
    default:
      return {ExitCode::kFailed, status};
  }
}

}  // namespace whet
