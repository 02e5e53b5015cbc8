// What the files of the C interface share: its handle, and how errors become a code and this thread's message.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "src/runtime/c_api/cache_event_hub.h"
#include "src/runtime/runtime.h"
#include "whet/whet.h"

struct whet_runtime {
  // The runtime's cache sends to it until the runtime is gone.
  std::shared_ptr<whet::CacheEventHub> cache_events;
  std::unique_ptr<whet::Runtime> runtime;
  const whet::KernelTemplate* attention_forward = nullptr;
};

namespace whet {

whet_status Fail(whet_status code, absl::string_view message);
whet_status Finish(const absl::Status& status);
// "<function>: a required argument is a null pointer"
whet_status NullArgument(const char* function);
// InvalidArgument when the struct does not say its size.
absl::Status CheckSize(const whet_attention_forward_args& args);

inline const KernelTemplate& Unwrap(const whet_template* t) {
  return *reinterpret_cast<const KernelTemplate*>(t);
}

inline const whet_template* Wrap(const KernelTemplate* t) {
  return reinterpret_cast<const whet_template*>(t);
}

inline const Plan& Unwrap(const whet_plan* p) { return *reinterpret_cast<const Plan*>(p); }

inline const whet_plan* Wrap(const Plan* p) { return reinterpret_cast<const whet_plan*>(p); }

}  // namespace whet
