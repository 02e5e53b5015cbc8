// Files that a test is given by the build.
//
//   std::string object = ReadRunfile("tests/support/kernels/libtest_kernels.so");
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace whet {

// The absolute path of such a file, for what must be opened by name.
std::string RunfilePath(absl::string_view path);

// The content of a file of the repository that is in the test's `data`; empty, with a test failure,
// when it cannot be read.
std::string ReadRunfile(absl::string_view path);

}  // namespace whet
