// Quantisation of whole tensors to e4m3 on the host, by the definition that quantize_fp8's kernels are checked against. Slow and
// plain: for files given to the tool, for measuring what a recipe costs, and for tests.
//
//   HostQuantized k = *QuantizeOnHost(keys, {.center = true, .rotate = true});
//   double element = k.bytes.At(offset) * k.scale.At(head);        // of the centred, rotated keys
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "src/ops/host_tensor.h"

namespace whet {

struct HostQuantization {
  DType to = DType::kE4M3;
  int64_t scale_rows = 0;  // rows that share a scale: 0 (a head), or any other number
  bool power_of_two = false;
  bool center = false;
  bool sampled_mean = false;  // centred on the mean of the rows of InSampledMean
  bool rotate = false;
  bool transpose = false;
  double multiplier = 1;
};

struct HostQuantized {
  HostTensor bytes;  // [batch, heads, seq, dim], or [batch, heads, dim, seq] with rows padded to 16
  HostTensor scale;  // f32 [batch, heads, blocks]
  HostTensor mean;   // f32 [batch, heads, dim] when centred
};

// `x` is [batch, heads, seq, dim], of any floating dtype. InvalidArgument when it is not, or when a dim without a rotation is to
// be rotated.
absl::StatusOr<HostQuantized> QuantizeOnHost(const HostTensor& x, const HostQuantization& how);

// logit_scale * (q . mean of its key head), f32 [batch, heads, seq]: what centring takes from a log-sum-exp.
absl::StatusOr<HostTensor> LseShiftOnHost(const HostTensor& q, const HostTensor& mean,
                                          double logit_scale);

// The factor to fold into q so that logit_scale * log2(e) times q's and k's scales is a power of two where these were powers of
// two: in [1/sqrt(2), sqrt(2)).
double FoldedMultiplier(double logit_scale);

}  // namespace whet
