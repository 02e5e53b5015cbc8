// A tensor in host memory, for the tool, tests and references: dtype, shape, strides, aligned
// bytes.
//
//   HostTensor q = *HostTensor::Make(DType::kBF16, {1, 8, 1024, 128});
//   q.Set(offset, 0.5);   q.At(offset);   q.Permuted({0, 2, 1, 3});   // a view of the same bytes
//
// New bytes are all 0xFF, which is NaN in every floating dtype: whatever reads padding, or leaves
// an output unwritten, shows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "src/model/dtype.h"

namespace whet {

// Copies share the bytes; Clone does not. Thread-safe as far as the bytes are only read.
class HostTensor {
 public:
  // Stands for an absent argument: no bytes, data() is null.
  HostTensor() = default;

  // Strides in elements, outermost first, none negative; empty: contiguous. InvalidArgument when
  // extents are negative, strides do not fit the shape, or the span overflows; ResourceExhausted
  // when memory is short.
  static absl::StatusOr<HostTensor> Make(DType dtype, std::vector<int64_t> shape,
                                         std::vector<int64_t> strides = {});

  bool present() const { return present_; }
  DType dtype() const { return dtype_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  const std::vector<int64_t>& strides() const { return strides_; }
  int64_t elements() const;
  // From the first to past the last element; padding between rows counts.
  int64_t span_bytes() const { return span_bytes_; }
  // 64-byte aligned; never null when present.
  std::byte* data() const { return data_.get(); }

  // Element at an offset in elements from data(). The caller keeps it inside the span.
  double At(int64_t offset) const {
    return DecodeElement(dtype_, data_.get() + offset * element_bytes_);
  }
  void Set(int64_t offset, double value) {
    EncodeElement(dtype_, value, data_.get() + offset * element_bytes_);
  }
  // Offset of the n-th row (last dimension), counting rows in C order; n < RowCount().
  int64_t RowOffset(int64_t row) const;
  int64_t RowCount() const;   // product of all extents but the last; 1 for scalars
  int64_t RowLength() const;  // last extent; 1 for scalars
  int64_t RowStride() const;  // of the last dimension; 1 for scalars

  // The dimensions in another order; `order` is a permutation of 0 ... rank - 1.
  HostTensor Permuted(const std::vector<int>& order) const;
  HostTensor Clone() const;
  // Rounded to another dtype, contiguous.
  absl::StatusOr<HostTensor> ConvertedTo(DType dtype) const;

  // "bf16 [1, 8, 1024, 128]", with the strides when they are not contiguous.
  std::string ToString() const;

 private:
  bool present_ = false;
  DType dtype_ = DType::kF32;
  int64_t element_bytes_ = 4;
  std::vector<int64_t> shape_;
  std::vector<int64_t> strides_;
  int64_t span_bytes_ = 0;
  std::shared_ptr<std::byte> data_;
};

using NamedTensors = std::vector<std::pair<std::string, HostTensor>>;

// nullptr when there is none of that name.
const HostTensor* FindTensor(const NamedTensors& tensors, absl::string_view name);

std::vector<int64_t> ContiguousStrides(const std::vector<int64_t>& shape);

// "[1, 8, 1024, 128]"
std::string ShapeText(const std::vector<int64_t>& shape);

}  // namespace whet
