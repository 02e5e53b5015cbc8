#include "src/device/cuda/tensor_map.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"

namespace whet {
namespace {

constexpr int kMaxRank = 5;

// CUtensorMapDataType of the dtypes that have one; 8-bit floats travel as bytes.
std::optional<int> DataType(DType dtype) {
  switch (dtype) {
    case DType::kI8:
    case DType::kU8:
    case DType::kE4M3:
    case DType::kE4M3Fnuz:
    case DType::kE5M2:
      return 0;
    case DType::kI32:
      return 3;
    case DType::kI64:
      return 5;
    case DType::kF16:
      return 6;
    case DType::kF32:
      return 7;
    case DType::kBF16:
      return 9;
  }
  return std::nullopt;
}

std::optional<int> Swizzle(int bytes) {
  switch (bytes) {
    case 0:
      return 0;
    case 32:
      return 1;
    case 64:
      return 2;
    case 128:
      return 3;
    default:
      return std::nullopt;
  }
}

}  // namespace

absl::Status EncodeCudaTensorMap(const CudaDriver& driver, const TensorMap& description,
                                 const Argument& argument, void* base, void* map) {
  const auto refuse = [&](auto... why) {
    return absl::InvalidArgumentError(absl::StrCat("cannot encode tensor map ", description.name,
                                                   " of ", argument.name, ": ", why...));
  };
  if (driver.cuTensorMapEncodeTiled == nullptr) {
    return absl::UnimplementedError("the CUDA driver has no tensor maps; driver 525 or newer has");
  }
  const size_t rank = argument.shape.size();
  if (rank < 1 || rank > kMaxRank || description.box.size() != rank) {
    return refuse("the tensor has ", rank, " dimensions and its box ", description.box.size(),
                  "; 1 to 5 and equal numbers are possible");
  }
  const std::optional<int> data_type = DataType(argument.dtype);
  const std::optional<int> swizzle = Swizzle(description.swizzle_bytes);
  if (!data_type.has_value() || !swizzle.has_value()) {
    return refuse("dtype ", DTypeName(argument.dtype), " with a swizzle of ",
                  description.swizzle_bytes, " bytes has no tensor map");
  }
  if (argument.strides.back() != 1) return refuse("its last dimension is not contiguous");
  if (reinterpret_cast<uintptr_t>(base) % 16 != 0) return refuse("its base is not 16-byte aligned");

  const int64_t element_bytes = DTypeBytes(argument.dtype);
  uint64_t dims[kMaxRank] = {};
  uint64_t strides[kMaxRank] = {};
  unsigned box[kMaxRank] = {};
  unsigned steps[kMaxRank] = {};
  unsigned map_rank = 0;
  const auto add = [&](int64_t extent, uint64_t stride, int64_t box_extent, unsigned step) {
    // An empty dimension has no map; a kernel that is launched all the same sees one element that it does not read.
    dims[map_rank] = static_cast<uint64_t>(std::max<int64_t>(1, extent));
    if (map_rank > 0) strides[map_rank - 1] = stride;
    box[map_rank] = static_cast<unsigned>(box_extent);
    steps[map_rank++] = step;
  };
  if (description.interleave &&
      (rank < 2 || rank == kMaxRank || argument.shape[rank - 2] % 2 != 0)) {
    return refuse(
        "its rows cannot be interleaved: 2 to 4 dimensions and an even number of rows are needed");
  }
  for (size_t i = 0; i < rank; ++i) {
    const size_t outermost_first = rank - 1 - i;
    const int64_t extent = argument.shape[outermost_first];
    if (i == 0) {
      add(extent, 0, description.box[0], 1);
      continue;
    }
    // The stride of a dimension of one element means nothing to us, but must be valid for the driver.
    const int64_t stride = extent <= 1 ? 16 : argument.strides[outermost_first] * element_bytes;
    if (stride <= 0 || stride % 16 != 0) {
      return refuse("dimension ", outermost_first, " has a stride of ", stride,
                    " bytes, no positive multiple of 16");
    }
    if (i == 1 && description.interleave) {
      add(2, static_cast<uint64_t>(stride), 2, 1);
      // The last pair begins one row before the end: nothing behind it may be read.
      add(extent - 1, static_cast<uint64_t>(stride), description.box[1], 4);
    } else {
      add(extent, static_cast<uint64_t>(stride), description.box[i], 1);
    }
  }
  constexpr int kNoInterleave = 0, kPromoteTo256Bytes = 3, kFillZeros = 0;
  return driver.Check(
      driver.cuTensorMapEncodeTiled(map, *data_type, map_rank, base, dims, strides, box, steps,
                                    kNoInterleave, *swizzle, kPromoteTo256Bytes, kFillZeros),
      absl::StrCat("encode tensor map ", description.name, " of ", argument.name));
}

}  // namespace whet
