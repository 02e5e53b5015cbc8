#include "src/runtime/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

namespace whet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Environment Fake(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](absl::string_view name) -> std::optional<std::string> {
    const auto it = variables.find(std::string(name));
    if (it == variables.end()) return std::nullopt;
    return it->second;
  };
}

TEST(OptionsTest, CacheDirectoryFollowsTheDocumentedOrder) {
  struct Case {
    std::map<std::string, std::string> variables;
    const char* directory;
  };
  const Case cases[] = {
      {{{"WHET_CACHE", "/a"}, {"XDG_CACHE_HOME", "/b"}, {"HOME", "/c"}}, "/a"},
      {{{"XDG_CACHE_HOME", "/b"}, {"HOME", "/c"}}, "/b/whet"},
      {{{"HOME", "/c"}}, "/c/.cache/whet"},
      // A container's user without a home must not end up in /.cache (A65).
      {{{"HOME", "/"}, {"XDG_RUNTIME_DIR", "/r"}}, "/r/whet"},
      {{{"HOME", ""}, {"XDG_RUNTIME_DIR", "/r"}}, "/r/whet"},
      {{{"WHET_CACHE", ""}, {"HOME", "/c"}}, "/c/.cache/whet"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(DefaultCacheDirectory(Fake(c.variables)), c.directory);
  }
}

TEST(OptionsTest, EveryVariableArrives) {
  const auto options = OptionsFromEnvironment(Fake({
      {"WHET_CACHE", "/cache"},
      {"WHET_CACHE_POLICY", "offline"},
      {"WHET_PACKS", "/p1.whet::/p2.whet"},
      {"WHET_TUNING", "never"},
      {"WHET_TUNING_BUDGET", "2.5"},
      {"WHET_ONLINE_SHARE", "0.25"},
      {"WHET_ONLINE_SLOWDOWN", "0.01"},
      {"WHET_DRIFT", "off"},
      {"WHET_CPU_THREADS", "3"},
      {"WHET_CXX", "g++"},
      {"WHET_HIPRTC", "/h"},
      {"WHET_NVRTC", "/n"},
      {"WHET_AMDGPU_CLANG", "/c"},
      {"WHET_COMPILE_HELPER", "/x"},
      {"WHET_TEMPLATES", "/t1:/t2"},
  }));
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->cache_directory, "/cache");
  EXPECT_EQ(options->cache_policy, CachePolicy::kOffline);
  EXPECT_THAT(options->packs, ElementsAre("/p1.whet", "/p2.whet"));
  EXPECT_EQ(options->tuning, TuningMode::kNever);
  EXPECT_EQ(options->tuning_policy.budget, absl::Milliseconds(2500));
  EXPECT_EQ(options->online.share, 0.25);
  EXPECT_EQ(options->online.slowdown, 0.01);
  EXPECT_EQ(options->drift, false);
  EXPECT_EQ(options->device.cpu_threads, 3);
  EXPECT_EQ(options->toolchains.host_compiler, "g++");
  EXPECT_EQ(options->toolchains.hiprtc_library, "/h");
  EXPECT_EQ(options->toolchains.nvrtc_library, "/n");
  EXPECT_EQ(options->toolchains.amdgpu_clang, "/c");
  EXPECT_EQ(options->toolchains.helper_program, "/x");
  EXPECT_THAT(options->template_directories, ElementsAre("/t1", "/t2"));
}

TEST(OptionsTest, BadValuesNameTheVariableAndWhatIsAccepted) {
  const std::pair<std::string, std::string> cases[] = {
      {"WHET_CACHE_POLICY", "sometimes"}, {"WHET_TUNING", "maybe"},
      {"WHET_TUNING_BUDGET", "-1"},       {"WHET_TUNING_BUDGET", "nan"},
      {"WHET_ONLINE_SHARE", "0"},         {"WHET_ONLINE_SHARE", "1.5"},
      {"WHET_ONLINE_SLOWDOWN", "nan"},    {"WHET_DRIFT", "maybe"},
      {"WHET_TUNING_BUDGET", "soon"},     {"WHET_CPU_THREADS", "0"},
      {"WHET_CPU_THREADS", "two"},        {"WHET_CPU_THREADS", "99999999999"},
  };
  for (const auto& [name, value] : cases) {
    const auto options = OptionsFromEnvironment(Fake({{name, value}}));
    EXPECT_TRUE(absl::IsInvalidArgument(options.status())) << name << "=" << value;
    EXPECT_THAT(std::string(options.status().message()), HasSubstr(name));
    EXPECT_THAT(std::string(options.status().message()), HasSubstr(value));
  }
}

TEST(OptionsTest, NamesAndValuesAreInverse) {
  for (const char* name : {"off", "read-only", "read-write", "offline", "verify"}) {
    EXPECT_EQ(CachePolicyName(*ParseCachePolicy(name)), name);
  }
  for (const char* name : {"blocking", "online", "never", "offline", "deterministic"})
    EXPECT_EQ(TuningModeName(*ParseTuningMode(name)), name);
}

}  // namespace
}  // namespace whet
