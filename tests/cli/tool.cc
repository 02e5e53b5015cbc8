#include "tests/cli/tool.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "src/base/subprocess.h"
#include "tests/support/runfile.h"

namespace whet::testing {

std::ostream& operator<<(std::ostream& stream, const ToolRun& run) {
  return stream << "exit status " << run.exit_code << "\n--- stdout\n"
                << run.out << "--- stderr\n"
                << run.err << "---";
}

std::string ToolPath() { return RunfilePath("src/cli/whet"); }

Tool::Tool() : directory_(*TemporaryDirectory::Create("cli_test")) {}

std::string Tool::Path(absl::string_view name) const { return JoinPath(directory_.path(), name); }

std::string Tool::Write(absl::string_view name, absl::string_view bytes) const {
  const std::string path = Path(name);
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

std::string Tool::Script(absl::string_view name, absl::string_view body) const {
  const std::string path = Write(name, absl::StrCat("#!/bin/sh\n", body, "\n"));
  EXPECT_EQ(chmod(path.c_str(), 0755), 0);
  return path;
}

ToolRun Tool::Run(const std::vector<std::string>& arguments,
                  const std::vector<std::pair<std::string, std::string>>& environment) const {
  SubprocessOptions options;
  options.argv = {ToolPath()};
  options.argv.insert(options.argv.end(), arguments.begin(), arguments.end());
  options.inherited_environment = {};
  options.working_directory = directory_.path();
  options.timeout = absl::Minutes(4);
  options.environment = {{"PATH", "/usr/local/bin:/usr/bin:/bin"},
                         {"HOME", Path("home")},
                         {"WHET_CACHE", cache()},
                         {"WHET_CPU_THREADS", "2"}};
  for (const std::pair<std::string, std::string>& entry : environment) {
    std::erase_if(options.environment,
                  [&](const auto& inherited) { return inherited.first == entry.first; });
    options.environment.push_back(entry);
  }
  absl::StatusOr<SubprocessResult> result = RunSubprocess(options);
  if (!result.ok()) {
    ADD_FAILURE() << result.status();
    return {};
  }
  EXPECT_EQ(result->signal, 0) << "the tool " << result->Outcome();
  return {result->exit_code, result->standard_output, result->standard_error};
}

}  // namespace whet::testing
