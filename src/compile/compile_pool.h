// Compiles many requests side by side.
//
//   std::vector<absl::StatusOr<CodeObject>> objects =
//       CompileAll({{compiler, first}, {compiler, second}}, {});
//
// Every compile is a process of its own, so the bound is what the machine can hold at once.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "src/compile/compiler.h"

namespace whet {

struct CompileJob {
  Compiler* compiler = nullptr;  // not null; outlives the call
  CompileRequest request;
};

struct CompilePoolOptions {
  int workers = 0;  // 0: CompileWorkers()
  // Called from the workers, several at once, as each job ends.
  std::function<void(size_t job, const absl::StatusOr<CodeObject>& result)> on_done;
};

// One result per job, in the order of the jobs; a failure of one is no failure of others. Blocks
// until all are done.
std::vector<absl::StatusOr<CodeObject>> CompileAll(const std::vector<CompileJob>& jobs,
                                                   const CompilePoolOptions& options);

// How many compilers may run at once: the processors of this process, and no more than fit into the
// memory that is free now at 1 GiB each. At least 1.
int CompileWorkers();

// The free memory in bytes, from the texts of /proc/meminfo and of the control group's limit (either
// may be empty or unreadable text: then it does not bound); -1 when neither says.
int64_t FreeMemoryBytes(absl::string_view meminfo, absl::string_view cgroup_limit,
                        absl::string_view cgroup_use);

}  // namespace whet
