// A device whose whole identity comes late, as a GPU's does whose management library is slow: the
// power cap is known only to who asks for identity().
//
//   LateDevice device(*cpu_device, /*power_cap_watts=*/700);
//   device.identity_is_settled();        // false, until identity() was called
//
// All else goes to the device underneath, which is not owned. Not thread-safe.
#pragma once

#include <memory>
#include <string>

#include "src/device/device.h"

namespace whet {

class LateDevice final : public Device {
 public:
  LateDevice(Device& below, int64_t power_cap_watts)
      : below_(below), early_(below.identity()), whole_(early_) {
    early_.power_cap_watts = 0;
    whole_.power_cap_watts = power_cap_watts;
  }

  const DeviceIdentity& identity() const override {
    settled_ = true;
    return whole_;
  }
  const DeviceIdentity& early_identity() const override { return early_; }
  bool identity_is_settled() const override { return settled_; }

  absl::StatusOr<std::unique_ptr<Module>> LoadModule(absl::string_view object) override {
    return below_.LoadModule(object);
  }
  absl::Status Launch(Kernel kernel, const LaunchGeometry& geometry, void* const* params,
                      StreamHandle stream) override {
    return below_.Launch(kernel, geometry, params, stream);
  }
  absl::StatusOr<DevicePointer> Allocate(int64_t bytes) override { return below_.Allocate(bytes); }
  void Free(DevicePointer pointer) override { below_.Free(pointer); }
  absl::StatusOr<int64_t> FreeMemory() override { return below_.FreeMemory(); }
  absl::Status Copy(DevicePointer to, const void* from, int64_t bytes,
                    StreamHandle stream) override {
    return below_.Copy(to, from, bytes, stream);
  }
  absl::Status CopyToHost(void* to, const void* from, int64_t bytes, StreamHandle stream) override {
    return below_.CopyToHost(to, from, bytes, stream);
  }
  absl::Status CopyFromHost(DevicePointer to, const void* from, int64_t bytes,
                            StreamHandle stream) override {
    return below_.CopyFromHost(to, from, bytes, stream);
  }
  absl::Status Fill(DevicePointer to, uint8_t value, int64_t bytes, StreamHandle stream) override {
    return below_.Fill(to, value, bytes, stream);
  }
  absl::StatusOr<StreamHandle> CreateStream() override { return below_.CreateStream(); }
  void DestroyStream(StreamHandle stream) override { below_.DestroyStream(stream); }
  absl::Status Synchronize(StreamHandle stream) override { return below_.Synchronize(stream); }
  absl::StatusOr<bool> IsCapturing(StreamHandle stream) override {
    return below_.IsCapturing(stream);
  }
  absl::StatusOr<EventHandle> CreateEvent() override { return below_.CreateEvent(); }
  void DestroyEvent(EventHandle event) override { below_.DestroyEvent(event); }
  absl::Status Record(EventHandle event, StreamHandle stream) override {
    return below_.Record(event, stream);
  }
  absl::StatusOr<int64_t> ElapsedNanoseconds(EventHandle begin, EventHandle end) override {
    return below_.ElapsedNanoseconds(begin, end);
  }

 private:
  Device& below_;
  DeviceIdentity early_, whole_;
  mutable bool settled_ = false;
};

}  // namespace whet
