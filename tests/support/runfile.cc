#include "tests/support/runfile.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "gtest/gtest.h"

namespace whet {

std::string RunfilePath(absl::string_view path) {
  // Bazel starts tests in the root of their runfiles; benchmarks run by hand may be elsewhere.
  const char* root = std::getenv("TEST_SRCDIR");
  const std::string full =
      root != nullptr ? std::string(root) + "/whet/" + std::string(path) : std::string(path);
  return std::filesystem::absolute(full).string();
}

std::string ReadRunfile(absl::string_view path) {
  const std::string full = RunfilePath(path);
  std::ifstream file(full, std::ios::binary);
  EXPECT_TRUE(file.good()) << "cannot read " << full;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace whet
