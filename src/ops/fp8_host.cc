#include "src/ops/fp8_host.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "src/base/parallel.h"
#include "src/ops/attention_forward_fp8.h"
#include "src/ops/quantize_fp8.h"

namespace whet {
namespace {

// What QuantizeHead reads and writes.
struct HeadTask {
  const HostTensor& x;
  const HostQuantization& how;
  HostQuantized& out;
};

void QuantizeHead(const HeadTask& task, int64_t index) {
  const HostTensor& x = task.x;
  const HostQuantization& how = task.how;
  const int64_t heads = x.shape()[1], rows = x.shape()[2], dim = x.shape()[3];
  const int64_t offset = index / heads * x.strides()[0] + index % heads * x.strides()[1];
  std::vector<double> mean(static_cast<size_t>(dim), 0.0);
  std::vector<double> all(static_cast<size_t>(rows * dim));
  int64_t counted = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const bool counts = !how.sampled_mean || InSampledMean(row, rows);
    counted += counts;
    for (int64_t d = 0; d < dim; ++d) {
      const double value = x.At(offset + row * x.strides()[2] + d * x.strides()[3]);
      all[static_cast<size_t>(row * dim + d)] = value;
      if (counts) mean[static_cast<size_t>(d)] += value;
    }
  }
  if (how.center) {
    for (int64_t d = 0; d < dim; ++d) {
      // As the kernels keep it: an f32.
      double& m = mean[static_cast<size_t>(d)];
      m = static_cast<double>(
          static_cast<float>(m / static_cast<double>(std::max<int64_t>(1, counted))));
      if (!std::isfinite(m)) m = 0;
      task.out.mean.Set(index * dim + d, m);
    }
  }
  std::vector<double> one(static_cast<size_t>(dim));
  for (int64_t row = 0; row < rows && (how.center || how.rotate); ++row) {
    double* const values = all.data() + row * dim;
    for (int64_t d = 0; d < dim; ++d) {
      one[static_cast<size_t>(d)] = values[d] - (how.center ? mean[static_cast<size_t>(d)] : 0.0);
    }
    if (how.rotate) RotateRow(&one);
    std::copy(one.begin(), one.end(), values);
  }
  const int64_t blocks = task.out.scale.shape()[2];
  const std::vector<int64_t>& to = task.out.bytes.strides();
  const int64_t to_offset = index / heads * to[0] + index % heads * to[1];
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t first = block * how.scale_rows;
    const int64_t last = how.scale_rows == 0 ? rows : std::min(rows, first + how.scale_rows);
    double largest = 0;
    for (int64_t i = first * dim; i < last * dim; ++i) {
      const double magnitude = std::fabs(all[static_cast<size_t>(i)]);
      if (std::isfinite(magnitude)) largest = std::max(largest, magnitude);
    }
    const double divisor = ScaleForLargest(largest, how.multiplier, how.to, how.power_of_two);
    task.out.scale.Set(index * blocks + block, divisor / how.multiplier);
    for (int64_t row = first; row < last; ++row) {
      for (int64_t d = 0; d < dim; ++d) {
        const double value = all[static_cast<size_t>(row * dim + d)];
        const int64_t place = how.transpose ? d * to[2] + row : row * to[2] + d;
        task.out.bytes.Set(to_offset + place,
                           std::isfinite(value) ? value * how.multiplier / divisor : std::nan(""));
      }
    }
  }
}

}  // namespace

absl::StatusOr<HostQuantized> QuantizeOnHost(const HostTensor& x, const HostQuantization& how) {
  if (x.shape().size() != 4) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot quantise ", x.ToString(),
                     ": it must have 4 dimensions, [batch, heads, sequence, head dimension]"));
  }
  const int64_t batch = x.shape()[0], heads = x.shape()[1], rows = x.shape()[2], dim = x.shape()[3];
  if (how.rotate && !CanRotate(dim)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot rotate rows of ", dim, ": there are rotations of 64, 128, 192 and 256"));
  }
  const int64_t blocks =
      how.scale_rows == 0 ? 1 : std::max<int64_t>(1, (rows + how.scale_rows - 1) / how.scale_rows);
  std::vector<int64_t> shape = {batch, heads, rows, dim};
  std::vector<int64_t> strides;
  if (how.transpose) {
    const int64_t pitch = TransposedRowBytes(rows);
    shape = {batch, heads, dim, rows};
    strides = {heads * dim * pitch, dim * pitch, pitch, 1};
  }
  HostQuantized out;
  absl::StatusOr<HostTensor> bytes = HostTensor::Make(how.to, shape, strides);
  if (!bytes.ok()) return bytes.status();
  absl::StatusOr<HostTensor> scale = HostTensor::Make(DType::kF32, {batch, heads, blocks});
  if (!scale.ok()) return scale.status();
  out.bytes = *std::move(bytes);
  out.scale = *std::move(scale);
  if (how.center) {
    absl::StatusOr<HostTensor> mean = HostTensor::Make(DType::kF32, {batch, heads, dim});
    if (!mean.ok()) return mean.status();
    out.mean = *std::move(mean);
  }
  const HeadTask task{x, how, out};
  ParallelFor(static_cast<size_t>(batch * heads), AvailableProcessors(),
              [&](size_t i) { QuantizeHead(task, static_cast<int64_t>(i)); });
  return out;
}

absl::StatusOr<HostTensor> LseShiftOnHost(const HostTensor& q, const HostTensor& mean,
                                          double logit_scale) {
  const int64_t batch = q.shape()[0], heads = q.shape()[1], rows = q.shape()[2], dim = q.shape()[3];
  absl::StatusOr<HostTensor> made = HostTensor::Make(DType::kF32, {batch, heads, rows});
  if (!made.ok()) return made.status();
  HostTensor shift = *std::move(made);
  const int64_t heads_kv = mean.shape()[1];
  const int64_t group = std::max<int64_t>(1, heads / std::max<int64_t>(1, heads_kv));
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t row = 0; row < rows; ++row) {
        const std::vector<int64_t>& strides = q.strides();
        const int64_t offset = b * strides[0] + h * strides[1] + row * strides[2];
        double dot = 0;
        for (int64_t d = 0; d < dim; ++d) {
          dot += q.At(offset + d * strides[3]) * mean.At((b * heads_kv + h / group) * dim + d);
        }
        shift.Set((b * heads + h) * rows + row, dot * logit_scale);
      }
    }
  }
  return shift;
}

double FoldedMultiplier(double logit_scale) {
  const double folded = logit_scale * 1.4426950408889634;
  if (!(folded > 0) || !std::isfinite(folded)) return 1;
  return folded / std::exp2(std::round(std::log2(folded)));
}

}  // namespace whet
