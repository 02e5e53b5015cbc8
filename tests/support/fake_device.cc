#include "tests/support/fake_device.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace whet {
namespace {

constexpr int64_t kBytesPerNs = 1000;  // of copies and fills
constexpr size_t kAlignment = 256;

}  // namespace

FakeDevice::FakeDevice() : clock_(absl::UnixEpoch()) {
  identity_.product = "fake device";
  identity_.compute_units = 1;
}

FakeDevice::~FakeDevice() = default;

Kernel FakeDevice::AddKernel(std::string name, Function function, int64_t duration_ns) {
  auto kernel = std::make_unique<FakeKernel>();
  kernel->number = static_cast<int>(kernels_.size());
  kernel->name = std::move(name);
  kernel->function = std::move(function);
  kernel->duration_ns = duration_ns;
  kernels_.push_back(std::move(kernel));
  return Kernel{.function = kernels_.back().get()};
}

void FakeDevice::Fail(Call call, int nth, absl::Status status, bool for_ever) {
  faults_[call] = {.at = calls_[call] + nth, .for_ever = for_ever, .status = std::move(status)};
}

int64_t FakeDevice::calls(Call call) const {
  const auto found = calls_.find(call);
  return found == calls_.end() ? 0 : found->second;
}

int64_t FakeDevice::launches(const std::string& kernel) const {
  int64_t launches = 0;
  for (const auto& k : kernels_) {
    if (k->name == kernel) launches += k->launches;
  }
  return launches;
}

absl::Status FakeDevice::Count(Call call) {
  const int64_t number = ++calls_[call];
  const auto fault = faults_.find(call);
  if (fault == faults_.end()) return absl::OkStatus();
  const bool due = fault->second.for_ever ? number >= fault->second.at : number == fault->second.at;
  return due ? fault->second.status : absl::OkStatus();
}

void FakeDevice::Occupy(int64_t ns) { free_at_ns_ = std::max(free_at_ns_, now_ns()) + ns; }

void FakeDevice::WaitUntil(int64_t time_ns) {
  if (time_ns > now_ns()) clock_.Advance(absl::Nanoseconds(time_ns - now_ns()));
}

absl::StatusOr<std::unique_ptr<Module>> FakeDevice::LoadModule(absl::string_view) {
  return absl::UnimplementedError("the fake device takes its kernels from AddKernel");
}

absl::Status FakeDevice::Launch(Kernel kernel, const LaunchGeometry& geometry, void* const* params,
                                StreamHandle) {
  HostWorks(kHostLaunchNs);
  if (absl::Status s = Count(Call::kLaunch); !s.ok()) return s;
  if (geometry.empty()) return absl::OkStatus();
  auto& fake = *static_cast<FakeKernel*>(kernel.function);
  ++fake.launches;
  const int64_t start = std::max(free_at_ns_, now_ns());
  const int64_t duration =
      model_ == nullptr
          ? fake.duration_ns
          : model_->DurationNanoseconds(fake.number, fake.duration_ns, start, free_at_ns_);
  if (fake.function) fake.function(params);
  free_at_ns_ = start + duration;
  busy_ns_ += duration;
  return absl::OkStatus();
}

absl::StatusOr<DevicePointer> FakeDevice::Allocate(int64_t bytes) {
  HostWorks(kHostCallNs);
  if (absl::Status s = Count(Call::kAllocate); !s.ok()) return s;
  auto memory = std::make_unique<char[]>(static_cast<size_t>(bytes) + kAlignment);
  void* aligned = memory.get();
  size_t space = static_cast<size_t>(bytes) + kAlignment;
  std::align(kAlignment, static_cast<size_t>(bytes), aligned, space);
  allocations_[aligned] = std::move(memory);
  return aligned;
}

void FakeDevice::Free(DevicePointer pointer) { allocations_.erase(pointer); }

absl::Status FakeDevice::Copy(DevicePointer to, const void* from, int64_t bytes, StreamHandle) {
  HostWorks(kHostCallNs);
  if (absl::Status s = Count(Call::kCopy); !s.ok()) return s;
  std::memmove(to, from, static_cast<size_t>(bytes));
  Occupy(bytes / kBytesPerNs);
  return absl::OkStatus();
}

absl::Status FakeDevice::CopyToHost(void* to, const void* from, int64_t bytes,
                                    StreamHandle stream) {
  if (absl::Status s = Copy(to, from, bytes, stream); !s.ok()) return s;
  WaitUntil(free_at_ns_);
  return absl::OkStatus();
}

absl::Status FakeDevice::CopyFromHost(DevicePointer to, const void* from, int64_t bytes,
                                      StreamHandle stream) {
  return CopyToHost(to, from, bytes, stream);
}

absl::Status FakeDevice::Fill(DevicePointer to, uint8_t value, int64_t bytes, StreamHandle) {
  HostWorks(kHostCallNs);
  if (absl::Status s = Count(Call::kFill); !s.ok()) return s;
  std::memset(to, value, static_cast<size_t>(bytes));
  Occupy(bytes / kBytesPerNs);
  return absl::OkStatus();
}

absl::StatusOr<StreamHandle> FakeDevice::CreateStream() { return static_cast<StreamHandle>(this); }

void FakeDevice::DestroyStream(StreamHandle) {}

absl::Status FakeDevice::Synchronize(StreamHandle) {
  if (absl::Status s = Count(Call::kSynchronize); !s.ok()) return s;
  WaitUntil(free_at_ns_);
  return absl::OkStatus();
}

absl::StatusOr<bool> FakeDevice::IsCapturing(StreamHandle) { return capturing_; }

absl::StatusOr<EventHandle> FakeDevice::CreateEvent() {
  return static_cast<EventHandle>(new FakeEvent);
}

void FakeDevice::DestroyEvent(EventHandle event) { delete static_cast<FakeEvent*>(event); }

absl::Status FakeDevice::Record(EventHandle event, StreamHandle) {
  HostWorks(kHostCallNs);
  if (absl::Status s = Count(Call::kRecord); !s.ok()) return s;
  static_cast<FakeEvent*>(event)->time_ns = std::max(free_at_ns_, now_ns());
  return absl::OkStatus();
}

absl::StatusOr<int64_t> FakeDevice::ElapsedNanoseconds(EventHandle begin, EventHandle end) {
  if (absl::Status s = Count(Call::kElapsed); !s.ok()) return s;
  const FakeEvent& first = *static_cast<FakeEvent*>(begin);
  const FakeEvent& last = *static_cast<FakeEvent*>(end);
  if (first.time_ns < 0 || last.time_ns < 0) {
    return absl::FailedPreconditionError("an event was not recorded");
  }
  WaitUntil(last.time_ns);
  return last.time_ns - first.time_ns;
}

TelemetrySample FakeDevice::Telemetry() {
  if (model_ != nullptr) return model_->Telemetry(now_ns());
  TelemetrySample sample;
  sample.monotonic_ns = now_ns();
  return sample;
}

absl::Status FakeDevice::EncodeTensorMap(const TensorMap& description, const Argument& argument,
                                         DevicePointer base, void* map) {
  if (absl::Status s = Count(Call::kEncode); !s.ok()) return s;
  char* const bytes = static_cast<char*>(map);
  std::memset(bytes, description.argument + static_cast<int>(argument.shape.size()), 128);
  std::memcpy(bytes, &base, sizeof(base));
  if (scattered_maps_) std::memcpy(bytes + 120, &base, sizeof(base));
  return absl::OkStatus();
}

}  // namespace whet
