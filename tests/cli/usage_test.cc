// The command line itself: help, wrong usage, and what every verb prints as JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/cli/json_out.h"
#include "tests/cli/tool.h"

namespace whet::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(UsageTest, HelpIsThereForEveryVerb) {
  const Tool tool;
  const ToolRun help = tool.Run({"--help"});
  EXPECT_EQ(help.exit_code, 0) << help;
  for (const char* verb : {"run", "tune", "compile", "pack", "cache", "doctor", "templates"}) {
    EXPECT_THAT(help.out, HasSubstr(verb));
    const ToolRun verb_help = tool.Run({verb, "--help"});
    EXPECT_EQ(verb_help.exit_code, 0) << verb_help;
    EXPECT_THAT(verb_help.out, HasSubstr("Usage")) << verb;
    EXPECT_EQ(verb_help.err, "") << verb;
  }
  EXPECT_THAT(tool.Run({"--version"}).out, StartsWith("whet "));
}

TEST(UsageTest, AWrongCommandLineIsOneLineAndStatusTwo) {
  const Tool tool;
  const std::vector<std::vector<std::string>> lines = {
      {},
      {"frobnicate"},
      {"run"},
      {"run", "rms_norm", "--no-such-option"},
      {"run", "rms_norm", "--seconds", "many"},
      {"run", "rms_norm", "--seconds", "-1"},
      {"run", "rms_norm", "--layout", "dhsb"},
      {"run", "rms_norm", "--threads", "0"},
      {"run", "rms_norm", "-p", "rows=1", "-p", "rows=2"},
      {"compile", "rms_norm"},
      {"pack"},
      {"pack", "-p", "rms_norm", "-t", "host"},
      {"pack", "-p", "rms_norm", "-o", "x.whetpack"},
      {"pack", "-p", "rms_norm", "-t", "host", "-o", "x.whetpack", "--variants", "some"},
      {"pack", "sign", "x.whetpack"},
      {"cache"},
      {"cache", "burn"},
  };
  for (const std::vector<std::string>& line : lines) {
    const ToolRun run = tool.Run(line);
    EXPECT_EQ(run.exit_code, 2) << run;
    EXPECT_THAT(run.err, StartsWith("whet: error: ")) << run;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run;
    EXPECT_EQ(run.out, "") << run;
  }
}

TEST(UsageTest, ErrorsAreJsonToo) {
  const Tool tool;
  for (const std::vector<std::string>& line : {std::vector<std::string>{"--json", "frobnicate"},
                                               {"run", "no_such_operation", "--json"},
                                               {"compile", "--json", "--target", "gfx9000"}}) {
    const ToolRun run = tool.Run(line);
    const nlohmann::json json = JsonOut(run);
    ASSERT_TRUE(json.contains("error")) << run;
    EXPECT_EQ(json["error"]["exit_code"], run.exit_code) << run;
    EXPECT_NE(json["error"]["message"], "") << run;
  }
}

TEST(UsageTest, DoctorSaysWhatWasFoundAndWhyNot) {
  const Tool tool;
  const ToolRun run = tool.Run({"doctor", "--json"}, {{"WHET_NVRTC", "/none/libnvrtc.so"},
                                                      {"WHET_PACKS", "/none/a.whetpack"}});
  EXPECT_EQ(run.exit_code, 0) << run;
  const nlohmann::json json = JsonOut(run);
  EXPECT_EQ(json["cache"]["directory"], tool.cache());
  EXPECT_EQ(json["cache"]["exists"], false);
  EXPECT_EQ(json["packs"][0]["found"], false);
  EXPECT_EQ(json["environment"]["WHET_NVRTC"], "/none/libnvrtc.so");
  bool nvrtc_missing = false;
  for (const nlohmann::json& compiler : json["compilers"]) {
    if (compiler["compiler"] == "nvrtc") {
      nvrtc_missing = compiler["found"] == false && compiler["reason"] != "";
    }
  }
  EXPECT_TRUE(nvrtc_missing) << run;
  EXPECT_EQ(json["devices"][0]["platform"], "cpu");
  const ToolRun text = tool.Run({"doctor"});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out, HasSubstr("hostcxx"));
}

TEST(UsageTest, DoctorWorksWithNothingAtAll) {
  const Tool tool;
  const ToolRun run = tool.Run({"doctor", "--json"}, {{"PATH", "/none"},
                                                      {"HOME", ""},
                                                      {"WHET_CACHE", ""},
                                                      {"WHET_CXX", "/none/cxx"},
                                                      {"WHET_HIPRTC", "/none/hiprtc"},
                                                      {"WHET_NVRTC", "/none/nvrtc"},
                                                      {"WHET_AMDGPU_CLANG", "/none/clang"},
                                                      {"WHET_TEMPLATES", "/none/templates"}});
  EXPECT_EQ(run.exit_code, 0) << run;
  const nlohmann::json json = JsonOut(run);
  for (const nlohmann::json& compiler : json["compilers"]) {
    EXPECT_EQ(compiler["found"], false) << compiler;
    EXPECT_NE(compiler["reason"], "") << compiler;
  }
}

TEST(UsageTest, TemplatesListFieldsAndAnExample) {
  const Tool tool;
  const nlohmann::json all = JsonOut(tool.Run({"templates", "--json"}));
  EXPECT_GE(all["templates"].size(), 2u);
  const ToolRun one = tool.Run({"templates", "rms_norm"});
  EXPECT_EQ(one.exit_code, 0) << one;
  EXPECT_THAT(one.out, HasSubstr("columns"));
  EXPECT_THAT(one.out, HasSubstr("example: rms_norm:dtype=bf16"));
  EXPECT_EQ(tool.Run({"templates", "nothing"}).exit_code, 3);
}

}  // namespace
}  // namespace whet::testing
