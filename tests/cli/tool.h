// Runs the built whet tool as a user's process, with a home and a cache of its own.
//
//   Tool tool;
//   ToolRun run = tool.Run({"run", "rms_norm", "--json"});
//   EXPECT_EQ(run.exit_code, 0) << run;
#pragma once

#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "src/base/files.h"

namespace whet::testing {

struct ToolRun {
  int exit_code = -1;
  std::string out;
  std::string err;
};
std::ostream& operator<<(std::ostream& stream, const ToolRun& run);

class Tool {
 public:
  Tool();

  // `environment` is added to a small clean one (PATH, HOME, WHET_CACHE, two CPU threads).
  ToolRun Run(const std::vector<std::string>& arguments,
              const std::vector<std::pair<std::string, std::string>>& environment = {}) const;

  // A path in this tool's own directory, removed with it.
  std::string Path(absl::string_view name) const;
  // Writes a file there and returns its path.
  std::string Write(absl::string_view name, absl::string_view bytes) const;
  // Writes an executable shell script there and returns its path.
  std::string Script(absl::string_view name, absl::string_view body) const;
  std::string cache() const { return Path("cache"); }

 private:
  TemporaryDirectory directory_;
};

// The tool's executable.
std::string ToolPath();

}  // namespace whet::testing
