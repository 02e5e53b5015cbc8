// Code for many problems and targets that need not be here, gathered in a store: what goes into a
// pack.
//
//   std::unique_ptr<Store> content = Store::Open({.path = ""}, log);
//   std::vector<BuiltCode> built = BuildCode(runtime, requests, *content, progress);
//
// What is gathered depends on the requests and on the compilers of this machine, not on what its
// cache happens to hold: entries are taken from the cache only under the whole key.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cache/store.h"
#include "src/model/kernel_template.h"
#include "src/runtime/runtime.h"

namespace whet {

struct CodeRequest {
  const KernelTemplate* kernel_template = nullptr;
  Problem problem;
  Variant variant;
  Target target;
};

struct BuiltCode {
  absl::Status status;
  std::string toolchain;  // "hiprtc 7.14.1, build 4f1c"
  bool was_cached = false;
  int64_t object_bytes = 0;
  absl::Duration time;
};

// One result per request, in order; a failure of one does not stop the others. Compiles side by
// side, as many as the machine can hold. The runtime's cache is read and filled as its policy says,
// so that a build that was interrupted is taken up again.
std::vector<BuiltCode> BuildCode(Runtime& runtime, const std::vector<CodeRequest>& requests,
                                 Store& into, const ProgressSink& progress);

}  // namespace whet
