#include "src/cli/target_list.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace whet {

absl::StatusOr<std::vector<Target>> ParseTargetList(const std::vector<std::string>& lists) {
  std::vector<Target> targets;
  for (const std::string& list : lists) {
    // A CPU target has commas of its own: whatever follows x86-64 belongs to it.
    std::vector<std::string> pieces = absl::StrSplit(list, ',');
    for (size_t i = 0; i < pieces.size(); ++i) {
      std::string text = pieces[i];
      if (absl::StrContains(text, "x86-64:")) {
        text = absl::StrJoin(pieces.begin() + static_cast<int64_t>(i), pieces.end(), ",");
        i = pieces.size();
      }
      absl::StatusOr<Target> target =
          text == "host" ? absl::StatusOr<Target>(HostCpuTarget()) : Target::Parse(text);
      if (!target.ok()) return target.status();
      if (std::find(targets.begin(), targets.end(), *target) != targets.end()) continue;
      targets.push_back(*std::move(target));
    }
  }
  return targets;
}

}  // namespace whet
