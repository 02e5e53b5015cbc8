#include "src/device/cuda/cuda_device.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "src/device/cuda/nvml.h"
#include "src/device/cuda/tensor_map.h"

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

// Makes the device's context current where it is not, and gives back what was. 10 ns when it is.
class ContextScope {
 public:
  ContextScope(const CudaDriver& driver, CuContext context) : driver_(driver) {
    CuContext current = nullptr;
    driver_.cuCtxGetCurrent(&current);
    if (current == context) return;
    pushed_ = driver_.cuCtxPushCurrent_v2(context) == 0;
  }
  ~ContextScope() {
    CuContext popped = nullptr;
    if (pushed_) driver_.cuCtxPopCurrent_v2(&popped);
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  const CudaDriver& driver_;
  bool pushed_ = false;
};

CuDevicePointer Address(const void* pointer) {
  return static_cast<CuDevicePointer>(reinterpret_cast<uintptr_t>(pointer));
}

CuStream Stream(StreamHandle stream) { return static_cast<CuStream>(stream); }

class CudaModule final : public Module {
 public:
  CudaModule(const CudaDriver& driver, CuContext context, CuModule module)
      : driver_(driver), context_(context), module_(module) {}
  ~CudaModule() override {
    ContextScope scope(driver_, context_);
    driver_.cuModuleUnload(module_);
  }

  absl::StatusOr<Kernel> GetKernel(const std::string& entry, int64_t shared_bytes) override {
    ContextScope scope(driver_, context_);
    CuFunction function = nullptr;
    if (absl::Status s =
            driver_.Check(driver_.cuModuleGetFunction(&function, module_, entry.c_str()),
                          absl::StrCat("find kernel ", entry));
        !s.ok()) {
      return s;
    }
    if (shared_bytes > 0) {
      if (absl::Status s = driver_.Check(
              driver_.cuFuncSetAttribute(function, kFunctionMaxDynamicSharedBytes,
                                         static_cast<int>(shared_bytes)),
              absl::StrCat("give kernel ", entry, " ", shared_bytes, " bytes of shared memory"));
          !s.ok()) {
        return s;
      }
    }
    // Clusters of more than 8 blocks must be asked for; a kernel that has none does not mind.
    driver_.cuFuncSetAttribute(function, kFunctionNonPortableClusters, 1);
    // Under lazy loading a kernel is loaded at its first launch: then it would be timed, and forbidden during capture.
    if (driver_.cuFuncLoad != nullptr) {
      if (absl::Status s =
              driver_.Check(driver_.cuFuncLoad(function), absl::StrCat("load kernel ", entry));
          !s.ok()) {
        return s;
      }
    }
    return Kernel{.function = function};
  }

 private:
  const CudaDriver& driver_;
  const CuContext context_;
  const CuModule module_;
};

class CudaDevice final : public Device {
 public:
  CudaDevice(const CudaDriver& driver, CuDevice device, CuContext context, DeviceIdentity identity,
             std::unique_ptr<Nvml> nvml)
      : driver_(driver),
        device_(device),
        context_(context),
        identity_(std::move(identity)),
        nvml_(std::move(nvml)) {}
  ~CudaDevice() override { driver_.cuDevicePrimaryCtxRelease_v2(device_); }

  const DeviceIdentity& identity() const override { return identity_; }

  absl::StatusOr<std::unique_ptr<Module>> LoadModule(absl::string_view object) override {
    ContextScope scope(driver_, context_);
    CuModule module = nullptr;
    // PTX must end in a zero byte, which a string's buffer has and a view's need not.
    const std::string image(object);
    if (absl::Status s = driver_.Check(
            driver_.cuModuleLoadDataEx(&module, image.c_str(), 0, nullptr, nullptr),
            absl::StrCat("load a code object of ", object.size(), " bytes on ", identity_.product));
        !s.ok()) {
      return s;
    }
    return std::make_unique<CudaModule>(driver_, context_, module);
  }

  absl::Status Launch(Kernel kernel, const LaunchGeometry& geometry, void* const* params,
                      StreamHandle stream) override {
    if (geometry.empty()) return absl::OkStatus();
    ContextScope scope(driver_, context_);
    const auto function = static_cast<CuFunction>(kernel.function);
    void** const values = const_cast<void**>(params);
    const auto u = [](int64_t value) { return static_cast<unsigned>(value); };
    const int64_t cluster_blocks = geometry.cluster[0] * geometry.cluster[1] * geometry.cluster[2];
    CuResult error;
    if (cluster_blocks == 1) {
      error = driver_.cuLaunchKernel(function, u(geometry.grid[0]), u(geometry.grid[1]),
                                     u(geometry.grid[2]), u(geometry.block[0]),
                                     u(geometry.block[1]), u(geometry.block[2]),
                                     u(geometry.shared_bytes), Stream(stream), values, nullptr);
    } else if (driver_.cuLaunchKernelEx == nullptr) {
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
      error = driver_.cuLaunchKernelEx(&config, function, values, nullptr);
    }
    if (error != 0) [[unlikely]]
      return driver_.Check(error, "launch a kernel");
    return absl::OkStatus();
  }

  absl::StatusOr<DevicePointer> Allocate(int64_t bytes) override {
    ContextScope scope(driver_, context_);
    CuDevicePointer pointer = 0;
    // The driver refuses 0 bytes.
    const size_t size = bytes > 0 ? static_cast<size_t>(bytes) : 1;
    if (absl::Status s =
            driver_.Check(driver_.cuMemAlloc_v2(&pointer, size),
                          absl::StrCat("allocate ", bytes, " bytes on ", identity_.product));
        !s.ok()) {
      return s;
    }
    return reinterpret_cast<DevicePointer>(static_cast<uintptr_t>(pointer));
  }

  void Free(DevicePointer pointer) override {
    ContextScope scope(driver_, context_);
    driver_.cuMemFree_v2(Address(pointer));
  }

  absl::StatusOr<int64_t> FreeMemory() override {
    ContextScope scope(driver_, context_);
    size_t free_bytes = 0, total_bytes = 0;
    if (absl::Status s = driver_.Check(driver_.cuMemGetInfo_v2(&free_bytes, &total_bytes),
                                       "ask for free device memory");
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
    ContextScope scope(driver_, context_);
    return driver_.Check(
        driver_.cuMemsetD8Async(Address(to), value, static_cast<size_t>(bytes), Stream(stream)),
        absl::StrCat("fill ", bytes, " bytes of device memory"));
  }

  absl::StatusOr<StreamHandle> CreateStream() override {
    ContextScope scope(driver_, context_);
    CuStream stream = nullptr;
    if (absl::Status s =
            driver_.Check(driver_.cuStreamCreate(&stream, kStreamNonBlocking), "create a stream");
        !s.ok()) {
      return s;
    }
    return static_cast<StreamHandle>(stream);
  }

  void DestroyStream(StreamHandle stream) override {
    ContextScope scope(driver_, context_);
    driver_.cuStreamDestroy_v2(Stream(stream));
  }

  absl::Status Synchronize(StreamHandle stream) override {
    ContextScope scope(driver_, context_);
    return driver_.Check(driver_.cuStreamSynchronize(Stream(stream)), "wait for a stream");
  }

  absl::StatusOr<bool> IsCapturing(StreamHandle stream) override {
    ContextScope scope(driver_, context_);
    constexpr CuResult kStreamCaptureImplicit = 906;
    int status = 0;
    const CuResult error = driver_.cuStreamIsCapturing(Stream(stream), &status);
    // The null stream while another stream of the context is being captured: using it would spoil the capture.
    if (error == kStreamCaptureImplicit) return true;
    if (absl::Status s = driver_.Check(error, "ask whether a stream is being captured"); !s.ok())
      return s;
    return status != 0;
  }

  absl::StatusOr<EventHandle> CreateEvent() override {
    ContextScope scope(driver_, context_);
    CuEvent event = nullptr;
    if (absl::Status s = driver_.Check(driver_.cuEventCreate(&event, 0), "create an event");
        !s.ok()) {
      return s;
    }
    return static_cast<EventHandle>(event);
  }

  void DestroyEvent(EventHandle event) override {
    ContextScope scope(driver_, context_);
    driver_.cuEventDestroy_v2(static_cast<CuEvent>(event));
  }

  absl::Status Record(EventHandle event, StreamHandle stream) override {
    ContextScope scope(driver_, context_);
    return driver_.Check(driver_.cuEventRecord(static_cast<CuEvent>(event), Stream(stream)),
                         "record an event");
  }

  absl::StatusOr<int64_t> ElapsedNanoseconds(EventHandle begin, EventHandle end) override {
    ContextScope scope(driver_, context_);
    if (absl::Status s = driver_.Check(driver_.cuEventSynchronize(static_cast<CuEvent>(end)),
                                       "wait for an event");
        !s.ok()) {
      return s;
    }
    float milliseconds = 0;
    if (absl::Status s =
            driver_.Check(driver_.cuEventElapsedTime(&milliseconds, static_cast<CuEvent>(begin),
                                                     static_cast<CuEvent>(end)),
                          "read the time between two events");
        !s.ok()) {
      return s;
    }
    return std::llround(static_cast<double>(milliseconds) * 1e6);
  }

  TelemetrySample Telemetry() override {
    return nvml_ == nullptr ? TelemetrySample{} : nvml_->Sample();
  }

  absl::Status EncodeTensorMap(const TensorMap& description, const Argument& argument,
                               DevicePointer base, void* map) override {
    // Encoding looks at the current context's device.
    ContextScope scope(driver_, context_);
    return EncodeCudaTensorMap(driver_, description, argument, base, map);
  }

 private:
  absl::Status Transfer(void* to, const void* from, int64_t bytes, StreamHandle stream) {
    if (bytes == 0) return absl::OkStatus();
    ContextScope scope(driver_, context_);
    // Unified addressing: the driver sees which side is which.
    return driver_.Check(driver_.cuMemcpyAsync(Address(to), Address(from),
                                               static_cast<size_t>(bytes), Stream(stream)),
                         absl::StrCat("copy ", bytes, " bytes"));
  }

  const CudaDriver& driver_;
  const CuDevice device_;
  const CuContext context_;
  const DeviceIdentity identity_;
  const std::unique_ptr<Nvml> nvml_;
};

std::string PciBusId(const CudaDriver& driver, CuDevice device) {
  int domain = 0, bus = 0, slot = 0;
  driver.cuDeviceGetAttribute(&domain, kPciDomain, device);
  driver.cuDeviceGetAttribute(&bus, kPciBus, device);
  driver.cuDeviceGetAttribute(&slot, kPciDevice, device);
  return absl::StrFormat("%04x:%02x:%02x.0", domain, bus, slot);
}

absl::StatusOr<DeviceIdentity> Identify(const CudaDriver& driver, CuDevice device,
                                        const Nvml* nvml) {
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
  if (nvml != nullptr) {
    identity.power_cap_watts = nvml->PowerLimitWatts();
    identity.partition = nvml->MigMode();
    identity.driver = absl::StrCat(identity.driver, ", driver ", nvml->DriverVersion());
  }
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
  std::unique_ptr<Nvml> nvml = Nvml::Open(PciBusId(driver, device), nvml_library);
  absl::StatusOr<DeviceIdentity> identity = Identify(driver, device, nvml.get());
  if (!identity.ok()) return identity.status();
  CuContext context = nullptr;
  if (absl::Status s = driver.Check(driver.cuDevicePrimaryCtxRetain(&context, device),
                                    absl::StrCat("use the primary context of ", identity->product));
      !s.ok()) {
    return s;
  }
  return std::make_unique<CudaDevice>(driver, device, context, *std::move(identity),
                                      std::move(nvml));
}

absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(int index, const DeviceOptions&) {
  const absl::StatusOr<const CudaDriver*> driver = CudaDriver::Get();
  if (!driver.ok()) return driver.status();
  return OpenCudaDevice(index, **driver, "libnvidia-ml.so.1");
}

DeviceReport ReportCudaDevices(const DeviceOptions& options) {
  DeviceReport report;
  report.platform = Platform::kCuda;
  for (int index = 0;; ++index) {
    const absl::StatusOr<std::unique_ptr<Device>> device = OpenCudaDevice(index, options);
    if (!device.ok()) {
      if (report.devices.empty()) report.reason = std::string(device.status().message());
      return report;
    }
    report.devices.push_back((*device)->identity());
  }
}

}  // namespace whet
