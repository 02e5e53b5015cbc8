#include "src/device/cuda/cuda_driver.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "src/base/mutex.h"

namespace whet {

absl::StatusOr<std::unique_ptr<const CudaDriver>> CudaDriver::Load(const std::string& library) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return absl::UnavailableError(absl::StrCat("cannot open the CUDA driver: ", dlerror(),
                                               "; install the NVIDIA driver on this machine"));
  }
  auto driver = std::make_unique<CudaDriver>();
  const char* missing = nullptr;
#define WHET_CUDA_RESOLVE(symbol, parameters) \
  driver->symbol = reinterpret_cast<CuResult(*) parameters>(dlsym(handle, #symbol));
#define WHET_CUDA_REQUIRE(symbol, parameters) \
  WHET_CUDA_RESOLVE(symbol, parameters)       \
  if (driver->symbol == nullptr && missing == nullptr) missing = #symbol;
  WHET_CUDA_REQUIRED(WHET_CUDA_REQUIRE)
  WHET_CUDA_OPTIONAL(WHET_CUDA_RESOLVE)
#undef WHET_CUDA_REQUIRE
#undef WHET_CUDA_RESOLVE
  if (missing != nullptr) {
    dlclose(handle);
    return absl::UnavailableError(absl::StrCat("cannot use the CUDA driver ", library,
                                               ": it has no ", missing,
                                               "; install driver 520 or newer"));
  }
  // From here on the library stays open: nothing says what its threads still do.
  if (absl::Status s = driver->Check(driver->cuInit(0), "initialise the CUDA driver"); !s.ok()) {
    return absl::UnavailableError(s.message());
  }
  return std::unique_ptr<const CudaDriver>(std::move(driver));
}

absl::StatusOr<const CudaDriver*> CudaDriver::Get() {
  static Mutex mutex;
  // Opened once per process and never closed, as the driver itself demands.
  static const CudaDriver* driver ABSL_GUARDED_BY(mutex) = nullptr;
  MutexLock lock(mutex);
  if (driver == nullptr) {
    absl::StatusOr<std::unique_ptr<const CudaDriver>> loaded = Load("libcuda.so.1");
    if (!loaded.ok()) return loaded.status();
    driver = loaded->release();
  }
  return driver;
}

absl::Status CudaDriver::Check(CuResult error, absl::string_view action) const {
  if (error == 0) return absl::OkStatus();
  const char* name = nullptr;
  if (cuGetErrorName(error, &name) != 0 || name == nullptr) name = "unknown error";
  const std::string message = absl::StrCat("cannot ", action, ": ", name, " (", error, ")");
  switch (error) {
    case 1:    // INVALID_VALUE
    case 101:  // INVALID_DEVICE
    case 400:  // INVALID_HANDLE
    case 912:  // INVALID_CLUSTER_SIZE
      return absl::InvalidArgumentError(message);
    case 2:    // OUT_OF_MEMORY
    case 701:  // LAUNCH_OUT_OF_RESOURCES
      return absl::ResourceExhaustedError(message);
    case 200:  // INVALID_IMAGE
    case 209:  // NO_BINARY_FOR_GPU
    case 218:  // INVALID_PTX
    case 221:  // JIT_COMPILER_NOT_FOUND
    case 222:  // UNSUPPORTED_PTX_VERSION
    case 223:  // JIT_COMPILATION_DISABLED
      return absl::FailedPreconditionError(
          absl::StrCat(message, "; the object is not for this device and driver"));
    case 500:  // NOT_FOUND
      return absl::NotFoundError(message);
    case 100:  // NO_DEVICE
    case 4:    // DEINITIALIZED
    case 46:   // DEVICE_UNAVAILABLE
    case 214:  // ECC_UNCORRECTABLE
    case 220:  // NVLINK_UNCORRECTABLE
    case 226:  // CONTAINED
    case 700:  // ILLEGAL_ADDRESS
    case 702:  // LAUNCH_TIMEOUT
    case 709:  // CONTEXT_IS_DESTROYED
    case 710:  // ASSERT
    case 714:  // HARDWARE_STACK_ERROR
    case 715:  // ILLEGAL_INSTRUCTION
    case 716:  // MISALIGNED_ADDRESS
    case 717:  // INVALID_ADDRESS_SPACE
    case 718:  // INVALID_PC
    case 719:  // LAUNCH_FAILED
      // After these every later call in the context fails: nothing to retry, the process must start anew.
      return absl::UnavailableError(message);
    default:
      return absl::InternalError(message);
  }
}

}  // namespace whet
