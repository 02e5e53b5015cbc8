// A template of one's own: an operation that Whet has never heard of, specialised, tuned and cached like the built-in ones.
//
//   bazel run //examples:own_template
//
// y is read and written. Tuning runs on clones, so after the first call it has been updated exactly once.

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "whet/whet.hpp"

namespace {

std::string Read(const std::string& name) {
  std::ifstream file("examples/scale_add/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

int Fail(const whet::api::Status& status) {
  std::fprintf(stderr, "%s\n", status.message().c_str());
  return 1;
}

}  // namespace

int main() {
  using namespace whet::api;
  Runtime runtime;
  if (Status s = Runtime::Open({}, Platform::kCpu, 0, &runtime); !s.ok()) return Fail(s);

  const std::string texts[] = {Read("scale_add.json"), Read("blocks.json"), Read("blocks.cc")};
  const char* paths[] = {"scale_add/scale_add.json", "scale_add/blocks.json",
                         "scale_add/blocks.cc"};
  const char* contents[] = {texts[0].c_str(), texts[1].c_str(), texts[2].c_str()};
  const whet_template* scale_add = nullptr;
  if (Status s(whet_template_create(runtime.handle(), "scale_add", paths, contents, 3, &scale_add));
      !s.ok()) {
    return Fail(s);
  }

  std::vector<float> x(1000000, 2.0f), y(x.size(), 1.0f);
  Problem problem;
  if (Status s = Problem::Parse(runtime, "scale_add", "n=1000000", &problem); !s.ok())
    return Fail(s);
  float* x_data = x.data();
  float* y_data = y.data();
  float factor = 3.0f;
  if (Status s = problem.Launch(runtime, {&x_data, &y_data, &factor}, nullptr); !s.ok())
    return Fail(s);
  std::printf("y[0] = %g (3 * 2 + 1), y[n-1] = %g\n", y.front(), y.back());
  return y.front() == 7.0f && y.back() == 7.0f ? 0 : 1;
}
