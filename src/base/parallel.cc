#include "src/base/parallel.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <system_error>
#include <thread>
#include <vector>

#include "src/base/cgroup.h"

namespace whet {
namespace {

int AffinityProcessors() {
  // The kernel refuses a mask smaller than its own, whose size it does not tell.
  for (int processors = 1024; processors <= 1 << 20; processors *= 2) {
    cpu_set_t* const mask = CPU_ALLOC(processors);
    if (mask == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(processors);
    CPU_ZERO_S(bytes, mask);
    const int failed = sched_getaffinity(0, bytes, mask);
    const int error_number = errno;
    const int count = failed == 0 ? CPU_COUNT_S(bytes, mask) : 0;
    CPU_FREE(mask);
    if (count > 0) return count;
    if (failed != 0 && error_number != EINVAL) break;
  }
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace

int AvailableProcessors() {
  const int affinity = AffinityProcessors();
  const int quota = CgroupProcessorLimit("/");
  return quota > 0 ? std::min(affinity, quota) : affinity;
}

void ParallelFor(size_t count, int workers, const std::function<void(size_t)>& body) {
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) body(i);
  };
  const size_t helpers =
      workers <= 1 || count <= 1 ? 0 : std::min(static_cast<size_t>(workers), count) - 1;
  std::vector<std::thread> threads;
  threads.reserve(helpers);
  for (size_t i = 0; i < helpers; ++i) {
    // A machine out of threads makes the loop slower, not wrong.
    try {
      threads.emplace_back(work);
    } catch (const std::system_error&) {
      break;
    }
  }
  work();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace whet
