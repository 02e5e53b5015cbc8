// A device in virtual time: kernels are C++ functions on host memory, what they cost is a model's
// word, and time passes only when something costs time. Tests of tuning are exact and need no
// waiting.
//
//   FakeDevice device;
//   Kernel kernel = device.AddKernel("double_x", [](void* const* params) { ... },
//                                    /*duration_ns=*/50'000);
//   device.Launch(kernel, {}, params, nullptr);
//   device.Synchronize(nullptr);            // device.clock() has moved on by the kernel's time
//
// Host and device run side by side as on a GPU: a launch costs the host `kHostLaunchNs` and starts
// when the host has come to it and the stream is free, so a queue that runs dry has idle gaps, and
// the timing model sees them. All streams are one. The work itself is done at the launch.
//
// Faults: the N-th call of a kind fails once, or every one from then on. Calls are counted. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/clock.h"
#include "src/device/device.h"

namespace whet {

// What launches cost. The default takes each kernel's own duration.
class TimingModel {
 public:
  virtual ~TimingModel() = default;
  // The duration of a launch of kernel number `kernel` that starts at `start_ns`; the device was
  // idle since `idle_since_ns` (<= start_ns).
  virtual int64_t DurationNanoseconds(int kernel, int64_t nominal_ns, int64_t start_ns,
                                      int64_t idle_since_ns) = 0;
  virtual TelemetrySample Telemetry(int64_t now_ns) {
    TelemetrySample sample;
    sample.monotonic_ns = now_ns;
    return sample;
  }
};

class FakeDevice final : public Device {
 public:
  static constexpr int64_t kHostLaunchNs = 2'000;
  static constexpr int64_t kHostCallNs = 500;  // every other call that does not wait

  using Function = std::function<void(void* const* params)>;
  enum class Call { kLaunch, kAllocate, kCopy, kFill, kRecord, kElapsed, kSynchronize, kEncode };

  FakeDevice();
  ~FakeDevice() override;

  // `function` may be null (does nothing). The kernel's number counts from 0.
  Kernel AddKernel(std::string name, Function function, int64_t duration_ns);
  // Not owned; must outlive the device or be taken away with nullptr.
  void SetTimingModel(TimingModel* model) { model_ = model; }
  void SetClockLag(absl::Duration lag) { clock_lag_ = lag; }

  // The N-th call from now on (1: the next) fails with `status`; with `for_ever` all later ones too.
  void Fail(Call call, int nth, absl::Status status, bool for_ever = false);
  int64_t calls(Call call) const;
  // Time during which kernels ran.
  int64_t busy_ns() const { return busy_ns_; }
  int64_t launches(const std::string& kernel) const;
  // Allocations that were not freed.
  int64_t live_allocations() const { return static_cast<int64_t>(allocations_.size()); }
  void SetFreeMemory(int64_t bytes) { free_memory_ = bytes; }
  void SetCapturing(bool capturing) { capturing_ = capturing; }
  // Tensor maps in which more than the first word depends on the address.
  void SetScatteredMaps(bool scattered) { scattered_maps_ = scattered; }
  ManualClock& clock() { return clock_; }
  // A moment of host time in which nothing is launched.
  void HostWorks(int64_t ns) { clock_.Advance(absl::Nanoseconds(ns)); }

  const DeviceIdentity& identity() const override { return identity_; }
  absl::StatusOr<std::unique_ptr<Module>> LoadModule(absl::string_view object) override;
  absl::Status Launch(Kernel kernel, const LaunchGeometry& geometry, void* const* params,
                      StreamHandle stream) override;
  absl::StatusOr<DevicePointer> Allocate(int64_t bytes) override;
  void Free(DevicePointer pointer) override;
  absl::StatusOr<int64_t> FreeMemory() override { return free_memory_; }
  absl::Status Copy(DevicePointer to, const void* from, int64_t bytes,
                    StreamHandle stream) override;
  absl::Status CopyToHost(void* to, const void* from, int64_t bytes, StreamHandle stream) override;
  absl::Status CopyFromHost(DevicePointer to, const void* from, int64_t bytes,
                            StreamHandle stream) override;
  absl::Status Fill(DevicePointer to, uint8_t value, int64_t bytes, StreamHandle stream) override;
  absl::StatusOr<StreamHandle> CreateStream() override;
  void DestroyStream(StreamHandle stream) override;
  absl::Status Synchronize(StreamHandle stream) override;
  absl::StatusOr<bool> IsCapturing(StreamHandle stream) override;
  absl::StatusOr<EventHandle> CreateEvent() override;
  void DestroyEvent(EventHandle event) override;
  absl::Status Record(EventHandle event, StreamHandle stream) override;
  absl::StatusOr<int64_t> ElapsedNanoseconds(EventHandle begin, EventHandle end) override;
  TelemetrySample Telemetry() override;
  // As CUDA's: 128 bytes of which the first eight are the address.
  absl::Status EncodeTensorMap(const TensorMap& description, const Argument& argument,
                               DevicePointer base, void* map) override;
  absl::Duration ClockLag() override { return clock_lag_; }

 private:
  struct FakeKernel {
    int number = 0;
    std::string name;
    Function function;
    int64_t duration_ns = 0;
    int64_t launches = 0;
  };
  struct FakeEvent {
    int64_t time_ns = -1;
  };
  struct Fault {
    int64_t at = 0;
    bool for_ever = false;
    absl::Status status;
  };
  absl::Status Count(Call call);
  // Lets the device work for `ns` once it is free and the host has asked.
  void Occupy(int64_t ns);
  void WaitUntil(int64_t time_ns);
  int64_t now_ns() { return clock_.MonotonicNanoseconds(); }

  DeviceIdentity identity_;
  ManualClock clock_;
  TimingModel* model_ = nullptr;
  absl::Duration clock_lag_ = absl::Milliseconds(20);
  std::vector<std::unique_ptr<FakeKernel>> kernels_;
  std::map<Call, int64_t> calls_;
  std::map<Call, Fault> faults_;
  std::map<void*, std::unique_ptr<char[]>> allocations_;
  int64_t free_memory_ = int64_t{8} << 30;
  bool capturing_ = false;
  bool scattered_maps_ = false;
  int64_t free_at_ns_ = 0;  // when the stream has done what it has
  int64_t busy_ns_ = 0;
};

}  // namespace whet
