// Many processes of one host that want the same kernel: one compiles it. A compiler that counts how
// often it is called stands before the real one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/base/files.h"
#include "src/base/parallel.h"
#include "tests/cli/json_out.h"
#include "tests/cli/tool.h"

namespace whet::testing {
namespace {

class ProcessesTest : public ::testing::Test {
 protected:
  ProcessesTest() {
    // Only whole kernels count: the compiler is also asked for its version, and tried out.
    compiler_ = tool_.Script(
        "cxx", absl::StrCat("case \"$*\" in *kernel.map*-O3*|*-O3*kernel.map*) echo x >> ",
                            tool_.Path("compiles"), ";; esac\nexec g++ \"$@\""));
  }

  int Compiles() const {
    absl::StatusOr<std::string> text = ReadFile(tool_.Path("compiles"), 1 << 20);
    return text.ok() ? static_cast<int>(std::count(text->begin(), text->end(), 'x')) : 0;
  }

  // Starts so many at once; each must come to a right result.
  std::vector<std::string> Origins(
      int processes, const std::vector<std::pair<std::string, std::string>>& environment) {
    std::vector<std::string> origins(static_cast<size_t>(processes));
    std::vector<std::pair<std::string, std::string>> all = environment;
    all.emplace_back("WHET_CXX", compiler_);
    all.emplace_back("WHET_CPU_THREADS", "1");
    ParallelFor(origins.size(), processes, [&](size_t i) {
      const ToolRun run = tool_.Run({"run", "rms_norm:dtype=f32,rows=8,columns=64", "--tuning",
                                     "never", "--seconds", "0", "--json"},
                                    all);
      EXPECT_EQ(run.exit_code, 0) << run;
      origins[i] = JsonOut(run)["resolution"].value("code_origin", "");
    });
    return origins;
  }

  const Tool tool_;
  std::string compiler_;
};

TEST_F(ProcessesTest, A05_A17_A18_A26_OneOfSixteenCompiles) {
  const std::vector<std::string> origins = Origins(16, {{"XDG_RUNTIME_DIR", tool_.Path("")}});
  EXPECT_EQ(Compiles(), 1);
  EXPECT_EQ(std::count(origins.begin(), origins.end(), "compiled"), 1);
  EXPECT_EQ(std::count(origins.begin(), origins.end(), "user cache"), 15);
}

TEST_F(ProcessesTest, A12_A16_WithoutLocksEveryOneGoesOn) {
  // No directory can be made below a file.
  const std::string file = tool_.Write("file", "");
  const std::vector<std::string> origins = Origins(4, {{"XDG_RUNTIME_DIR", file}});
  EXPECT_GE(Compiles(), 1);
  EXPECT_EQ(std::count(origins.begin(), origins.end(), ""), 0);
}

TEST_F(ProcessesTest, WithoutACacheOnDiskNobodyWaits) {
  Origins(4, {{"XDG_RUNTIME_DIR", tool_.Path("")}, {"WHET_CACHE_POLICY", "off"}});
  EXPECT_EQ(Compiles(), 4);
}

}  // namespace
}  // namespace whet::testing
