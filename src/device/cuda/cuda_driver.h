// The CUDA driver API, opened at run time: one table of the entry points that Whet uses.
//
//   absl::StatusOr<const CudaDriver*> driver = CudaDriver::Get();    // libcuda.so.1, opened once
//   int error = (*driver)->cuMemAlloc_v2(&pointer, bytes);
//
// The types are declared here because cuda.h is not there on a machine without the toolkit; they follow
// the CUDA driver API reference, whose ABI is stable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace whet {

using CuResult = int;
using CuDevice = int;
using CuContext = struct CuContextOpaque*;
using CuModule = struct CuModuleOpaque*;
using CuFunction = struct CuFunctionOpaque*;
using CuStream = struct CuStreamOpaque*;
using CuEvent = struct CuEventOpaque*;
using CuDevicePointer = uint64_t;

struct CuLaunchAttribute {
  int id;
  char pad[8 - sizeof(int)];
  union {
    char bytes[64];
    struct {
      unsigned x, y, z;
    } cluster;
  } value;
};
static_assert(sizeof(CuLaunchAttribute) == 72);
inline constexpr int kCuLaunchAttributeClusterDimension = 4;

struct CuLaunchConfig {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  CuStream stream;
  CuLaunchAttribute* attributes;
  unsigned attribute_count;
};

// X(symbol, parameters): all return CuResult. WHET_CUDA_OPTIONAL ones may be missing in older drivers and are then null.
#define WHET_CUDA_REQUIRED(X)                                                                     \
  X(cuInit, (unsigned flags))                                                                     \
  X(cuDriverGetVersion, (int* version))                                                           \
  X(cuGetErrorName, (CuResult error, const char** name))                                          \
  X(cuDeviceGetCount, (int* count))                                                               \
  X(cuDeviceGet, (CuDevice * device, int ordinal))                                                \
  X(cuDeviceGetName, (char* name, int length, CuDevice device))                                   \
  X(cuDeviceTotalMem_v2, (size_t * bytes, CuDevice device))                                       \
  X(cuDeviceGetAttribute, (int* value, int attribute, CuDevice device))                           \
  X(cuDevicePrimaryCtxRetain, (CuContext * context, CuDevice device))                             \
  X(cuDevicePrimaryCtxRelease_v2, (CuDevice device))                                              \
  X(cuCtxGetCurrent, (CuContext * context))                                                       \
  X(cuCtxPushCurrent_v2, (CuContext context))                                                     \
  X(cuCtxPopCurrent_v2, (CuContext * context))                                                    \
  X(cuModuleLoadDataEx, (CuModule * module, const void* image, unsigned option_count,             \
                         int* options, void** option_values))                                     \
  X(cuModuleUnload, (CuModule module))                                                            \
  X(cuModuleGetFunction, (CuFunction * function, CuModule module, const char* name))              \
  X(cuFuncSetAttribute, (CuFunction function, int attribute, int value))                          \
  X(cuLaunchKernel, (CuFunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,      \
                     unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, \
                     CuStream stream, void** params, void** extra))                               \
  X(cuMemAlloc_v2, (CuDevicePointer * pointer, size_t bytes))                                     \
  X(cuMemFree_v2, (CuDevicePointer pointer))                                                      \
  X(cuMemGetInfo_v2, (size_t * free_bytes, size_t * total_bytes))                                 \
  X(cuMemcpyAsync, (CuDevicePointer to, CuDevicePointer from, size_t bytes, CuStream stream))     \
  X(cuMemsetD8Async, (CuDevicePointer to, unsigned char value, size_t bytes, CuStream stream))    \
  X(cuStreamCreate, (CuStream * stream, unsigned flags))                                          \
  X(cuStreamDestroy_v2, (CuStream stream))                                                        \
  X(cuStreamSynchronize, (CuStream stream))                                                       \
  X(cuStreamIsCapturing, (CuStream stream, int* status))                                          \
  X(cuEventCreate, (CuEvent * event, unsigned flags))                                             \
  X(cuEventDestroy_v2, (CuEvent event))                                                           \
  X(cuEventRecord, (CuEvent event, CuStream stream))                                              \
  X(cuEventSynchronize, (CuEvent event))                                                          \
  X(cuEventQuery, (CuEvent event))                                                                \
  X(cuEventElapsedTime, (float* milliseconds, CuEvent begin, CuEvent end))

#define WHET_CUDA_OPTIONAL(X)                                                         \
  X(cuLaunchKernelEx,                                                                 \
    (const CuLaunchConfig* config, CuFunction function, void** params, void** extra)) \
  X(cuFuncLoad, (CuFunction function))                                                \
  X(cuTensorMapEncodeTiled,                                                           \
    (void* map, int data_type, unsigned rank, void* address, const uint64_t* dims,    \
     const uint64_t* strides, const unsigned* box, const unsigned* element_strides,   \
     int interleave, int swizzle, int l2_promotion, int out_of_bounds_fill))

class CudaDriver {
 public:
  // Opened at the first call and kept: the driver cannot be unloaded. Unavailable when the library or a required symbol is missing, or when cuInit finds
  // no device; a failure is not remembered.
  static absl::StatusOr<const CudaDriver*> Get();
  // The same from a given file, for tests; not kept by Get.
  static absl::StatusOr<std::unique_ptr<const CudaDriver>> Load(const std::string& library);

  // "cannot <action>: CUDA_ERROR_INVALID_VALUE (1)" as a Status: OK for 0; Unavailable for errors after which a context is lost, ResourceExhausted for memory and launch
  // resources, InvalidArgument, FailedPrecondition for images of another target, NotFound, otherwise Internal.
  absl::Status Check(CuResult error, absl::string_view action) const;

#define WHET_CUDA_DECLARE(symbol, parameters) CuResult(*symbol) parameters = nullptr;
  WHET_CUDA_REQUIRED(WHET_CUDA_DECLARE)
  WHET_CUDA_OPTIONAL(WHET_CUDA_DECLARE)
#undef WHET_CUDA_DECLARE
};

}  // namespace whet
