// BF16 (or f32) q, k and v, as files hold them, made into the inputs of FP8 attention.
//
//   NamedTensors tensors = {{"q", q}, {"k", k}, {"v", v}};
//   absl::StatusOr<std::string> note = MakeFp8Inputs(&tensors, &fields);     // "center=1,rotate=1,scale_rows=0: ..."
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "src/ops/host_tensor.h"
#include "src/ops/operation.h"

namespace whet {

// Whether q is there and no FP8 yet.
bool WantFp8Inputs(const NamedTensors& tensors);

// Quantises q, k and v, [batch, heads, seq, dim], with the recipe that errs least on them, into the field dtype's flavour (e4m3
// when there is none), and adds their scales, and lse_shift when the fields ask for lse. Returns the recipe and the errors of all
// that were tried, for people. InvalidArgument when one is missing or they do not belong together.
absl::StatusOr<std::string> MakeFp8Inputs(NamedTensors* tensors, FieldValues* fields);

}  // namespace whet
