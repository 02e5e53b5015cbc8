// Named kinds of test data, the same on every machine for a seed.
//
//   FillData({.kind = "sink", .seed = 7}, "k", &k);      // k: [..., sequence, channel]
//
// Values depend on the seed, the tensor's name and the logical index only, not on strides, threads
// or the C library. Speed and error of a kernel depend on its data: zeros are up to a quarter
// faster than anything real on a GPU, and a sink or a late outlier finds errors that normal data
// hides.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "src/ops/host_tensor.h"

namespace whet {

struct DataRequest {
  std::string kind = "normal";
  uint64_t seed = 1;
};

struct DataKind {
  absl::string_view name;
  absl::string_view summary;
};

// All kinds, in the order in which they are listed to people.
const std::vector<DataKind>& DataKinds();

// Writes every element of `tensor` and leaves its padding. `name` is the argument's: kinds treat q,
// k and v differently. InvalidArgument, listing the kinds, when there is none of that name.
absl::Status FillData(const DataRequest& request, absl::string_view name, HostTensor* tensor);

// Inverse of the standard normal distribution function for 0 < p < 1, good to 1e-6, with IEEE
// additions, products, quotients and roots alone, so that it gives the same bits everywhere.
double NormalQuantile(double p);

}  // namespace whet
