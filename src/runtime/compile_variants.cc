#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "src/base/mutex.h"
#include "src/base/parallel.h"
#include "src/runtime/code_provider.h"
#include "src/runtime/runtime.h"

namespace whet {

absl::StatusOr<std::vector<CompiledVariant>> CompileVariants(
    Runtime& runtime, const KernelTemplate& kernel_template, const Problem& problem,
    const std::vector<Variant>& variants, const Target& target, const ProgressSink& progress) {
  // One clear answer instead of the same one per variant.
  if (absl::StatusOr<Compiler*> compiler = runtime.toolchains().For(target); !compiler.ok()) {
    return compiler.status();
  }
  const Logger log(runtime.options().log);
  CompileCounters counters;
  CodeProvider provider(target, DeviceLimits{}, runtime.toolchains(), runtime.store(),
                        runtime.options(), log, counters);
  std::vector<CompiledVariant> results(variants.size());
  Mutex mutex;
  int done = 0;
  ParallelFor(variants.size(), AvailableProcessors(), [&](size_t i) {
    const absl::StatusOr<VariantCode> code =
        provider.Get(kernel_template, problem, variants[i], /*code_key=*/"");
    CompiledVariant& result = results[i];
    result.variant = variants[i];
    result.status = code.status();
    if (code.ok()) {
      result.compiler = code->compiler;
      result.was_cached = code->origin != Origin::kCompiled;
      result.object_bytes = static_cast<int64_t>(code->object.size());
    }
    MutexLock lock(mutex);
    ++done;
    if (progress) progress(problem.text(), "compile", done, static_cast<int>(variants.size()));
  });
  return results;
}

}  // namespace whet
