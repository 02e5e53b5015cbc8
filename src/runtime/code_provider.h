// Code for variants: from the caches, or compiled and kept.
//
//   CodeProvider provider(device_target, limits, toolchains, store, policy, log, counters);
//   absl::StatusOr<VariantCode> code = provider.Get(kernel_template, problem, variant,
//   /*code_key=*/"");
//
// A hit touches no compiler. Thread-safe: variants of a problem are fetched side by side.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cache/store.h"
#include "src/base/log.h"
#include "src/compile/toolchains.h"
#include "src/model/kernel_template.h"
#include "src/model/keys.h"
#include "src/runtime/options.h"
#include "src/runtime/plan.h"

namespace whet {

struct VariantCode {
  Specialization specialization;
  std::string object;
  std::string key;       // whole code key record
  std::string compiler;  // "hostcxx 14.0.6"
  Origin origin = Origin::kNone;
};

struct CompileCounters {
  std::atomic<int64_t> compiles{0};
  std::atomic<int64_t> failures{0};
};

class CodeProvider {
 public:
  // All but the strings and limits must outlive the provider.
  CodeProvider(Target target, DeviceLimits limits, Toolchains& toolchains, Store& store,
               CachePolicy policy, const Logger& log, CompileCounters& counters)
      : target_(std::move(target)),
        limits_(limits),
        toolchains_(toolchains),
        store_(store),
        policy_(policy),
        log_(log),
        counters_(counters) {}

  // `code_key`: the record of the code that a winner was measured with, or empty. Looked up in this
  // order: that very code; code of any compiler for the same source and target, the newest first;
  // then compiled. NotFound under CachePolicy::kOffline, naming the key; otherwise the compiler's
  // errors.
  absl::StatusOr<VariantCode> Get(const KernelTemplate& kernel_template, const Problem& problem,
                                  const Variant& variant, absl::string_view code_key);

  // For code that passed its checksum but would not load: drops it from the cache and compiles it
  // anew.
  absl::StatusOr<VariantCode> Rebuild(const KernelTemplate& kernel_template, const Problem& problem,
                                      const VariantCode& refused, absl::string_view reason);

 private:
  CodeKeyFields KeyFields(const KernelTemplate& kernel_template, const Problem& problem,
                          const Specialization& specialization) const;
  absl::StatusOr<VariantCode> Compile(Specialization specialization, CodeKeyFields fields);

  const Target target_;
  const DeviceLimits limits_;
  Toolchains& toolchains_;
  Store& store_;
  const CachePolicy policy_;
  const Logger& log_;
  CompileCounters& counters_;
};

}  // namespace whet
