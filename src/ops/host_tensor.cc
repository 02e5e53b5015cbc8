#include "src/ops/host_tensor.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace whet {
namespace {

constexpr int64_t kAlignment = 64;

struct FreeBytes {
  void operator()(std::byte* bytes) const { std::free(bytes); }
};

// Bytes from the first to past the last element, or -1 when they overflow 63 bits.
int64_t SpanBytes(DType dtype, const std::vector<int64_t>& shape,
                  const std::vector<int64_t>& strides) {
  int64_t last = 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    int64_t reach = 0;
    if (shape[i] == 0) return 0;
    if (__builtin_mul_overflow(shape[i] - 1, strides[i], &reach)) return -1;
    if (__builtin_add_overflow(last, reach, &last)) return -1;
  }
  int64_t bytes = 0;
  if (__builtin_add_overflow(last, 1, &last)) return -1;
  if (__builtin_mul_overflow(last, DTypeBytes(dtype), &bytes)) return -1;
  // Room to round up to the alignment.
  return bytes > INT64_MAX - kAlignment ? -1 : bytes;
}

std::shared_ptr<std::byte> AllocateBytes(int64_t bytes) {
  const size_t rounded =
      static_cast<size_t>(std::max<int64_t>(bytes + kAlignment - 1, kAlignment)) / kAlignment *
      kAlignment;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded));
  if (memory == nullptr) return nullptr;
  std::memset(memory, 0xFF, rounded);
  return std::shared_ptr<std::byte>(memory, FreeBytes());
}

}  // namespace

std::vector<int64_t> ContiguousStrides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) {
    // Overflow is found where the span is computed; here it must only not be undefined.
    if (__builtin_mul_overflow(strides[i], std::max<int64_t>(shape[i], 1), &strides[i - 1])) {
      strides[i - 1] = INT64_MAX;
    }
  }
  return strides;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

absl::StatusOr<HostTensor> HostTensor::Make(DType dtype, std::vector<int64_t> shape,
                                            std::vector<int64_t> strides) {
  if (strides.empty()) strides = ContiguousStrides(shape);
  if (strides.size() != shape.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot make a tensor of shape ", ShapeText(shape), ": it has ", shape.size(),
                     " dimensions, but there are ", strides.size(), " strides"));
  }
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < 0 || strides[i] < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot make a tensor of shape ", ShapeText(shape), " with strides ",
                       ShapeText(strides), ": extents and strides must not be negative"));
    }
  }
  const int64_t bytes = SpanBytes(dtype, shape, strides);
  if (bytes < 0) {
    return absl::InvalidArgumentError(absl::StrCat("cannot make a tensor of shape ",
                                                   ShapeText(shape), " with strides ",
                                                   ShapeText(strides), ": its size overflows"));
  }
  HostTensor tensor;
  tensor.data_ = AllocateBytes(bytes);
  if (tensor.data_ == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot allocate ", bytes,
                                                     " bytes for a tensor of shape ",
                                                     ShapeText(shape), ": out of memory"));
  }
  tensor.present_ = true;
  tensor.dtype_ = dtype;
  tensor.element_bytes_ = DTypeBytes(dtype);
  tensor.shape_ = std::move(shape);
  tensor.strides_ = std::move(strides);
  tensor.span_bytes_ = bytes;
  return tensor;
}

int64_t HostTensor::elements() const {
  int64_t count = present_ ? 1 : 0;
  for (const int64_t extent : shape_) count *= extent;
  return count;
}

int64_t HostTensor::RowCount() const {
  int64_t count = 1;
  for (size_t i = 0; i + 1 < shape_.size(); ++i) count *= shape_[i];
  return count;
}

int64_t HostTensor::RowLength() const { return shape_.empty() ? 1 : shape_.back(); }

int64_t HostTensor::RowStride() const { return strides_.empty() ? 1 : strides_.back(); }

int64_t HostTensor::RowOffset(int64_t row) const {
  int64_t offset = 0;
  for (size_t i = shape_.size() > 1 ? shape_.size() - 1 : 0; i-- > 0;) {
    offset += row % shape_[i] * strides_[i];
    row /= shape_[i];
  }
  return offset;
}

HostTensor HostTensor::Permuted(const std::vector<int>& order) const {
  HostTensor view = *this;
  for (size_t i = 0; i < order.size(); ++i) {
    view.shape_[i] = shape_[static_cast<size_t>(order[i])];
    view.strides_[i] = strides_[static_cast<size_t>(order[i])];
  }
  return view;
}

HostTensor HostTensor::Clone() const {
  HostTensor copy = *this;
  if (!present_) return copy;
  copy.data_ = AllocateBytes(span_bytes_);
  if (copy.data_ == nullptr) std::abort();  // as operator new would end it
  std::memcpy(copy.data_.get(), data_.get(), static_cast<size_t>(span_bytes_));
  return copy;
}

absl::StatusOr<HostTensor> HostTensor::ConvertedTo(DType dtype) const {
  absl::StatusOr<HostTensor> converted = Make(dtype, shape_);
  if (!converted.ok() || elements() == 0) return converted;
  const int64_t length = RowLength();
  for (int64_t row = 0; row < RowCount(); ++row) {
    const int64_t from = RowOffset(row);
    const int64_t to = converted->RowOffset(row);
    for (int64_t i = 0; i < length; ++i) converted->Set(to + i, At(from + i * RowStride()));
  }
  return converted;
}

std::string HostTensor::ToString() const {
  if (!present_) return "absent";
  std::string text(DTypeName(dtype_));
  absl::StrAppend(&text, " ", ShapeText(shape_));
  if (strides_ != ContiguousStrides(shape_)) {
    absl::StrAppend(&text, " with strides ", ShapeText(strides_));
  }
  return text;
}

const HostTensor* FindTensor(const NamedTensors& tensors, absl::string_view name) {
  for (const auto& [key, tensor] : tensors) {
    if (key == name) return &tensor;
  }
  return nullptr;
}

}  // namespace whet
