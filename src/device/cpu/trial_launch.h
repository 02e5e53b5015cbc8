// Runs the blocks of a launch in child processes, where a fault or an endless loop harms nobody.
//
//   absl::Status s = TrialLaunch(job, /*processes=*/2, absl::Seconds(2));
//
// Each child is a copy of this process in which one thread runs a share of the blocks; memory is
// copied on write, so nothing that the kernel writes, in its tensors or beside them, is seen here.
// Children leave no core file, raise no SIGCHLD, and die with this process.
//
// What is guaranteed: a kernel that faults, aborts, exits or does not end on these arguments is
// found out. What is not: a stray write that hits memory which is mapped and writable goes unseen
// (guards round the buffers find the near ones), and so does a fault that needs several threads.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "src/device/cpu/worker_pool.h"

namespace whet {

// Waits. FailedPrecondition: "it was killed by signal 11 (Segmentation fault) in a trial launch",
// "it did not end within 2s in a trial launch". OK also where no child can be made: then nothing is
// known. Thread-safe.
absl::Status TrialLaunch(const BlockJob& job, int processes, absl::Duration limit);

}  // namespace whet
