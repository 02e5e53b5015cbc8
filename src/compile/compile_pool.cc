#include "src/compile/compile_pool.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "src/base/files.h"
#include "src/base/parallel.h"

namespace whet {
namespace {

// What clang and the vendor compilers peak at on large kernels, with room.
constexpr int64_t kBytesPerCompile = int64_t{1} << 30;

std::string ReadOrEmpty(const char* path) {
  absl::StatusOr<std::string> text = ReadFile(path, 1 << 20);
  return text.ok() ? *std::move(text) : "";
}

}  // namespace

int64_t FreeMemoryBytes(absl::string_view meminfo, absl::string_view cgroup_limit,
                        absl::string_view cgroup_use) {
  int64_t free = -1;
  for (absl::string_view line : absl::StrSplit(meminfo, '\n')) {
    int64_t kib = 0;
    if (absl::ConsumePrefix(&line, "MemAvailable:") && absl::ConsumeSuffix(&line, "kB") &&
        absl::SimpleAtoi(line, &kib) && kib >= 0 && kib < int64_t{1} << 50) {
      free = kib * 1024;
    }
  }
  int64_t limit = 0;
  int64_t use = 0;
  if (absl::SimpleAtoi(absl::StripAsciiWhitespace(cgroup_limit), &limit) && limit > 0 &&
      absl::SimpleAtoi(absl::StripAsciiWhitespace(cgroup_use), &use)) {
    const int64_t left = std::max<int64_t>(limit - use, 0);
    free = free < 0 ? left : std::min(free, left);
  }
  return free;
}

int CompileWorkers() {
  // Inside a container its own group is the root of what it sees; version 2, then version 1.
  std::string limit = ReadOrEmpty("/sys/fs/cgroup/memory.max");
  std::string use = ReadOrEmpty("/sys/fs/cgroup/memory.current");
  if (limit.empty()) {
    limit = ReadOrEmpty("/sys/fs/cgroup/memory/memory.limit_in_bytes");
    use = ReadOrEmpty("/sys/fs/cgroup/memory/memory.usage_in_bytes");
  }
  const int64_t free = FreeMemoryBytes(ReadOrEmpty("/proc/meminfo"), limit, use);
  const int64_t fit = free < 0 ? AvailableProcessors() : free / kBytesPerCompile;
  return static_cast<int>(std::clamp<int64_t>(fit, 1, AvailableProcessors()));
}

std::vector<absl::StatusOr<CodeObject>> CompileAll(const std::vector<CompileJob>& jobs,
                                                   const CompilePoolOptions& options) {
  std::vector<absl::StatusOr<CodeObject>> results(jobs.size());
  const int workers = options.workers > 0 ? options.workers : CompileWorkers();
  ParallelFor(jobs.size(), workers, [&](size_t i) {
    results[i] = jobs[i].compiler->Compile(jobs[i].request);
    if (options.on_done) options.on_done(i, results[i]);
  });
  return results;
}

}  // namespace whet
