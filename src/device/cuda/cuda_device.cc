#include "src/device/cuda/cuda_device.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "src/device/cuda/nvml.h"
#include "src/device/cuda/tensor_map.h"
#include "src/device/gpu_device.h"

namespace whet {
namespace {

// CUdevice_attribute and CUfunction_attribute.
constexpr int kMultiprocessors = 16;
constexpr int kPciBus = 33;
constexpr int kPciDevice = 34;
constexpr int kL2Bytes = 38;
constexpr int kPciDomain = 50;
constexpr int kMajor = 75;
constexpr int kMinor = 76;
constexpr int kSharedBytesMax = 97;
constexpr int kFunctionMaxDynamicSharedBytes = 8;
constexpr int kFunctionNonPortableClusters = 14;

constexpr unsigned kStreamNonBlocking = 1;

CuDevicePointer Address(const void* pointer) {
  return static_cast<CuDevicePointer>(reinterpret_cast<uintptr_t>(pointer));
}

CuStream Stream(StreamHandle stream) { return static_cast<CuStream>(stream); }
CuEvent Event(EventHandle event) { return static_cast<CuEvent>(event); }

struct CudaCalls {
  // Makes the device's context current where it is not, and gives back what was. 10 ns when it is.
  class Scope {
   public:
    explicit Scope(const CudaCalls& calls) : driver_(calls.driver) {
      CuContext current = nullptr;
      driver_.cuCtxGetCurrent(&current);
      if (current == calls.context) return;
      pushed_ = driver_.cuCtxPushCurrent_v2(calls.context) == 0;
    }
    ~Scope() {
      CuContext popped = nullptr;
      if (pushed_) driver_.cuCtxPopCurrent_v2(&popped);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const CudaDriver& driver_;
    bool pushed_ = false;
  };

  absl::Status Check(CuResult error, absl::string_view action) const {
    return driver.Check(error, action);
  }
  CuResult Allocate(void** pointer, size_t bytes) const {
    CuDevicePointer allocated = 0;
    const CuResult error = driver.cuMemAlloc_v2(&allocated, bytes);
    *pointer = reinterpret_cast<void*>(static_cast<uintptr_t>(allocated));
    return error;
  }
  CuResult Free(void* pointer) const { return driver.cuMemFree_v2(Address(pointer)); }
  CuResult MemoryInfo(size_t* free_bytes, size_t* total_bytes) const {
    return driver.cuMemGetInfo_v2(free_bytes, total_bytes);
  }
  // Unified addressing: the driver sees which side is which.
  CuResult Copy(void* to, const void* from, size_t bytes, StreamHandle stream) const {
    return driver.cuMemcpyAsync(Address(to), Address(from), bytes, Stream(stream));
  }
  CuResult Fill(void* to, uint8_t value, size_t bytes, StreamHandle stream) const {
    return driver.cuMemsetD8Async(Address(to), value, bytes, Stream(stream));
  }
  CuResult CreateStream(StreamHandle* stream) const {
    CuStream created = nullptr;
    const CuResult error = driver.cuStreamCreate(&created, kStreamNonBlocking);
    *stream = created;
    return error;
  }
  CuResult DestroyStream(StreamHandle stream) const {
    return driver.cuStreamDestroy_v2(Stream(stream));
  }
  CuResult SynchronizeStream(StreamHandle stream) const {
    return driver.cuStreamSynchronize(Stream(stream));
  }
  CuResult IsCapturing(StreamHandle stream, int* status) const {
    return driver.cuStreamIsCapturing(Stream(stream), status);
  }
  CuResult CreateEvent(EventHandle* event) const {
    CuEvent created = nullptr;
    const CuResult error = driver.cuEventCreate(&created, 0);
    *event = created;
    return error;
  }
  CuResult DestroyEvent(EventHandle event) const { return driver.cuEventDestroy_v2(Event(event)); }
  CuResult RecordEvent(EventHandle event, StreamHandle stream) const {
    return driver.cuEventRecord(Event(event), Stream(stream));
  }
  CuResult SynchronizeEvent(EventHandle event) const {
    return driver.cuEventSynchronize(Event(event));
  }
  CuResult QueryEvent(EventHandle event) const { return driver.cuEventQuery(Event(event)); }
  bool IsLost() const { return lost->load(std::memory_order_relaxed); }
  CuResult ElapsedMilliseconds(float* milliseconds, EventHandle begin, EventHandle end) const {
    return driver.cuEventElapsedTime(milliseconds, Event(begin), Event(end));
  }

  const CudaDriver& driver;
  CuContext context;
  std::shared_ptr<std::atomic<bool>> lost = std::make_shared<std::atomic<bool>>(false);
};

class CudaModule final : public Module {
 public:
  CudaModule(const CudaCalls& calls, CuModule module) : calls_(calls), module_(module) {}
  ~CudaModule() override {
    if (calls_.IsLost()) return;
    CudaCalls::Scope scope(calls_);
    calls_.driver.cuModuleUnload(module_);
  }

  absl::StatusOr<Kernel> GetKernel(const std::string& entry, int64_t shared_bytes) override {
    CudaCalls::Scope scope(calls_);
    CuFunction function = nullptr;
    if (absl::Status s =
            calls_.Check(calls_.driver.cuModuleGetFunction(&function, module_, entry.c_str()),
                         absl::StrCat("find kernel ", entry));
        !s.ok()) {
      return s;
    }
    if (shared_bytes > 0) {
      if (absl::Status s = calls_.Check(
              calls_.driver.cuFuncSetAttribute(function, kFunctionMaxDynamicSharedBytes,
                                               static_cast<int>(shared_bytes)),
              absl::StrCat("give kernel ", entry, " ", shared_bytes, " bytes of shared memory"));
          !s.ok()) {
        return s;
      }
    }
    // Clusters of more than 8 blocks must be asked for; a kernel that has none does not mind.
    calls_.driver.cuFuncSetAttribute(function, kFunctionNonPortableClusters, 1);
    // Under lazy loading a kernel is loaded at its first launch: then it would be timed, and forbidden during capture.
    if (calls_.driver.cuFuncLoad != nullptr) {
      if (absl::Status s =
              calls_.Check(calls_.driver.cuFuncLoad(function), absl::StrCat("load kernel ", entry));
          !s.ok()) {
        return s;
      }
    }
    return Kernel{.function = function};
  }

 private:
  const CudaCalls calls_;
  const CuModule module_;
};

class CudaDevice final : public GpuDevice<CudaCalls> {
 public:
  CudaDevice(CudaCalls calls, CuDevice device, DeviceIdentity early, std::string pci_bus_id,
             std::string nvml_library)
      : GpuDevice(calls, std::move(early)),
        device_(device),
        pci_bus_id_(std::move(pci_bus_id)),
        nvml_library_(std::move(nvml_library)) {}
  ~CudaDevice() override {
    if (!calls().IsLost()) calls().driver.cuDevicePrimaryCtxRelease_v2(device_);
  }

  const DeviceIdentity& identity() const override {
    Manage();
    return identity_;
  }
  const DeviceIdentity& early_identity() const override { return GpuDevice::identity(); }
  bool identity_is_settled() const override { return managed_.load(std::memory_order_acquire); }

  absl::StatusOr<std::unique_ptr<Module>> LoadModule(absl::string_view object) override {
    if (absl::Status s = Usable(); !s.ok()) return s;
    Scope scope(calls());
    CuModule module = nullptr;
    // PTX must end in a zero byte, which a string's buffer has and a view's need not; a cubin says how long it is.
    const std::string text(absl::StartsWith(object, "\177ELF") ? "" : object);
    const char* const image = text.empty() ? object.data() : text.c_str();
    if (absl::Status s =
            calls().Check(calls().driver.cuModuleLoadDataEx(&module, image, 0, nullptr, nullptr),
                          absl::StrCat("load a code object of ", object.size(), " bytes on ",
                                       early_identity().product));
        !s.ok()) {
      return s;
    }
    return std::make_unique<CudaModule>(calls(), module);
  }

  absl::Status Launch(Kernel kernel, const LaunchGeometry& geometry, void* const* params,
                      StreamHandle stream) override {
    if (geometry.empty()) return absl::OkStatus();
    Scope scope(calls());
    const auto function = static_cast<CuFunction>(kernel.function);
    void** const values = const_cast<void**>(params);
    const auto u = [](int64_t value) { return static_cast<unsigned>(value); };
    const int64_t cluster_blocks = geometry.cluster[0] * geometry.cluster[1] * geometry.cluster[2];
    CuResult error;
    if (cluster_blocks == 1) {
      error = calls().driver.cuLaunchKernel(
          function, u(geometry.grid[0]), u(geometry.grid[1]), u(geometry.grid[2]),
          u(geometry.block[0]), u(geometry.block[1]), u(geometry.block[2]),
          u(geometry.shared_bytes), Stream(stream), values, nullptr);
    } else if (calls().driver.cuLaunchKernelEx == nullptr) {
      return absl::UnimplementedError(
          "the CUDA driver cannot launch clusters; driver 525 or newer can");
    } else {
      CuLaunchAttribute attribute = {};
      attribute.id = kCuLaunchAttributeClusterDimension;
      attribute.value.cluster = {u(geometry.cluster[0]), u(geometry.cluster[1]),
                                 u(geometry.cluster[2])};
      const CuLaunchConfig config = {u(geometry.grid[0]),
                                     u(geometry.grid[1]),
                                     u(geometry.grid[2]),
                                     u(geometry.block[0]),
                                     u(geometry.block[1]),
                                     u(geometry.block[2]),
                                     u(geometry.shared_bytes),
                                     Stream(stream),
                                     &attribute,
                                     1};
      error = calls().driver.cuLaunchKernelEx(&config, function, values, nullptr);
    }
    if (error != 0) [[unlikely]]
      return calls().Check(error, "launch a kernel");
    return absl::OkStatus();
  }

  // Whoever measures has asked for the identity before, for the key: then nothing is opened here.
  TelemetrySample Telemetry() override {
    Manage();
    return nvml_ == nullptr ? TelemetrySample{} : nvml_->Sample();
  }

  absl::Status EncodeTensorMap(const TensorMap& description, const Argument& argument,
                               DevicePointer base, void* map) override {
    // Encoding looks at the current context's device.
    Scope scope(calls());
    return EncodeCudaTensorMap(calls().driver, description, argument, base, map);
  }

 private:
  // NVML is opened by whoever first needs what it alone knows: it takes three times as long as all
  // the rest of a start from a pack.
  void Manage() const {
    std::call_once(once_, [this] {
      nvml_ = Nvml::Open(pci_bus_id_, nvml_library_);
      identity_ = early_identity();
      identity_.partition.clear();
      if (nvml_ != nullptr) {
        identity_.power_cap_watts = nvml_->PowerLimitWatts();
        identity_.partition = nvml_->MigMode();
        identity_.driver = absl::StrCat(identity_.driver, ", driver ", nvml_->DriverVersion());
      }
      managed_.store(true, std::memory_order_release);
    });
  }

  const CuDevice device_;
  const std::string pci_bus_id_;
  const std::string nvml_library_;
  mutable std::once_flag once_;
  mutable std::atomic<bool> managed_{false};
  mutable std::unique_ptr<Nvml> nvml_;  // this and the next: written once, under once_
  mutable DeviceIdentity identity_;
};

std::string PciBusId(const CudaDriver& driver, CuDevice device) {
  int domain = 0, bus = 0, slot = 0;
  driver.cuDeviceGetAttribute(&domain, kPciDomain, device);
  driver.cuDeviceGetAttribute(&bus, kPciBus, device);
  driver.cuDeviceGetAttribute(&slot, kPciDevice, device);
  return absl::StrFormat("%04x:%02x:%02x.0", domain, bus, slot);
}

// What the driver itself knows.
absl::StatusOr<DeviceIdentity> Identify(const CudaDriver& driver, CuDevice device) {
  DeviceIdentity identity;
  char name[256] = {};
  size_t memory_bytes = 0;
  int major = 0, minor = 0, multiprocessors = 0, l2_bytes = 0, shared_bytes_max = 0, version = 0;
  for (const CuResult error :
       {driver.cuDeviceGetName(name, sizeof(name) - 1, device),
        driver.cuDeviceTotalMem_v2(&memory_bytes, device),
        driver.cuDeviceGetAttribute(&major, kMajor, device),
        driver.cuDeviceGetAttribute(&minor, kMinor, device),
        driver.cuDeviceGetAttribute(&multiprocessors, kMultiprocessors, device),
        driver.cuDeviceGetAttribute(&l2_bytes, kL2Bytes, device),
        driver.cuDeviceGetAttribute(&shared_bytes_max, kSharedBytesMax, device),
        driver.cuDriverGetVersion(&version)}) {
    if (absl::Status s = driver.Check(error, "read a CUDA device's properties"); !s.ok()) return s;
  }
  identity.target.platform = Platform::kCuda;
  // From Hopper on the instructions that matter (wgmma, setmaxnreg) exist only in the exact architecture's "a" form.
  identity.target.architecture = absl::StrCat("sm_", major, minor, major >= 9 ? "a" : "");
  identity.product = name;
  identity.compute_units = multiprocessors;
  identity.memory_bytes = static_cast<int64_t>(memory_bytes);
  identity.l2_bytes = l2_bytes;
  identity.shared_bytes_max = shared_bytes_max;
  identity.driver = absl::StrCat("CUDA ", version / 1000, ".", version % 1000 / 10);
  // "NVIDIA H200 MIG 1g.18gb": where MIG is on, nothing but its instances is seen through CUDA.
  if (absl::StrContains(identity.product, " MIG ")) identity.partition = kMigPartition;
  return identity;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(int index, const CudaDriver& driver,
                                                       const std::string& nvml_library) {
  int count = 0;
  if (absl::Status s = driver.Check(driver.cuDeviceGetCount(&count), "count CUDA devices");
      !s.ok()) {
    return s;
  }
  if (index < 0 || index >= count) {
    return absl::NotFoundError(
        absl::StrCat("there is no CUDA device ", index, "; this machine has ", count));
  }
  CuDevice device = 0;
  if (absl::Status s = driver.Check(driver.cuDeviceGet(&device, index),
                                    absl::StrCat("open CUDA device ", index));
      !s.ok()) {
    return s;
  }
  absl::StatusOr<DeviceIdentity> identity = Identify(driver, device);
  if (!identity.ok()) return identity.status();
  CuContext context = nullptr;
  if (absl::Status s = driver.Check(driver.cuDevicePrimaryCtxRetain(&context, device),
                                    absl::StrCat("use the primary context of ", identity->product));
      !s.ok()) {
    return s;
  }
  return std::make_unique<CudaDevice>(CudaCalls{driver, context}, device, *std::move(identity),
                                      PciBusId(driver, device), nvml_library);
}

absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(int index, const DeviceOptions&) {
  const absl::StatusOr<const CudaDriver*> driver = CudaDriver::Get();
  if (!driver.ok()) return driver.status();
  return OpenCudaDevice(index, **driver, "libnvidia-ml.so.1");
}

DeviceReport ReportCudaDevices(const DeviceOptions& options) {
  return ReportDevices(Platform::kCuda, [&](int index) { return OpenCudaDevice(index, options); });
}

}  // namespace whet
