// How many processors this process may use, and a loop over them.
//
//   ParallelFor(variants.size(), AvailableProcessors(), [&](size_t i) { compiled[i] =
//   Compile(variants[i]); });
#pragma once

#include <cstddef>
#include <functional>

namespace whet {

// Processors in the affinity mask, further bounded by the cgroup's CPU quota (rounded up). At
// least 1.
int AvailableProcessors();

// Calls body(0) ... body(count - 1), at most `workers` at a time, in increasing order of start, and
// returns when all have returned. The calling thread is one of the workers.
void ParallelFor(size_t count, int workers, const std::function<void(size_t)>& body);

}  // namespace whet
