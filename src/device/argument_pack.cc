#include "src/device/argument_pack.h"

#include <cassert>
#include <cstring>
#include <utility>

namespace whet {
namespace {

constexpr size_t kMapBytes = 128;
constexpr size_t kMapAlignment = 64;

}  // namespace

ArgumentPack::ArgumentPack(std::vector<Argument> arguments, std::vector<TensorMap> tensor_maps)
    : arguments_(std::move(arguments)),
      tensor_maps_(std::move(tensor_maps)),
      values_(arguments_.size(), 0),
      maps_(std::make_unique<std::byte[]>(tensor_maps_.size() * kMapBytes + kMapAlignment)) {
  params_.reserve(arguments_.size() + tensor_maps_.size());
  for (uint64_t& value : values_) params_.push_back(&value);
  void* map = maps_.get();
  size_t space = tensor_maps_.size() * kMapBytes + kMapAlignment;
  std::align(kMapAlignment, tensor_maps_.size() * kMapBytes, map, space);
  for (size_t i = 0; i < tensor_maps_.size(); ++i) {
    params_.push_back(static_cast<std::byte*>(map) + i * kMapBytes);
  }
}

void ArgumentPack::SetPointer(int argument, DevicePointer pointer) {
  assert(argument >= 0 && static_cast<size_t>(argument) < values_.size());
  std::memcpy(&values_[static_cast<size_t>(argument)], &pointer, sizeof(pointer));
}

void ArgumentPack::SetScalar(int argument, const void* value, int64_t bytes) {
  assert(argument >= 0 && static_cast<size_t>(argument) < values_.size());
  assert(bytes >= 1 && bytes <= 8);
  std::memcpy(&values_[static_cast<size_t>(argument)], value, static_cast<size_t>(bytes));
}

DevicePointer ArgumentPack::pointer(int argument) const {
  assert(argument >= 0 && static_cast<size_t>(argument) < values_.size());
  DevicePointer pointer = nullptr;
  std::memcpy(&pointer, &values_[static_cast<size_t>(argument)], sizeof(pointer));
  return pointer;
}

absl::Status ArgumentPack::EncodeTensorMaps(Device& device) {
  for (size_t i = 0; i < tensor_maps_.size(); ++i) {
    const TensorMap& map = tensor_maps_[i];
    absl::Status encoded =
        device.EncodeTensorMap(map, arguments_[static_cast<size_t>(map.argument)],
                               pointer(map.argument), params_[arguments_.size() + i]);
    if (!encoded.ok()) return encoded;
  }
  return absl::OkStatus();
}

}  // namespace whet
