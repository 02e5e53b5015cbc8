#include "src/device/hip/hip_device.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "src/device/gpu_device.h"
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

HipStream Stream(StreamHandle stream) { return static_cast<HipStream>(stream); }
HipEvent Event(EventHandle event) { return static_cast<HipEvent>(event); }

struct HipCalls {
  // HIP's current device belongs to the thread: set where it differs, and given back.
  class Scope {
   public:
    explicit Scope(const HipCalls& calls) : hip_(calls.hip) {
      if (hip_.hipGetDevice(&previous_) != 0) previous_ = calls.device;
      if (previous_ != calls.device) switched_ = hip_.hipSetDevice(calls.device) == 0;
    }
    ~Scope() {
      if (switched_) hip_.hipSetDevice(previous_);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const HipRuntime& hip_;
    int previous_ = 0;
    bool switched_ = false;
  };

  absl::Status Check(HipResult error, absl::string_view action) const {
    return hip.Check(error, action);
  }
  HipResult Allocate(void** pointer, size_t bytes) const { return hip.hipMalloc(pointer, bytes); }
  HipResult Free(void* pointer) const { return hip.hipFree(pointer); }
  HipResult MemoryInfo(size_t* free_bytes, size_t* total_bytes) const {
    return hip.hipMemGetInfo(free_bytes, total_bytes);
  }
  HipResult Copy(void* to, const void* from, size_t bytes, StreamHandle stream) const {
    return hip.hipMemcpyAsync(to, from, bytes, kCopyDefault, Stream(stream));
  }
  HipResult Fill(void* to, uint8_t value, size_t bytes, StreamHandle stream) const {
    return hip.hipMemsetAsync(to, value, bytes, Stream(stream));
  }
  HipResult CreateStream(StreamHandle* stream) const {
    HipStream created = nullptr;
    const HipResult error = hip.hipStreamCreateWithFlags(&created, kStreamNonBlocking);
    *stream = created;
    return error;
  }
  HipResult DestroyStream(StreamHandle stream) const {
    return hip.hipStreamDestroy(Stream(stream));
  }
  HipResult SynchronizeStream(StreamHandle stream) const {
    return hip.hipStreamSynchronize(Stream(stream));
  }
  HipResult IsCapturing(StreamHandle stream, int* status) const {
    return hip.hipStreamIsCapturing(Stream(stream), status);
  }
  HipResult CreateEvent(EventHandle* event) const {
    HipEvent created = nullptr;
    const HipResult error = hip.hipEventCreateWithFlags(&created, 0);
    *event = created;
    return error;
  }
  HipResult DestroyEvent(EventHandle event) const { return hip.hipEventDestroy(Event(event)); }
  HipResult RecordEvent(EventHandle event, StreamHandle stream) const {
    return hip.hipEventRecord(Event(event), Stream(stream));
  }
  HipResult SynchronizeEvent(EventHandle event) const {
    return hip.hipEventSynchronize(Event(event));
  }
  HipResult QueryEvent(EventHandle event) const { return hip.hipEventQuery(Event(event)); }
  bool IsLost() const { return lost->load(std::memory_order_relaxed); }
  HipResult ElapsedMilliseconds(float* milliseconds, EventHandle begin, EventHandle end) const {
    return hip.hipEventElapsedTime(milliseconds, Event(begin), Event(end));
  }

  const HipRuntime& hip;
  int device;
  std::shared_ptr<std::atomic<bool>> lost = std::make_shared<std::atomic<bool>>(false);
};

class HipModuleHandle final : public Module {
 public:
  HipModuleHandle(const HipCalls& calls, HipModule module) : calls_(calls), module_(module) {}
  ~HipModuleHandle() override {
    if (calls_.IsLost()) return;
    HipCalls::Scope scope(calls_);
    calls_.hip.hipModuleUnload(module_);
  }

  // Dynamic LDS up to the device's limit needs no permission on AMD.
  absl::StatusOr<Kernel> GetKernel(const std::string& entry, int64_t) override {
    HipCalls::Scope scope(calls_);
    HipFunction function = nullptr;
    if (absl::Status s =
            calls_.Check(calls_.hip.hipModuleGetFunction(&function, module_, entry.c_str()),
                         absl::StrCat("find kernel ", entry));
        !s.ok()) {
      return s;
    }
    return Kernel{.function = function};
  }

 private:
  const HipCalls calls_;
  const HipModule module_;
};

class HipDevice final : public GpuDevice<HipCalls> {
 public:
  HipDevice(HipCalls calls, DeviceIdentity identity, AmdgpuSensors sensors)
      : GpuDevice(calls, std::move(identity)), sensors_(std::move(sensors)) {}

  absl::StatusOr<std::unique_ptr<Module>> LoadModule(absl::string_view object) override {
    if (absl::Status s = Usable(); !s.ok()) return s;
    Scope scope(calls());
    HipModule module = nullptr;
    if (absl::Status s = calls().Check(calls().hip.hipModuleLoadData(&module, object.data()),
                                       absl::StrCat("load a code object of ", object.size(),
                                                    " bytes on ", identity().product));
        !s.ok()) {
      return s;
    }
    return std::make_unique<HipModuleHandle>(calls(), module);
  }

  absl::Status Launch(Kernel kernel, const LaunchGeometry& geometry, void* const* params,
                      StreamHandle stream) override {
    if (geometry.empty()) return absl::OkStatus();
    Scope scope(calls());
    const auto u = [](int64_t value) { return static_cast<unsigned>(value); };
    const HipResult error = calls().hip.hipModuleLaunchKernel(
        static_cast<HipFunction>(kernel.function), u(geometry.grid[0]), u(geometry.grid[1]),
        u(geometry.grid[2]), u(geometry.block[0]), u(geometry.block[1]), u(geometry.block[2]),
        u(geometry.shared_bytes), Stream(stream), const_cast<void**>(params), nullptr);
    if (error != 0) [[unlikely]]
      return calls().Check(error, "launch a kernel");
    return absl::OkStatus();
  }

  TelemetrySample Telemetry() override { return sensors_.Sample(); }

 private:
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
  return std::make_unique<HipDevice>(HipCalls{hip, index}, std::move(identity), std::move(sensors));
}

absl::StatusOr<std::unique_ptr<Device>> OpenHipDevice(int index, const DeviceOptions&) {
  const absl::StatusOr<const HipRuntime*> hip = HipRuntime::Get();
  if (!hip.ok()) return hip.status();
  return OpenHipDevice(index, **hip, "/sys");
}

DeviceReport ReportHipDevices(const DeviceOptions& options) {
  return ReportDevices(Platform::kHip, [&](int index) { return OpenHipDevice(index, options); });
}

}  // namespace whet
