#include "src/cli/device_call.h"

#include <algorithm>
#include <utility>

namespace whet {
namespace {

constexpr int64_t kBatchNs = 2'000'000;  // well above the resolution of any event
constexpr int64_t kMaxBatches = 1000;
constexpr int64_t kMinBatches = 5;

// Two events that are given back.
class EventPair {
 public:
  explicit EventPair(Device& device) : device_(device) {}
  ~EventPair() {
    if (begin_ != nullptr) device_.DestroyEvent(begin_);
    if (end_ != nullptr) device_.DestroyEvent(end_);
  }
  absl::Status Create() {
    absl::StatusOr<EventHandle> begin = device_.CreateEvent();
    if (!begin.ok()) return begin.status();
    begin_ = *begin;
    absl::StatusOr<EventHandle> end = device_.CreateEvent();
    if (!end.ok()) return end.status();
    end_ = *end;
    return absl::OkStatus();
  }
  absl::StatusOr<int64_t> Time(const Plan& plan, void* const* args, int64_t launches) {
    if (absl::Status s = device_.Record(begin_, nullptr); !s.ok()) return s;
    for (int64_t i = 0; i < launches; ++i) {
      if (absl::Status s = plan.Launch(args, nullptr); !s.ok()) return s;
    }
    if (absl::Status s = device_.Record(end_, nullptr); !s.ok()) return s;
    return device_.ElapsedNanoseconds(begin_, end_);
  }

 private:
  Device& device_;
  EventHandle begin_ = nullptr;
  EventHandle end_ = nullptr;
};

}  // namespace

DeviceCall::DeviceCall(Device& device, OperationTensors tensors)
    : device_(device),
      host_(std::move(tensors)),
      pointers_(host_.tensors.size(), nullptr),
      args_(host_.tensors.size(), nullptr) {}

DeviceCall::~DeviceCall() {
  for (DevicePointer pointer : pointers_) {
    if (pointer != nullptr) device_.Free(pointer);
  }
}

absl::StatusOr<std::unique_ptr<DeviceCall>> DeviceCall::Make(Device& device,
                                                             const OperationTensors& tensors) {
  std::unique_ptr<DeviceCall> call(new DeviceCall(device, tensors));
  for (size_t i = 0; i < tensors.tensors.size(); ++i) {
    const HostTensor& tensor = tensors.tensors[i];
    call->args_[i] = &call->pointers_[i];
    if (!tensor.present()) continue;
    if (tensors.arguments[i].direction == Direction::kScalar) {
      call->args_[i] = tensor.data();
      continue;
    }
    absl::StatusOr<DevicePointer> pointer = device.Allocate(tensor.span_bytes());
    if (!pointer.ok()) return pointer.status();
    call->pointers_[i] = *pointer;
    absl::Status copied =
        device.CopyFromHost(*pointer, tensor.data(), tensor.span_bytes(), nullptr);
    if (!copied.ok()) return copied;
  }
  return call;
}

absl::StatusOr<OperationTensors> DeviceCall::Download() {
  OperationTensors result = host_;
  for (size_t i = 0; i < result.tensors.size(); ++i) {
    const Direction direction = result.arguments[i].direction;
    if (!result.tensors[i].present() ||
        (direction != Direction::kOut && direction != Direction::kInOut)) {
      continue;
    }
    result.tensors[i] = result.tensors[i].Clone();
    absl::Status copied = device_.CopyToHost(result.tensors[i].data(), pointers_[i],
                                             result.tensors[i].span_bytes(), nullptr);
    if (!copied.ok()) return copied;
  }
  return result;
}

absl::StatusOr<LaunchTiming> TimeLaunches(Device& device, const Plan& plan, void* const* args,
                                          double seconds) {
  EventPair events(device);
  if (absl::Status s = events.Create(); !s.ok()) return s;
  absl::StatusOr<int64_t> once = events.Time(plan, args, 1);
  if (!once.ok()) return once.status();
  const int64_t batch = std::clamp<int64_t>(kBatchNs / std::max<int64_t>(1, *once), 1, 10000);
  const double batch_seconds =
      static_cast<double>(std::max<int64_t>(1, *once)) * static_cast<double>(batch) / 1e9;
  const int64_t batches =
      std::clamp<int64_t>(static_cast<int64_t>(seconds / batch_seconds), kMinBatches, kMaxBatches);
  std::vector<double> samples;
  for (int64_t i = 0; i < batches; ++i) {
    absl::StatusOr<int64_t> elapsed = events.Time(plan, args, batch);
    if (!elapsed.ok()) return elapsed.status();
    samples.push_back(static_cast<double>(*elapsed) / static_cast<double>(batch));
  }
  std::sort(samples.begin(), samples.end());
  return LaunchTiming{.median_ns = samples[samples.size() / 2],
                      .fastest_ns = samples.front(),
                      .launches = batch * batches};
}

}  // namespace whet
