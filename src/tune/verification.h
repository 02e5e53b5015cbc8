// Compares what a variant wrote with what the reference variant wrote.
//
//   Difference d = CompareTensors(argument, candidate_bytes, reference_bytes);
//   if (d.problem.empty() && d.relative_l2 <= tolerance) ...
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "src/model/kernel_template.h"

namespace whet {

struct Difference {
  double relative_l2 = 0;  // ||candidate - reference|| / ||reference|| over the finite elements
  // What no tolerance excuses: a NaN or an infinity where the reference has something else, or a
  // byte written between the tensor's elements. Empty when there is nothing of the kind.
  std::string problem;
};

// Both texts are the argument's span. A reference of norm 0 asks for exact zeros (infinite
// difference otherwise). Large tensors are compared on all processors that this process may use, but
// sums run in double and in a fixed order, so the result does not depend on their number. 64-bit
// integers are compared through double, so differences beyond 2^53 may be missed when they are
// relatively tiny.
Difference CompareTensors(const Argument& argument, absl::string_view candidate,
                          absl::string_view reference);

}  // namespace whet
