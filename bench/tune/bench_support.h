// What the benches of tuning share: an end with a message, the attention problem that they time, and
// one call's tensors.
//
//   const Problem problem = AttentionProblem(*t, /*heads=*/8, /*seq=*/512);
//   CallTensors tensors(Must(MakeTensors(...)), &device);     // or nullptr: in the host's own memory
//   Must(plan.Launch(tensors.args(), nullptr));
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/device/device.h"
#include "src/model/kernel_template.h"
#include "src/model/problem.h"
#include "src/ops/operation.h"

namespace whet {

inline void Must(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  std::exit(1);
}
template <typename T>
T Must(absl::StatusOr<T> value) {
  Must(value.status());
  return *std::move(value);
}

// Causal BF16 attention, batch 1, as many heads in K and V as in Q, head dimension 128.
Problem AttentionProblem(const KernelTemplate& attention, int64_t heads, int64_t seq);

// The tensors of one call and the arguments that point to them. Not thread-safe.
class CallTensors {
 public:
  // `device`, which must outlive it: copies into memory of it. Null: the host's own.
  CallTensors(OperationTensors host, Device* device);
  ~CallTensors();
  CallTensors(const CallTensors&) = delete;
  CallTensors& operator=(const CallTensors&) = delete;

  const OperationTensors& host() const { return host_; }
  const std::vector<DevicePointer>& pointers() const { return pointers_; }
  void* const* args() const { return args_.data(); }

 private:
  OperationTensors host_;
  Device* device_;
  std::vector<DevicePointer> pointers_;
  std::vector<void*> args_;
};

}  // namespace whet
