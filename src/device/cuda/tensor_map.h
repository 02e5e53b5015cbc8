// Tensor maps: how the bulk tensor copy engine is told of a tensor.
//
//   absl::Status s = EncodeCudaTensorMap(driver, description, argument, base, map_bytes);
#pragma once

#include "absl/status/status.h"
#include "src/device/cuda/cuda_driver.h"
#include "src/model/kernel_template.h"

namespace whet {

// Writes 128 bytes to `map` (64-byte aligned) for the tensor of `argument` at `base`. Unimplemented when the driver has no tensor maps, InvalidArgument when the tensor cannot have
// one: more than 5 dimensions, an odd number of rows to interleave, a stride or base that is no multiple of 16 bytes, a dtype of no map type.
absl::Status EncodeCudaTensorMap(const CudaDriver& driver, const TensorMap& description,
                                 const Argument& argument, void* base, void* map);

}  // namespace whet
