// The targets of --target: several with commas, or the option several times.
//
//   absl::StatusOr<std::vector<Target>> targets = ParseTargetList({"gfx942,gfx950", "host"});
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "src/model/target.h"

namespace whet {

// Each target once, in order; "host" is this machine's processor. InvalidArgument says which is
// none.
absl::StatusOr<std::vector<Target>> ParseTargetList(const std::vector<std::string>& lists);

}  // namespace whet
