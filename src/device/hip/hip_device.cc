#include "src/device/hip/hip_device.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "src/device/hip/amdgpu_sensors.h"

namespace whet {
namespace {

// hipDeviceAttribute_t.
constexpr int kL2Bytes = 19;
constexpr int kMultiprocessors = 63;
constexpr int kPciBus = 67;
constexpr int kPciDevice = 68;
constexpr int kPciDomain = 69;
constexpr int kSharedBytesMax = 74;

constexpr unsigned kStreamNonBlocking = 1;
constexpr int kCopyDefault = 4;  // unified addressing: HIP sees which side is which

class CurrentDevice {
 public:
  CurrentDevice(const HipRuntime& hip, int device) : hip_(hip) {
    if (hip_.hipGetDevice(&previous_) != 0) previous_ = device;
    if (previous_ != device) switched_ = hip_.hipSetDevice(device) == 0;
  }
  ~CurrentDevice() {
    if (switched_) hip_.hipSetDevice(previous_);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  const HipRuntime& hip_;
  int previous_ = 0;
  bool switched_ = false;
};

HipStream Stream(StreamHandle stream) { return static_cast<HipStream>(stream); }

class HipModuleHandle final : public Module {
 public:
  HipModuleHandle(const HipRuntime& hip, int device, HipModule module)
      : hip_(hip), device_(device), module_(module) {}
  ~HipModuleHandle() override {
    CurrentDevice scope(hip_, device_);
    hip_.hipModuleUnload(module_);
  }

  // Dynamic LDS up to the device's limit needs no permission on AMD.
  absl::StatusOr<Kernel> GetKernel(const std::string& entry, int64_t) override {
    CurrentDevice scope(hip_, device_);
    HipFunction function = nullptr;
    if (absl::Status s = hip_.Check(hip_.hipModuleGetFunction(&function, module_, entry.c_str()),
                                    absl::StrCat("find kernel ", entry));
        !s.ok()) {
      return s;
    }
    return Kernel{.function = function};
  }

 private:
  const HipRuntime& hip_;
  const int device_;
  const HipModule module_;
};

class HipDevice final : public Device {
 public:
  HipDevice(const HipRuntime& hip, int device, DeviceIdentity identity, AmdgpuSensors sensors)
      : hip_(hip), device_(device), identity_(std::move(identity)), sensors_(std::move(sensors)) {}

  const DeviceIdentity& identity() const override { return identity_; }

  absl::StatusOr<std::unique_ptr<Module>> LoadModule(absl::string_view object) override {
    CurrentDevice scope(hip_, device_);
    HipModule module = nullptr;
    if (absl::Status s = hip_.Check(
            hip_.hipModuleLoadData(&module, object.data()),
            absl::StrCat("load a code object of ", object.size(), " bytes on ", identity_.product));
        !s.ok()) {
      return s;
    }
    return std::make_unique<HipModuleHandle>(hip_, device_, module);
  }

  absl::Status Launch(Kernel kernel, const LaunchGeometry& geometry, void* const* params,
                      StreamHandle stream) override {
    if (geometry.empty()) return absl::OkStatus();
    CurrentDevice scope(hip_, device_);
    const auto u = [](int64_t value) { return static_cast<unsigned>(value); };
    const HipResult error = hip_.hipModuleLaunchKernel(
        static_cast<HipFunction>(kernel.function), u(geometry.grid[0]), u(geometry.grid[1]),
        u(geometry.grid[2]), u(geometry.block[0]), u(geometry.block[1]), u(geometry.block[2]),
        u(geometry.shared_bytes), Stream(stream), const_cast<void**>(params), nullptr);
    if (error != 0) [[unlikely]]
      return hip_.Check(error, "launch a kernel");
    return absl::OkStatus();
  }

  absl::StatusOr<DevicePointer> Allocate(int64_t bytes) override {
    CurrentDevice scope(hip_, device_);
    void* pointer = nullptr;
    // HIP gives a null pointer for 0 bytes.
    const size_t size = bytes > 0 ? static_cast<size_t>(bytes) : 1;
    if (absl::Status s =
            hip_.Check(hip_.hipMalloc(&pointer, size),
                       absl::StrCat("allocate ", bytes, " bytes on ", identity_.product));
        !s.ok()) {
      return s;
    }
    return pointer;
  }

  void Free(DevicePointer pointer) override {
    CurrentDevice scope(hip_, device_);
    hip_.hipFree(pointer);
  }

  absl::StatusOr<int64_t> FreeMemory() override {
    CurrentDevice scope(hip_, device_);
    size_t free_bytes = 0, total_bytes = 0;
    if (absl::Status s =
            hip_.Check(hip_.hipMemGetInfo(&free_bytes, &total_bytes), "ask for free device memory");
        !s.ok()) {
      return s;
    }
    return static_cast<int64_t>(free_bytes);
  }

  absl::Status Copy(DevicePointer to, const void* from, int64_t bytes,
                    StreamHandle stream) override {
    return Transfer(to, from, bytes, stream);
  }

  absl::Status CopyToHost(void* to, const void* from, int64_t bytes, StreamHandle stream) override {
    if (absl::Status s = Transfer(to, from, bytes, stream); !s.ok()) return s;
    return Synchronize(stream);
  }

  absl::Status CopyFromHost(DevicePointer to, const void* from, int64_t bytes,
                            StreamHandle stream) override {
    if (absl::Status s = Transfer(to, from, bytes, stream); !s.ok()) return s;
    return Synchronize(stream);
  }

  absl::Status Fill(DevicePointer to, uint8_t value, int64_t bytes, StreamHandle stream) override {
    if (bytes == 0) return absl::OkStatus();
    CurrentDevice scope(hip_, device_);
    return hip_.Check(hip_.hipMemsetAsync(to, value, static_cast<size_t>(bytes), Stream(stream)),
                      absl::StrCat("fill ", bytes, " bytes of device memory"));
  }

  absl::StatusOr<StreamHandle> CreateStream() override {
    CurrentDevice scope(hip_, device_);
    HipStream stream = nullptr;
    if (absl::Status s = hip_.Check(hip_.hipStreamCreateWithFlags(&stream, kStreamNonBlocking),
                                    "create a stream");
        !s.ok()) {
      return s;
    }
    return static_cast<StreamHandle>(stream);
  }

  void DestroyStream(StreamHandle stream) override {
    CurrentDevice scope(hip_, device_);
    hip_.hipStreamDestroy(Stream(stream));
  }

  absl::Status Synchronize(StreamHandle stream) override {
    CurrentDevice scope(hip_, device_);
    return hip_.Check(hip_.hipStreamSynchronize(Stream(stream)), "wait for a stream");
  }

  absl::StatusOr<bool> IsCapturing(StreamHandle stream) override {
    CurrentDevice scope(hip_, device_);
    constexpr HipResult kStreamCaptureImplicit = 906;
    int status = 0;
    const HipResult error = hip_.hipStreamIsCapturing(Stream(stream), &status);
    // The null stream while another stream is being captured: using it would spoil the capture.
    if (error == kStreamCaptureImplicit) return true;
    if (absl::Status s = hip_.Check(error, "ask whether a stream is being captured"); !s.ok())
      return s;
    return status != 0;
  }

  absl::StatusOr<EventHandle> CreateEvent() override {
    CurrentDevice scope(hip_, device_);
    HipEvent event = nullptr;
    if (absl::Status s = hip_.Check(hip_.hipEventCreateWithFlags(&event, 0), "create an event");
        !s.ok()) {
      return s;
    }
    return static_cast<EventHandle>(event);
  }

  void DestroyEvent(EventHandle event) override {
    CurrentDevice scope(hip_, device_);
    hip_.hipEventDestroy(static_cast<HipEvent>(event));
  }

  absl::Status Record(EventHandle event, StreamHandle stream) override {
    CurrentDevice scope(hip_, device_);
    return hip_.Check(hip_.hipEventRecord(static_cast<HipEvent>(event), Stream(stream)),
                      "record an event");
  }

  absl::StatusOr<int64_t> ElapsedNanoseconds(EventHandle begin, EventHandle end) override {
    CurrentDevice scope(hip_, device_);
    if (absl::Status s =
            hip_.Check(hip_.hipEventSynchronize(static_cast<HipEvent>(end)), "wait for an event");
        !s.ok()) {
      return s;
    }
    float milliseconds = 0;
    if (absl::Status s =
            hip_.Check(hip_.hipEventElapsedTime(&milliseconds, static_cast<HipEvent>(begin),
                                                static_cast<HipEvent>(end)),
                       "read the time between two events");
        !s.ok()) {
      return s;
    }
    return std::llround(static_cast<double>(milliseconds) * 1e6);
  }

  TelemetrySample Telemetry() override { return sensors_.Sample(); }

 private:
  absl::Status Transfer(void* to, const void* from, int64_t bytes, StreamHandle stream) {
    if (bytes == 0) return absl::OkStatus();
    CurrentDevice scope(hip_, device_);
    return hip_.Check(
        hip_.hipMemcpyAsync(to, from, static_cast<size_t>(bytes), kCopyDefault, Stream(stream)),
        absl::StrCat("copy ", bytes, " bytes"));
  }

  const HipRuntime& hip_;
  const int device_;
  const DeviceIdentity identity_;
  const AmdgpuSensors sensors_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> OpenHipDevice(int index, const HipRuntime& hip,
                                                      const std::string& sysfs) {
  int count = 0;
  if (absl::Status s = hip.Check(hip.hipGetDeviceCount(&count), "count HIP devices"); !s.ok())
    return s;
  if (index < 0 || index >= count) {
    return absl::NotFoundError(
        absl::StrCat("there is no HIP device ", index, "; this machine has ", count));
  }
  const absl::StatusOr<std::string> architecture = hip.ArchitectureName(index);
  if (!architecture.ok()) return architecture.status();
  const absl::StatusOr<Target> target = Target::Parse(*architecture);
  if (!target.ok()) return target.status();

  char name[256] = {};
  size_t memory_bytes = 0;
  int multiprocessors = 0, l2_bytes = 0, shared_bytes_max = 0, domain = 0, bus = 0, slot = 0,
      version = 0;
  for (const HipResult error :
       {hip.hipDeviceGetName(name, sizeof(name) - 1, index),
        hip.hipDeviceTotalMem(&memory_bytes, index),
        hip.hipDeviceGetAttribute(&multiprocessors, kMultiprocessors, index),
        hip.hipDeviceGetAttribute(&l2_bytes, kL2Bytes, index),
        hip.hipDeviceGetAttribute(&shared_bytes_max, kSharedBytesMax, index),
        hip.hipDeviceGetAttribute(&domain, kPciDomain, index),
        hip.hipDeviceGetAttribute(&bus, kPciBus, index),
        hip.hipDeviceGetAttribute(&slot, kPciDevice, index), hip.hipRuntimeGetVersion(&version)}) {
    if (absl::Status s =
            hip.Check(error, absl::StrCat("read the properties of HIP device ", index));
        !s.ok()) {
      return s;
    }
  }
  AmdgpuSensors sensors(absl::StrFormat("%04x:%02x:%02x.0", domain, bus, slot), sysfs);
  DeviceIdentity identity;
  identity.target = *target;
  identity.product = name;
  identity.compute_units = multiprocessors;
  identity.memory_bytes = static_cast<int64_t>(memory_bytes);
  identity.power_cap_watts = sensors.PowerCapWatts();
  identity.partition = sensors.Partition();
  identity.driver = absl::StrCat("HIP runtime ", version);
  identity.l2_bytes = l2_bytes;
  identity.shared_bytes_max = shared_bytes_max;
  return std::make_unique<HipDevice>(hip, index, std::move(identity), std::move(sensors));
}

absl::StatusOr<std::unique_ptr<Device>> OpenHipDevice(int index, const DeviceOptions&) {
  const absl::StatusOr<const HipRuntime*> hip = HipRuntime::Get();
  if (!hip.ok()) return hip.status();
  return OpenHipDevice(index, **hip, "/sys");
}

DeviceReport ReportHipDevices(const DeviceOptions& options) {
  DeviceReport report;
  report.platform = Platform::kHip;
  for (int index = 0;; ++index) {
    const absl::StatusOr<std::unique_ptr<Device>> device = OpenHipDevice(index, options);
    if (!device.ok()) {
      if (report.devices.empty()) report.reason = std::string(device.status().message());
      return report;
    }
    report.devices.push_back((*device)->identity());
  }
}

}  // namespace whet
