#include "src/device/hip/hip_runtime.h"

#include <dlfcn.h>

#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/base/mutex.h"
#include "src/device/hip/gpu_access.h"

namespace whet {

absl::StatusOr<std::unique_ptr<const HipRuntime>> HipRuntime::Load(const std::string& library) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return absl::UnavailableError(absl::StrCat("cannot open the HIP runtime: ", dlerror()));
  }
  auto hip = std::make_unique<HipRuntime>();
  const char* missing = nullptr;
#define WHET_HIP_REQUIRE(symbol, parameters)                                       \
  hip->symbol = reinterpret_cast<HipResult(*) parameters>(dlsym(handle, #symbol)); \
  if (hip->symbol == nullptr && missing == nullptr) missing = #symbol;
  WHET_HIP_REQUIRED(WHET_HIP_REQUIRE)
#undef WHET_HIP_REQUIRE
  hip->hipGetErrorName =
      reinterpret_cast<const char* (*)(HipResult)>(dlsym(handle, "hipGetErrorName"));
  if (hip->hipGetErrorName == nullptr) missing = "hipGetErrorName";
  for (const char* name : {"hipGetDevicePropertiesR0600", "hipGetDeviceProperties"}) {
    if (hip->get_device_properties != nullptr) break;
    hip->get_device_properties = reinterpret_cast<HipResult (*)(void*, int)>(dlsym(handle, name));
  }
  if (hip->get_device_properties == nullptr) missing = "hipGetDeviceProperties";
  if (missing != nullptr) {
    dlclose(handle);
    return absl::UnavailableError(
        absl::StrCat("cannot use the HIP runtime ", library, ": it has no ", missing));
  }
  // From here on the library stays open: it has threads of its own.
  int count = 0;
  for (const HipResult error : {hip->hipInit(0), hip->hipGetDeviceCount(&count)}) {
    if (absl::Status s = hip->Check(error, absl::StrCat("find an AMD GPU through ", library));
        !s.ok()) {
      return absl::UnavailableError(absl::StrCat(s.message(), "; ", ExplainNoGpu(&ProbeFile)));
    }
  }
  return std::unique_ptr<const HipRuntime>(std::move(hip));
}

absl::StatusOr<const HipRuntime*> HipRuntime::Get() {
  static Mutex mutex;
  // Opened once per process and never closed.
  static const HipRuntime* runtime ABSL_GUARDED_BY(mutex) = nullptr;
  MutexLock lock(mutex);
  if (runtime != nullptr) return runtime;
  std::vector<std::string> reasons;
  for (const char* name : {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"}) {
    absl::StatusOr<std::unique_ptr<const HipRuntime>> loaded = Load(name);
    if (loaded.ok()) {
      runtime = loaded->release();
      return runtime;
    }
    reasons.push_back(std::string(loaded.status().message()));
  }
  return absl::UnavailableError(absl::StrJoin(reasons, "; "));
}

absl::Status HipRuntime::Check(HipResult error, absl::string_view action) const {
  if (error == 0) return absl::OkStatus();
  const char* name = hipGetErrorName(error);
  const std::string message = absl::StrCat(
      "cannot ", action, ": ", name == nullptr ? "unknown error" : name, " (", error, ")");
  switch (error) {
    case 1:    // hipErrorInvalidValue
    case 101:  // hipErrorInvalidDevice
    case 400:  // hipErrorInvalidHandle
      return absl::InvalidArgumentError(message);
    case 2:    // hipErrorOutOfMemory
    case 701:  // hipErrorLaunchOutOfResources
      return absl::ResourceExhaustedError(message);
    case 200:  // hipErrorInvalidImage
    case 209:  // hipErrorNoBinaryForGpu
    case 218:  // hipErrorInvalidKernelFile
      return absl::FailedPreconditionError(absl::StrCat(
          message, "; the object is not for this device, or for other xnack or sramecc flags"));
    case 500:  // hipErrorNotFound
      return absl::NotFoundError(message);
    case 4:    // hipErrorDeinitialized
    case 100:  // hipErrorNoDevice
    case 214:  // hipErrorECCNotCorrectable
    case 700:  // hipErrorIllegalAddress
    case 702:  // hipErrorLaunchTimeOut
    case 709:  // hipErrorContextIsDestroyed
    case 710:  // hipErrorAssert
    case 719:  // hipErrorLaunchFailure
      return absl::UnavailableError(message);
    default:
      return absl::InternalError(message);
  }
}

absl::StatusOr<std::string> HipRuntime::ArchitectureName(int device) const {
  // The structure's layout differs between HIP 5 (792 bytes) and 6 (1472 bytes), and may grow. Instead of a copy of each, the one text in it that
  // begins with "gfx" is looked for: nothing else in the properties can look like that, since the product's name is not trusted (it comes first and is skipped).
  std::vector<char> properties(16384, '\0');
  if (absl::Status s = Check(get_device_properties(properties.data(), device),
                             absl::StrCat("read the properties of HIP device ", device));
      !s.ok()) {
    return s;
  }
  constexpr size_t kNameBytes = 256;
  for (size_t i = kNameBytes; i + kNameBytes < properties.size(); ++i) {
    if (std::memcmp(&properties[i], "gfx", 3) == 0) return std::string(&properties[i]);
  }
  return absl::InternalError(absl::StrCat("cannot read the architecture of HIP device ", device,
                                          ": its properties name none"));
}

}  // namespace whet
