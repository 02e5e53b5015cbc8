#include "src/tune/verification.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/base/parallel.h"
#include "src/model/dtype.h"

namespace whet {
namespace {

// Elements per piece of work. Fixed, so that sums do not depend on how many processors there are.
constexpr int64_t kChunkElements = 1 << 18;

// Decodes by table where the type is small.
class Decoder {
 public:
  explicit Decoder(DType dtype) : dtype_(dtype), bytes_(DTypeBytes(dtype)) {
    if (bytes_ > 2 || dtype == DType::kBF16) return;
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
      return dtype_ == DType::kBF16 ? DecodeElement(dtype_, &word) : table_[word];
    }
    if (bytes_ == 1) return table_[static_cast<uint8_t>(*element)];
    return DecodeElement(dtype_, element);
  }

 private:
  DType dtype_;
  int64_t bytes_;
  std::vector<double> table_;
};

struct Sums {
  double difference = 0, reference = 0;
};

// Squares of contiguous f32 or bf16 elements, in four lanes so that nothing waits for the addition
// before it. A value that is not finite makes a sum infinite or NaN.
template <typename Word>
Sums SumContiguous(const char* candidate, const char* reference, int64_t count) {
  constexpr int kLanes = 4;
  const auto decode = [](const char* from) {
    Word word;
    std::memcpy(&word, from, sizeof(word));
    const uint32_t bits = sizeof(Word) == 2 ? static_cast<uint32_t>(word) << 16 : word;
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    return static_cast<double>(value);
  };
  double difference[kLanes] = {}, square[kLanes] = {};
  const auto add = [&](int64_t i, int lane) {
    const double want = decode(reference + i * static_cast<int64_t>(sizeof(Word)));
    const double off = decode(candidate + i * static_cast<int64_t>(sizeof(Word))) - want;
    difference[lane] += off * off;
    square[lane] += want * want;
  };
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) add(i + lane, lane);
  }
  for (; i < count; ++i) add(i, 0);
  return {difference[0] + difference[1] + (difference[2] + difference[3]),
          square[0] + square[1] + (square[2] + square[3])};
}

// The innermost rows of a tensor, by number.
class Rows {
 public:
  explicit Rows(const Argument& a) : argument_(a) {
    columns_ = a.shape.empty() ? 1 : a.shape.back();
    stride_ = a.strides.empty() ? 1 : a.strides.back();
    for (size_t d = 0; d + 1 < a.shape.size(); ++d) count_ *= a.shape[d];
    if (columns_ == 0) count_ = 0;
  }
  int64_t count() const { return count_; }
  int64_t columns() const { return columns_; }
  int64_t stride() const { return stride_; }
  // Of the row's first element, in elements.
  int64_t Offset(int64_t row) const {
    int64_t offset = 0;
    for (size_t d = argument_.shape.empty() ? 0 : argument_.shape.size() - 1; d-- > 0;) {
      offset += row % argument_.shape[d] * argument_.strides[d];
      row /= argument_.shape[d];
    }
    return offset;
  }

 private:
  const Argument& argument_;
  int64_t count_ = 1, columns_ = 1, stride_ = 1;
};

std::string Position(const Argument& a, int64_t row, int64_t column) {
  std::vector<int64_t> index(a.shape.size(), 0);
  for (size_t d = index.size(); d-- > 0;) {
    index[d] = d + 1 == index.size() ? column : row % a.shape[d];
    if (d + 1 < index.size()) row /= a.shape[d];
  }
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
  const Rows rows(a);
  std::vector<bool> element(candidate.size() / width, false);
  if (static_cast<size_t>(rows.count() * rows.columns()) >= element.size()) return "";  // dense
  for (int64_t row = 0; row < rows.count(); ++row) {
    const int64_t offset = rows.Offset(row);
    for (int64_t c = 0; c < rows.columns(); ++c) {
      element[static_cast<size_t>(offset + c * rows.stride())] = true;
    }
  }
  for (size_t i = 0; i < element.size(); ++i) {
    if (!element[i] && candidate.substr(i * width, width) != reference.substr(i * width, width)) {
      return absl::StrCat("it wrote between the elements of argument ", a.name, ", ", i * width,
                          " bytes from its start");
    }
  }
  return "";
}

class Comparison {
 public:
  Comparison(const Argument& argument, absl::string_view candidate, absl::string_view reference)
      : argument_(argument),
        candidate_(candidate),
        reference_(reference),
        width_(DTypeBytes(argument.dtype)),
        rows_(argument),
        decode_(argument.dtype) {}

  Difference Run() {
    Difference difference;
    if (rows_.count() == 0) return difference;
    const int64_t per_chunk = std::max<int64_t>(1, kChunkElements / rows_.columns());
    const int64_t chunks = (rows_.count() + per_chunk - 1) / per_chunk;
    std::vector<Sums> sums(static_cast<size_t>(chunks));
    std::vector<std::string> problems(static_cast<size_t>(chunks));
    ParallelFor(static_cast<size_t>(chunks), AvailableProcessors(), [&](size_t chunk) {
      const int64_t first = static_cast<int64_t>(chunk) * per_chunk;
      const int64_t last = std::min(rows_.count(), first + per_chunk);
      for (int64_t row = first; row < last; ++row) {
        const Sums of_row = Row(row, problems[chunk]);
        sums[chunk].difference += of_row.difference;
        sums[chunk].reference += of_row.reference;
      }
    });
    Sums total;
    for (const Sums& s : sums) {
      total.difference += s.difference;
      total.reference += s.reference;
    }
    if (total.difference > 0) {
      difference.relative_l2 = total.reference > 0 ? std::sqrt(total.difference / total.reference)
                                                   : std::numeric_limits<double>::infinity();
    }
    for (std::string& problem : problems) {
      if (difference.problem.empty()) difference.problem = std::move(problem);
    }
    return difference;
  }

 private:
  Sums Row(int64_t row, std::string& problem) const {
    const int64_t offset = rows_.Offset(row);
    const char* const got = candidate_.data() + offset * width_;
    const char* const want = reference_.data() + offset * width_;
    if (rows_.stride() == 1 &&
        (argument_.dtype == DType::kBF16 || argument_.dtype == DType::kF32)) {
      const Sums fast = width_ == 2 ? SumContiguous<uint16_t>(got, want, rows_.columns())
                                    : SumContiguous<uint32_t>(got, want, rows_.columns());
      if (std::isfinite(fast.difference) && std::isfinite(fast.reference)) return fast;
    }
    Sums sums;
    for (int64_t c = 0; c < rows_.columns(); ++c) {
      const double x = decode_(got + c * rows_.stride() * width_);
      const double y = decode_(want + c * rows_.stride() * width_);
      if (std::isfinite(x) && std::isfinite(y)) {
        sums.difference += (x - y) * (x - y);
        sums.reference += y * y;
      } else if (!(x == y || (std::isnan(x) && std::isnan(y))) && problem.empty()) {
        problem = absl::StrCat("it gives ", Describe(x), " at ", Position(argument_, row, c),
                               " where the reference gives ", Describe(y));
      }
    }
    return sums;
  }

  const Argument& argument_;
  const absl::string_view candidate_, reference_;
  const int64_t width_;
  const Rows rows_;
  const Decoder decode_;
};

}  // namespace

Difference CompareTensors(const Argument& argument, absl::string_view candidate,
                          absl::string_view reference) {
  Difference difference = Comparison(argument, candidate, reference).Run();
  if (difference.problem.empty()) {
    difference.problem = FindWrittenGap(argument, candidate, reference);
  }
  return difference;
}

}  // namespace whet
