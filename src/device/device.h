// A device: memory, streams, events, modules, launches. Implementations: cpu/, cuda/, hip/.
//
//   absl::StatusOr<std::unique_ptr<Module>> m = device.LoadModule(object_bytes);
//   absl::StatusOr<Kernel> k = (*m)->GetKernel("rms_norm_cpu", /*shared_bytes=*/0);
//   device.Launch(*k, geometry, params, stream);
//
// Streams belong to the application and are passed through as the platform's own handle
// (hipStream_t, CUstream, CpuStream*; null is the default stream). Every call is thread-safe.
// Errors: Unavailable (device lost: nothing more will work), ResourceExhausted (out of memory),
// InvalidArgument, Internal; messages carry the driver's error name.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "src/model/device_identity.h"
#include "src/model/kernel_template.h"

namespace whet {

using StreamHandle = void*;
using EventHandle = void*;
using DevicePointer = void*;

// A loaded function: `function` is the platform's handle and stays valid as long as its Module.
// GPU drivers know the sizes of a kernel's parameters; the CPU device is told them here, and needs
// them only to copy the parameters of a launch on a created stream.
struct Kernel {
  static constexpr int kParametersMax = 32;

  void* function = nullptr;
  uint64_t parameter_widths = 0;  // two bits each, the first in the lowest: 1, 2, 4 or 8 bytes
  int32_t parameters = -1;        // unknown

  // Pointers for tensors, values for scalars. More than kParametersMax stay unknown.
  void SetParameters(const std::vector<Argument>& arguments);
};

class Module {
 public:
  virtual ~Module() = default;  // unloads; the caller sees to it that no launch is in flight
  // Finds `entry` and lets it use `shared_bytes` of dynamic shared memory. NotFound names the
  // entry.
  virtual absl::StatusOr<Kernel> GetKernel(const std::string& entry, int64_t shared_bytes) = 0;
};

// Clock, power and temperature at one moment; absent where the machine does not say.
struct TelemetrySample {
  int64_t monotonic_ns = 0;
  std::optional<double> clock_mhz;
  std::optional<double> power_watts;
  std::optional<double> temperature_celsius;
};

// Since any beginning, so that differences count.
struct ProcessorWork {
  int64_t cpu_ns = 0;         // of all threads together
  int64_t interruptions = 0;  // how often another program took a processor away from one of them
};

class Device {
 public:
  virtual ~Device() = default;

  // (required) All that is known. The first call may wait for the vendor's management library (17
  // ms for NVML), so a first launch does without it.
  virtual const DeviceIdentity& identity() const = 0;

  // (optional: identity()) The same at once: until identity_is_settled, the power cap and a part of
  // the driver's text are missing and the partition is a guess.
  virtual const DeviceIdentity& early_identity() const { return identity(); }

  // (optional: true) Whether identity() returns at once.
  virtual bool identity_is_settled() const { return true; }

  // (required) FailedPrecondition when the object is for another target.
  virtual absl::StatusOr<std::unique_ptr<Module>> LoadModule(absl::string_view object) = 0;

  // (required) Starts the kernel and returns; params[i] points to the value of argument i, and is
  // free again on return. The hot path: no allocation, no lock (but what a CPU stream's queue
  // needs). `geometry.empty()` launches nothing and is OK.
  virtual absl::Status Launch(Kernel kernel, const LaunchGeometry& geometry, void* const* params,
                              StreamHandle stream) = 0;

  // (required) Device memory, at least 256-byte aligned; Allocate(0) gives a pointer that may be
  // freed.
  virtual absl::StatusOr<DevicePointer> Allocate(int64_t bytes) = 0;
  virtual void Free(DevicePointer pointer) = 0;
  // (required) Bytes that can be allocated now.
  virtual absl::StatusOr<int64_t> FreeMemory() = 0;

  // (required) In stream order. Either side may be device memory or, for the blocking form of the
  // host copies, any host memory.
  virtual absl::Status Copy(DevicePointer to, const void* from, int64_t bytes,
                            StreamHandle stream) = 0;
  virtual absl::Status CopyToHost(void* to, const void* from, int64_t bytes,
                                  StreamHandle stream) = 0;  // waits
  virtual absl::Status CopyFromHost(DevicePointer to, const void* from, int64_t bytes,
                                    StreamHandle stream) = 0;  // waits
  virtual absl::Status Fill(DevicePointer to, uint8_t value, int64_t bytes,
                            StreamHandle stream) = 0;

  // (required)
  virtual absl::StatusOr<StreamHandle> CreateStream() = 0;
  virtual void DestroyStream(StreamHandle stream) = 0;
  virtual absl::Status Synchronize(StreamHandle stream) = 0;
  // (required) Whether the stream is being captured into a graph: then nothing may be tuned, loaded
  // or unloaded.
  virtual absl::StatusOr<bool> IsCapturing(StreamHandle stream) = 0;

  // (required) Events for timing: Elapsed waits for `end` and gives the nanoseconds between two
  // recorded events.
  virtual absl::StatusOr<EventHandle> CreateEvent() = 0;
  virtual void DestroyEvent(EventHandle event) = 0;
  virtual absl::Status Record(EventHandle event, StreamHandle stream) = 0;
  virtual absl::StatusOr<int64_t> ElapsedNanoseconds(EventHandle begin, EventHandle end) = 0;

  // (optional: Synchronize, without a limit) Waits for the stream's work, at most `limit`.
  // DeadlineExceeded when it did not end in time. No driver can end a kernel, and most calls would
  // wait for it: so from then on the device is lost to this process, every call but Launch is
  // Unavailable, and what it holds is not given back.
  virtual absl::Status SynchronizeWithin(StreamHandle stream, absl::Duration limit) {
    (void)limit;
    return Synchronize(stream);
  }

  // (optional: waits without a limit) The same for an event that was recorded.
  virtual absl::Status WaitWithin(EventHandle event, absl::Duration limit) {
    (void)limit;
    return ElapsedNanoseconds(event, event).status();
  }
  // (optional: true) Whether waiting for the event would not wait. Never waits.
  virtual absl::StatusOr<bool> IsOver(EventHandle event) {
    (void)event;
    return true;
  }

  // (optional: OK, and nothing is run) Runs the kernel once where a fault or an endless loop harms
  // nobody, and waits: nothing that it writes is seen here. FailedPrecondition says how it ended:
  // by which signal, or that it ran past `limit`.
  virtual absl::Status TrialLaunch(Kernel kernel, const LaunchGeometry& geometry,
                                   void* const* params, absl::Duration limit) {
    (void)kernel, (void)geometry, (void)params, (void)limit;
    return absl::OkStatus();
  }

  // (optional: nothing known) Never waits for the device.
  virtual TelemetrySample Telemetry() { return {}; }

  // (optional: 150 ms) How long after a change of kernel or data the clock may still stand where it
  // stood before, so that a flat stretch of timings proves nothing yet. Power controllers act in
  // ticks of tens of milliseconds, and some ticks late.
  virtual absl::Duration ClockLag() { return absl::Milliseconds(150); }

  // (optional: nothing) For a device whose kernels are work of the host's processors, which other
  // programs use too: what they did for this process so far.
  virtual std::optional<ProcessorWork> Work() { return std::nullopt; }

  // (optional: unsupported) Encodes a CUDA tensor map of 128 bytes for `base` into `map`; see
  // TensorMap.
  virtual absl::Status EncodeTensorMap(const TensorMap& description, const Argument& argument,
                                       DevicePointer base, void* map) {
    (void)description, (void)argument, (void)base, (void)map;
    return absl::UnimplementedError("this platform has no tensor maps");
  }
};

}  // namespace whet
