#include "src/runtime/build_code.h"

#include <map>
#include <memory>
#include <utility>

#include "src/base/clock.h"
#include "src/base/mutex.h"
#include "src/base/parallel.h"
#include "src/compile/compile_pool.h"
#include "src/runtime/code_provider.h"

namespace whet {

std::vector<BuiltCode> BuildCode(Runtime& runtime, const std::vector<CodeRequest>& requests,
                                 Store& into, const ProgressSink& progress) {
  const Logger log(runtime.options().log);
  CompileCounters counters;
  std::map<std::string, std::unique_ptr<CodeProvider>> providers;
  for (const CodeRequest& request : requests) {
    std::unique_ptr<CodeProvider>& provider = providers[request.target.ToString()];
    if (provider != nullptr) continue;
    provider = std::make_unique<CodeProvider>(request.target, DeviceLimits{}, runtime.toolchains(),
                                              runtime.store(), runtime.options(), log, counters);
  }
  std::vector<BuiltCode> results(requests.size());
  Mutex mutex;
  int done = 0;
  ParallelFor(requests.size(), CompileWorkers(), [&](size_t i) {
    const CodeRequest& request = requests[i];
    BuiltCode& result = results[i];
    const int64_t begin_ns = Clock::Real()->MonotonicNanoseconds();
    absl::StatusOr<MadeCode> made =
        providers.at(request.target.ToString())
            ->Make(*request.kernel_template, request.problem, request.variant);
    result.status = made.ok() ? into.PutCode(made->entry) : made.status();
    if (made.ok()) {
      result.toolchain = std::move(made->toolchain);
      result.was_cached = made->origin != Origin::kCompiled;
      result.object_bytes = static_cast<int64_t>(made->entry.object.size());
    }
    result.time = absl::Nanoseconds(Clock::Real()->MonotonicNanoseconds() - begin_ns);
    MutexLock lock(mutex);
    ++done;
    if (progress) {
      progress(request.problem.text(), "compile", done, static_cast<int>(requests.size()));
    }
  });
  return results;
}

}  // namespace whet
