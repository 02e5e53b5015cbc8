// AMD's HIP runtime, opened at run time: one table of the entry points that Whet uses.
//
//   absl::StatusOr<const HipRuntime*> hip = HipRuntime::Get();     // libamdhip64.so.7, .6 or .5; about 0.2 s, once
//   int error = (*hip)->hipMalloc(&pointer, bytes);
//
// The types are declared here because HIP's headers are not there on every machine; they follow the HIP runtime API
// reference. Numbers of errors and attributes are the same in HIP 5, 6 and 7.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace whet {

using HipResult = int;
using HipModule = struct HipModuleOpaque*;
using HipFunction = struct HipFunctionOpaque*;
using HipStream = struct HipStreamOpaque*;
using HipEvent = struct HipEventOpaque*;

// X(symbol, parameters): all return HipResult.
#define WHET_HIP_REQUIRED(X)                                                                       \
  X(hipInit, (unsigned flags))                                                                     \
  X(hipRuntimeGetVersion, (int* version))                                                          \
  X(hipGetDeviceCount, (int* count))                                                               \
  X(hipGetDevice, (int* device))                                                                   \
  X(hipSetDevice, (int device))                                                                    \
  X(hipDeviceGetName, (char* name, int length, int device))                                        \
  X(hipDeviceTotalMem, (size_t * bytes, int device))                                               \
  X(hipDeviceGetAttribute, (int* value, int attribute, int device))                                \
  X(hipModuleLoadData, (HipModule * module, const void* image))                                    \
  X(hipModuleUnload, (HipModule module))                                                           \
  X(hipModuleGetFunction, (HipFunction * function, HipModule module, const char* name))            \
  X(hipModuleLaunchKernel, (HipFunction function, unsigned grid_x, unsigned grid_y,                \
                            unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, \
                            unsigned shared_bytes, HipStream stream, void** params, void** extra)) \
  X(hipMalloc, (void** pointer, size_t bytes))                                                     \
  X(hipFree, (void* pointer))                                                                      \
  X(hipMemGetInfo, (size_t * free_bytes, size_t * total_bytes))                                    \
  X(hipMemcpyAsync, (void* to, const void* from, size_t bytes, int kind, HipStream stream))        \
  X(hipMemsetAsync, (void* to, int value, size_t bytes, HipStream stream))                         \
  X(hipStreamCreateWithFlags, (HipStream * stream, unsigned flags))                                \
  X(hipStreamDestroy, (HipStream stream))                                                          \
  X(hipStreamSynchronize, (HipStream stream))                                                      \
  X(hipStreamIsCapturing, (HipStream stream, int* status))                                         \
  X(hipEventCreateWithFlags, (HipEvent * event, unsigned flags))                                   \
  X(hipEventDestroy, (HipEvent event))                                                             \
  X(hipEventRecord, (HipEvent event, HipStream stream))                                            \
  X(hipEventSynchronize, (HipEvent event))                                                         \
  X(hipEventQuery, (HipEvent event))                                                               \
  X(hipEventElapsedTime, (float* milliseconds, HipEvent begin, HipEvent end))

class HipRuntime {
 public:
  // Opened at the first call and kept; a failure is not remembered. Unavailable names every library that was looked for, or says that there is no device.
  static absl::StatusOr<const HipRuntime*> Get();
  // The same from a given file, for tests; not kept by Get.
  static absl::StatusOr<std::unique_ptr<const HipRuntime>> Load(const std::string& library);

  // As CudaDriver::Check: "cannot <action>: hipErrorInvalidValue (1)".
  absl::Status Check(HipResult error, absl::string_view action) const;

  // "gfx950:sramecc+:xnack-" of a device, from the properties' gcnArchName.
  absl::StatusOr<std::string> ArchitectureName(int device) const;

  const char* (*hipGetErrorName)(HipResult error) = nullptr;
  // hipGetDevicePropertiesR0600 since HIP 6, hipGetDeviceProperties before: the structures differ.
  HipResult (*get_device_properties)(void* properties, int device) = nullptr;
#define WHET_HIP_DECLARE(symbol, parameters) HipResult(*symbol) parameters = nullptr;
  WHET_HIP_REQUIRED(WHET_HIP_DECLARE)
#undef WHET_HIP_DECLARE
};

}  // namespace whet
