// Code for variants: from the caches, or compiled and kept.
//
//   CodeProvider provider(target, limits, toolchains, store, options, log, counters);
//   absl::StatusOr<VariantCode> code = provider.Get(kernel_template, problem, variant,
//                                                   /*code_key=*/"");
//
// A hit touches no compiler. Of several processes of a host that want the same code, one compiles
// it (cache/host_flights.h) wherever the others could find the outcome: with a cache on disk that
// this process may write. Thread-safe: variants of a problem are fetched side by side.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cache/host_flights.h"
#include "cache/store.h"
#include "src/base/log.h"
#include "src/compile/toolchains.h"
#include "src/model/kernel_template.h"
#include "src/model/keys.h"
#include "src/runtime/options.h"
#include "src/runtime/plan/plan.h"

namespace whet {

struct VariantCode {
  Specialization specialization;
  std::string object;
  std::string key;       // whole code key record
  std::string compiler;  // "hostcxx 14.0.6"
  Origin origin = Origin::kNone;
};

// An entry as the cache keeps it, and where it came from.
struct MadeCode {
  CodeEntry entry;
  Origin origin = Origin::kNone;
  std::string toolchain = {};  // "hiprtc 7.14.1, build 4f1c"; set by Make
};

struct CompileCounters {
  std::atomic<int64_t> compiles{0};
  std::atomic<int64_t> failures{0};
  std::atomic<int64_t> found_made{0};  // compiled by another process that was waited for
  std::atomic<int64_t> lock_waits{0};  // times that another process's compile was waited for
  std::atomic<int64_t> lock_wait_ns{0};
  std::atomic<int64_t> without_lock{0};  // compiled privately: no lock could be had
};

// Targets whose code runs on a device of `target`, the exact one first: with an AMD feature left
// open, code is made for either setting of it; sm_90 runs on an sm_90a.
std::vector<Target> CompatibleTargets(const Target& target);

// What asks for the code of `specialization`: the fields that CodeRequestKey takes.
CodeKeyFields RequestFields(const KernelTemplate& kernel_template, const Problem& problem,
                            const Specialization& specialization, const Target& target);
// What asks for the winner of `problem` on `device`.
TuningKeyFields TuningFieldsOf(const KernelTemplate& kernel_template, const Problem& problem,
                               const DeviceIdentity& device);
KeyRecord TuningKeyOf(const KernelTemplate& kernel_template, const Problem& problem,
                      const DeviceIdentity& device);

class CodeProvider {
 public:
  // All but the target and the limits must outlive the provider.
  CodeProvider(Target target, DeviceLimits limits, Toolchains& toolchains, Store& store,
               const Options& options, const Logger& log, CompileCounters& counters);

  // `code_key`: the record of the code that a winner was measured with, or empty. Looked up in this
  // order: that very code; code of any compiler for the same source and target, the newest first;
  // the same for the compatible targets; then compiled. NotFound under CachePolicy::kOffline,
  // naming the key; otherwise the compiler's errors.
  absl::StatusOr<VariantCode> Get(const KernelTemplate& kernel_template, const Problem& problem,
                                  const Variant& variant, absl::string_view code_key);

  // The code that the compiler of this machine makes, found by its whole key or compiled: for who
  // must know what is in a pack, whatever the cache held before. NotFound
  // under CachePolicy::kOffline when it would have to be compiled.
  absl::StatusOr<MadeCode> Make(const KernelTemplate& kernel_template, const Problem& problem,
                                const Variant& variant);

  // For code that passed its checksum but would not load: drops it from the cache and compiles it
  // anew.
  absl::StatusOr<VariantCode> Rebuild(const KernelTemplate& kernel_template, const Problem& problem,
                                      const VariantCode& refused, absl::string_view reason);

 private:
  struct Job;

  // Finds the compiler, and completes the key with it.
  absl::StatusOr<Job> Prepare(const Specialization& specialization, CodeKeyFields fields);
  // Compiles and keeps, one flight per key and host.
  absl::StatusOr<MadeCode> Fly(const Job& job);
  absl::StatusOr<MadeCode> Compile(const Job& job);
  absl::StatusOr<VariantCode> CompileCode(Specialization specialization, CodeKeyFields fields);

  const Target target_;
  const DeviceLimits limits_;
  Toolchains& toolchains_;
  Store& store_;
  const CachePolicy policy_;
  const absl::Duration compile_timeout_;
  const Logger& log_;
  CompileCounters& counters_;
  std::unique_ptr<HostFlights> flights_;  // null: nothing that others could find
};

}  // namespace whet
