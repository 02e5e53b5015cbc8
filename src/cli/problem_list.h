// Lists of problems for `whet tune --problems`: one JSON object per line.
//
//   {"operation": "rms_norm", "dtype": "bf16", "rows": 512, "columns": 4096}
//   {"problem": "rms_norm:dtype=bf16,rows=512,columns=4096"}
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace whet {

struct ListedProblem {
  std::string operation;
  std::string text;    // fields as in --problem
  std::string origin;  // "list.jsonl:3"; empty when it was given on the command line
};

// Empty lines and lines that begin with # are skipped. InvalidArgument names file and line.
absl::StatusOr<std::vector<ListedProblem>> ReadProblemList(const std::string& path);

}  // namespace whet
