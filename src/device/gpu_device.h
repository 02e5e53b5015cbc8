// What the CUDA driver's devices and HIP's have in common: memory, streams and events are the same
// calls under other names.
//
//   class CudaDevice final : public GpuDevice<CudaCalls> { ... LoadModule, Launch ... };
//
// `Calls` is a copyable table over one open driver and one device of it. All its functions return
// the driver's error code, 0 being success:
//   Scope                       a class: makes the device current while it lives; Scope(calls)
//   Check(error, action)        the Status of a code
//   Allocate(&pointer, n)  Free(pointer)  MemoryInfo(&free, &total)
//   Copy(to, from, n, stream)  Fill(to, value, n, stream)      either side may be the host's
//   CreateStream(&s)  DestroyStream(s)  SynchronizeStream(s)  IsCapturing(s, &status)
//   CreateEvent(&e)  DestroyEvent(e)  RecordEvent(e, s)  SynchronizeEvent(e)  QueryEvent(e)
//   ElapsedMilliseconds(&ms, begin, end)
// and a `lost` flag, shared by the copies: a kernel does not end, and whatever waits for it would not
// return. Then no call reaches the driver any more.
#pragma once

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/device/device.h"
#include "src/device/device_options.h"

namespace whet {

template <typename Calls>
class GpuDevice : public Device {
 public:
  GpuDevice(Calls calls, DeviceIdentity identity)
      : calls_(std::move(calls)), identity_(std::move(identity)) {}

  const DeviceIdentity& identity() const override { return identity_; }

  absl::StatusOr<DevicePointer> Allocate(int64_t bytes) override {
    if (absl::Status s = Usable(); !s.ok()) return s;
    Scope scope(calls_);
    void* pointer = nullptr;
    // CUDA refuses 0 bytes, HIP gives a null pointer for them.
    const size_t size = bytes > 0 ? static_cast<size_t>(bytes) : 1;
    if (absl::Status s =
            calls_.Check(calls_.Allocate(&pointer, size),
                         absl::StrCat("allocate ", bytes, " bytes on ", identity_.product));
        !s.ok()) {
      return s;
    }
    return pointer;
  }

  void Free(DevicePointer pointer) override {
    if (calls_.IsLost()) return;
    Scope scope(calls_);
    calls_.Free(pointer);
  }

  absl::StatusOr<int64_t> FreeMemory() override {
    if (absl::Status s = Usable(); !s.ok()) return s;
    Scope scope(calls_);
    size_t free_bytes = 0, total_bytes = 0;
    if (absl::Status s = calls_.Check(calls_.MemoryInfo(&free_bytes, &total_bytes),
                                      "ask for free device memory");
        !s.ok()) {
      return s;
    }
    return static_cast<int64_t>(free_bytes);
  }

  absl::Status Copy(DevicePointer to, const void* from, int64_t bytes,
                    StreamHandle stream) override {
    if (absl::Status s = Usable(); !s.ok()) return s;
    if (bytes == 0) return absl::OkStatus();
    Scope scope(calls_);
    return calls_.Check(calls_.Copy(to, from, static_cast<size_t>(bytes), stream),
                        absl::StrCat("copy ", bytes, " bytes"));
  }

  absl::Status CopyToHost(void* to, const void* from, int64_t bytes, StreamHandle stream) override {
    if (absl::Status s = Copy(to, from, bytes, stream); !s.ok()) return s;
    return Synchronize(stream);
  }

  absl::Status CopyFromHost(DevicePointer to, const void* from, int64_t bytes,
                            StreamHandle stream) override {
    if (absl::Status s = Copy(to, from, bytes, stream); !s.ok()) return s;
    return Synchronize(stream);
  }

  absl::Status Fill(DevicePointer to, uint8_t value, int64_t bytes, StreamHandle stream) override {
    if (absl::Status s = Usable(); !s.ok()) return s;
    if (bytes == 0) return absl::OkStatus();
    Scope scope(calls_);
    return calls_.Check(calls_.Fill(to, value, static_cast<size_t>(bytes), stream),
                        absl::StrCat("fill ", bytes, " bytes of device memory"));
  }

  absl::StatusOr<StreamHandle> CreateStream() override {
    if (absl::Status s = Usable(); !s.ok()) return s;
    Scope scope(calls_);
    StreamHandle stream = nullptr;
    if (absl::Status s = calls_.Check(calls_.CreateStream(&stream), "create a stream"); !s.ok()) {
      return s;
    }
    return stream;
  }

  void DestroyStream(StreamHandle stream) override {
    if (calls_.IsLost()) return;
    Scope scope(calls_);
    calls_.DestroyStream(stream);
  }

  absl::Status Synchronize(StreamHandle stream) override {
    if (absl::Status s = Usable(); !s.ok()) return s;
    Scope scope(calls_);
    return calls_.Check(calls_.SynchronizeStream(stream), "wait for a stream");
  }

  absl::Status SynchronizeWithin(StreamHandle stream, absl::Duration limit) override {
    const absl::StatusOr<EventHandle> event = CreateEvent();
    if (!event.ok()) return event.status();
    absl::Status status = Record(*event, stream);
    if (status.ok()) status = WaitWithin(*event, limit);
    DestroyEvent(*event);
    return status;
  }

  absl::Status WaitWithin(EventHandle event, absl::Duration limit) override {
    using std::chrono::steady_clock;
    // What takes longer is looked at less often: a busy wait would take a core from the compilers.
    constexpr auto kBusy = std::chrono::milliseconds(1);
    constexpr auto kNap = std::chrono::microseconds(50);
    const auto begin = steady_clock::now();
    for (;;) {
      const absl::StatusOr<bool> over = IsOver(event);
      if (!over.ok()) return over.status();
      if (*over) return absl::OkStatus();
      const auto waited = steady_clock::now() - begin;
      if (waited > absl::ToChronoNanoseconds(limit)) {
        calls_.lost->store(true);
        return absl::DeadlineExceededError(
            absl::StrCat("it did not end within ", absl::FormatDuration(limit), " on ",
                         identity_.product, ", and no driver can end a kernel; end this process"));
      }
      if (waited > kBusy) std::this_thread::sleep_for(kNap);
    }
  }

  absl::StatusOr<bool> IsOver(EventHandle event) override {
    if (absl::Status s = Usable(); !s.ok()) return s;
    Scope scope(calls_);
    constexpr int kNotReady = 600;  // the same number in CUDA and HIP
    const auto error = calls_.QueryEvent(event);
    if (error == kNotReady) return false;
    if (absl::Status s = calls_.Check(error, "wait for an event"); !s.ok()) return s;
    return true;
  }

  absl::StatusOr<bool> IsCapturing(StreamHandle stream) override {
    if (absl::Status s = Usable(); !s.ok()) return s;
    Scope scope(calls_);
    constexpr int kStreamCaptureImplicit = 906;  // the same number in CUDA and HIP
    int status = 0;
    const auto error = calls_.IsCapturing(stream, &status);
    // The null stream while another stream of the context is being captured: using it would spoil
    // the capture.
    if (error == kStreamCaptureImplicit) return true;
    if (absl::Status s = calls_.Check(error, "ask whether a stream is being captured"); !s.ok()) {
      return s;
    }
    return status != 0;
  }

  absl::StatusOr<EventHandle> CreateEvent() override {
    if (absl::Status s = Usable(); !s.ok()) return s;
    Scope scope(calls_);
    EventHandle event = nullptr;
    if (absl::Status s = calls_.Check(calls_.CreateEvent(&event), "create an event"); !s.ok()) {
      return s;
    }
    return event;
  }

  void DestroyEvent(EventHandle event) override {
    if (calls_.IsLost()) return;
    Scope scope(calls_);
    calls_.DestroyEvent(event);
  }

  absl::Status Record(EventHandle event, StreamHandle stream) override {
    if (absl::Status s = Usable(); !s.ok()) return s;
    Scope scope(calls_);
    return calls_.Check(calls_.RecordEvent(event, stream), "record an event");
  }

  absl::StatusOr<int64_t> ElapsedNanoseconds(EventHandle begin, EventHandle end) override {
    if (absl::Status s = Usable(); !s.ok()) return s;
    Scope scope(calls_);
    if (absl::Status s = calls_.Check(calls_.SynchronizeEvent(end), "wait for an event"); !s.ok()) {
      return s;
    }
    float milliseconds = 0;
    if (absl::Status s = calls_.Check(calls_.ElapsedMilliseconds(&milliseconds, begin, end),
                                      "read the time between two events");
        !s.ok()) {
      return s;
    }
    return std::llround(static_cast<double>(milliseconds) * 1e6);
  }

 protected:
  using Scope = typename Calls::Scope;

  const Calls& calls() const { return calls_; }

  absl::Status Usable() const {
    if (!calls_.IsLost()) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat(
        "cannot use ", identity_.product, ": a kernel of this process does not end; restart it"));
  }

 private:
  const Calls calls_;
  const DeviceIdentity identity_;
};

// Opens devices 0, 1, ... until one cannot be had; the reason is kept only when there is none.
template <typename Open>
DeviceReport ReportDevices(Platform platform, Open open) {
  DeviceReport report;
  report.platform = platform;
  for (int index = 0;; ++index) {
    const absl::StatusOr<std::unique_ptr<Device>> device = open(index);
    if (!device.ok()) {
      if (report.devices.empty()) report.reason = std::string(device.status().message());
      return report;
    }
    report.devices.push_back((*device)->identity());
  }
}

}  // namespace whet
