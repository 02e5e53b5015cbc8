#include "src/tune/verification.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/model/dtype.h"

namespace whet {
namespace {

// Decodes by table where the type is small: an attention output has tens of millions of elements,
// and every variant's is compared.
class Decoder {
 public:
  explicit Decoder(DType dtype) : dtype_(dtype), bytes_(DTypeBytes(dtype)) {
    if (bytes_ > 2) return;
    table_.resize(size_t{1} << (8 * bytes_));
    for (size_t i = 0; i < table_.size(); ++i) {
      const auto word = static_cast<uint16_t>(i);
      const auto byte = static_cast<uint8_t>(i);
      table_[i] = bytes_ == 2 ? DecodeElement(dtype, &word) : DecodeElement(dtype, &byte);
    }
  }
  double operator()(const char* element) const {
    if (bytes_ == 2) {
      uint16_t word;
      std::memcpy(&word, element, 2);
      return table_[word];
    }
    if (bytes_ == 1) return table_[static_cast<uint8_t>(*element)];
    if (dtype_ == DType::kF32) {
      float value;
      std::memcpy(&value, element, 4);
      return value;
    }
    return DecodeElement(dtype_, element);
  }

 private:
  DType dtype_;
  int64_t bytes_;
  std::vector<double> table_;
};

// Calls `row(first element's offset, in elements)` for every innermost row.
void ForEachRow(const Argument& a, const std::function<void(int64_t offset)>& row) {
  for (int64_t extent : a.shape) {
    if (extent == 0) return;
  }
  const size_t outer = a.shape.empty() ? 0 : a.shape.size() - 1;
  std::vector<int64_t> index(outer, 0);
  int64_t offset = 0;
  for (;;) {
    row(offset);
    size_t d = outer;
    while (d-- > 0) {
      offset += a.strides[d];
      if (++index[d] < a.shape[d]) break;
      offset -= index[d] * a.strides[d];
      index[d] = 0;
    }
    if (d == static_cast<size_t>(-1)) return;
  }
}

std::string Position(const Argument& a, int64_t row_offset, int64_t column) {
  // Rows are visited in order, so the indices are found by walking again; messages are rare.
  std::vector<int64_t> index(a.shape.size(), 0);
  int64_t rest = row_offset;
  for (size_t d = 0; d + 1 < a.shape.size(); ++d) {
    if (a.strides[d] > 0) {
      index[d] = rest / a.strides[d];
      rest %= a.strides[d];
    }
  }
  if (!index.empty()) index.back() = column;
  return absl::StrCat(a.name, "[", absl::StrJoin(index, ", "), "]");
}

std::string Describe(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+inf" : "-inf";
  return absl::StrCat(value);
}

// Bytes between the elements belong to the caller's other tensors.
std::string FindWrittenGap(const Argument& a, absl::string_view candidate,
                           absl::string_view reference) {
  const auto width = static_cast<size_t>(DTypeBytes(a.dtype));
  std::vector<bool> element(candidate.size() / width, false);
  const int64_t columns = a.shape.empty() ? 1 : a.shape.back();
  const int64_t stride = a.strides.empty() ? 1 : a.strides.back();
  int64_t elements = 1;
  for (int64_t extent : a.shape) elements *= extent;
  if (static_cast<size_t>(elements) >= element.size()) return "";  // dense
  ForEachRow(a, [&](int64_t offset) {
    for (int64_t c = 0; c < columns; ++c) element[static_cast<size_t>(offset + c * stride)] = true;
  });
  for (size_t i = 0; i < element.size(); ++i) {
    if (!element[i] && candidate.substr(i * width, width) != reference.substr(i * width, width)) {
      return absl::StrCat("it wrote between the elements of argument ", a.name, ", ", i * width,
                          " bytes from its start");
    }
  }
  return "";
}

}  // namespace

Difference CompareTensors(const Argument& argument, absl::string_view candidate,
                          absl::string_view reference) {
  Difference difference;
  const Decoder decode(argument.dtype);
  const int64_t width = DTypeBytes(argument.dtype);
  const int64_t columns = argument.shape.empty() ? 1 : argument.shape.back();
  const int64_t stride = argument.strides.empty() ? 1 : argument.strides.back();
  double square = 0, reference_square = 0;
  ForEachRow(argument, [&](int64_t offset) {
    // A sum per row keeps the rounding of the total small.
    double row_square = 0, row_reference = 0;
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t at = (offset + c * stride) * width;
      const double got = decode(candidate.data() + at);
      const double want = decode(reference.data() + at);
      if (std::isfinite(got) && std::isfinite(want)) {
        row_square += (got - want) * (got - want);
        row_reference += want * want;
      } else if (!(got == want || (std::isnan(got) && std::isnan(want))) &&
                 difference.problem.empty()) {
        difference.problem =
            absl::StrCat("it gives ", Describe(got), " at ", Position(argument, offset, c),
                         " where the reference gives ", Describe(want));
      }
    }
    square += row_square;
    reference_square += row_reference;
  });
  if (square > 0) {
    difference.relative_l2 = reference_square > 0 ? std::sqrt(square / reference_square)
                                                  : std::numeric_limits<double>::infinity();
  }
  if (difference.problem.empty()) {
    difference.problem = FindWrittenGap(argument, candidate, reference);
  }
  return difference;
}

}  // namespace whet
