// The parameters of one launch: values of the template's arguments, then the kernel's tensor maps,
// and the array of pointers that a launch takes.
//
//   ArgumentPack pack(arguments, prepared.tensor_maps);
//   pack.SetPointer(0, q);  pack.SetScalar(5, &scale, 4);
//   pack.EncodeTensorMaps(device);          // only when there are maps; again whenever a mapped
//   pointer changed device.Launch(kernel, geometry, pack.params(), stream);
//
// Fixed storage, no allocation after construction; not thread-safe (one per launching thread).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "src/device/device.h"
#include "src/model/kernel_template.h"

namespace whet {

class ArgumentPack {
 public:
  ArgumentPack(std::vector<Argument> arguments, std::vector<TensorMap> tensor_maps);

  void SetPointer(int argument, DevicePointer pointer);
  // `bytes` is the size of the argument's dtype.
  void SetScalar(int argument, const void* value, int64_t bytes);
  absl::Status EncodeTensorMaps(Device& device);

  void* const* params() { return params_.data(); }
  DevicePointer pointer(int argument) const;
  const std::vector<Argument>& arguments() const { return arguments_; }

 private:
  std::vector<Argument> arguments_;
  std::vector<TensorMap> tensor_maps_;
  std::vector<uint64_t> values_;       // one word per argument
  std::unique_ptr<std::byte[]> maps_;  // 128 bytes each, 64-byte aligned inside
  std::vector<void*> params_;
};

}  // namespace whet
