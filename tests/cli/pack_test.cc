// whet pack as its users meet it: built on one machine, checked, shipped, used where there is no
// compiler; and refused, with the reason, when it is not what it should be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "src/base/files.h"
#include "tests/cli/json_out.h"
#include "tests/cli/tool.h"

namespace whet::testing {
namespace {

using ::testing::HasSubstr;

constexpr char kProblem[] = "rms_norm:dtype=f32,rows=8,columns=64";
using Environment = std::vector<std::pair<std::string, std::string>>;

// A machine without any compiler, whose cache holds nothing.
Environment BareNode(const Tool& tool, const std::string& packs) {
  return {{"PATH", "/none"},
          {"WHET_CACHE", tool.Path("node_cache")},
          {"WHET_CXX", "/none/cxx"},
          {"WHET_HIPRTC", "/none/hiprtc"},
          {"WHET_NVRTC", "/none/nvrtc"},
          {"WHET_AMDGPU_CLANG", "/none/clang"},
          {"WHET_PACKS", packs}};
}

std::vector<std::string> RunLine() {
  return {"run", kProblem, "--cache-policy", "offline", "--seconds", "0", "--json"};
}

class PackTest : public ::testing::Test {
 protected:
  std::string Bytes(const std::string& path) { return *ReadFile(path, 64 << 20); }

  std::string Build(const std::string& name, const std::vector<std::string>& more = {}) {
    std::vector<std::string> line = {"pack", "-p", kProblem, "-t", "host", "-o", tool_.Path(name)};
    line.insert(line.end(), more.begin(), more.end());
    const ToolRun run = tool_.Run(line);
    EXPECT_EQ(run.exit_code, 0) << run;
    return tool_.Path(name);
  }

  // "<name>" and "<name>.pub".
  std::string Keys(const std::string& name) {
    const ToolRun run = tool_.Run({"pack", "keygen", tool_.Path(name)});
    EXPECT_EQ(run.exit_code, 0) << run;
    return tool_.Path(name);
  }

  const Tool tool_;
};

TEST_F(PackTest, A73_TheSameProblemsAndCompilersGiveTheSameBytes) {
  const std::string list = tool_.Write("list.jsonl", R"(# two problems, one of them twice
{"operation": "rms_norm", "dtype": "f32", "rows": 8, "columns": 64}
{"problem": "rms_norm:dtype=f32,rows=8,columns=64"}
{"problem": "rms_norm:dtype=f32,rows=8,columns=32"}
)");
  const ToolRun first = tool_.Run(
      {"pack", "--problems", list, "-t", "host", "-o", tool_.Path("a.whetpack"), "--json"});
  ASSERT_EQ(first.exit_code, 0) << first;
  EXPECT_EQ(JsonOut(first)["problems"], 2) << first;
  EXPECT_EQ(JsonOut(first)["code"], 2) << first;
  EXPECT_EQ(JsonOut(first)["targets"][0]["was_cached"], 0) << first;
  // From nothing again, in another order and place: nothing of that may be in the bytes.
  const ToolRun anew = tool_.Run({"pack", "-p", "rms_norm:dtype=f32,rows=8,columns=32", "-p",
                                  kProblem, "-t", "host", "-o", tool_.Path("b.whetpack")},
                                 {{"WHET_CACHE", tool_.Path("other_cache")}});
  ASSERT_EQ(anew.exit_code, 0) << anew;
  EXPECT_EQ(Bytes(tool_.Path("a.whetpack")), Bytes(tool_.Path("b.whetpack")));
  // What was compiled is not compiled again: an interrupted build goes on.
  const ToolRun again = tool_.Run(
      {"pack", "--problems", list, "-t", "host", "-o", tool_.Path("c.whetpack"), "--json"});
  EXPECT_EQ(JsonOut(again)["targets"][0]["was_cached"], 2) << again;
  EXPECT_EQ(Bytes(tool_.Path("a.whetpack")), Bytes(tool_.Path("c.whetpack")));
}

TEST_F(PackTest, TheManifestNamesContentsToolchainsTargetsAndTemplates) {
  const std::string pack = Build("a.whetpack");
  const ToolRun show = tool_.Run({"pack", "show", pack, "--json"});
  ASSERT_EQ(show.exit_code, 0) << show;
  const nlohmann::json manifest = JsonOut(show)["manifest"];
  EXPECT_EQ(manifest["format"], "whet pack 1");
  EXPECT_EQ(manifest["contents"]["code"], 1);
  EXPECT_THAT(manifest["targets"][0].get<std::string>(), HasSubstr("x86-64"));
  EXPECT_THAT(manifest["toolchains"][0].get<std::string>(), HasSubstr("hostcxx"));
  EXPECT_EQ(manifest["templates"]["rms_norm/cpu"].get<std::string>().size(), 32u);
  EXPECT_THAT(tool_.Run({"pack", "show", pack}).out, HasSubstr("not signed"));
}

TEST_F(PackTest, VariantsAreTheDefaultAFewOrAll) {
  const auto count = [&](const std::string& variants) {
    const ToolRun run = tool_.Run({"pack", "-p", kProblem, "-t", "host", "-o", tool_.Path("v"),
                                   "--variants", variants, "--json"});
    EXPECT_EQ(run.exit_code, 0) << run;
    return JsonOut(run)["code"].get<int>();
  };
  EXPECT_EQ(count("default"), 1);
  EXPECT_EQ(count("2"), 2);
  EXPECT_GT(count("all"), 2);
}

TEST_F(PackTest, A74_A75_A80_ANodeWithoutCompilersRunsFromThePack) {
  const std::string pack = Build("a.whetpack");
  const ToolRun run = tool_.Run(RunLine(), BareNode(tool_, pack));
  ASSERT_EQ(run.exit_code, 0) << run;
  EXPECT_EQ(JsonOut(run)["resolution"]["code_origin"], "pack") << run;
  EXPECT_EQ(run.err, "");
  // A directory of packs serves as well.
  ASSERT_TRUE(MakeDirectories(tool_.Path("packs")).ok());
  tool_.Write("packs/x.whetpack", Bytes(pack));
  EXPECT_EQ(tool_.Run(RunLine(), BareNode(tool_, tool_.Path("packs"))).exit_code, 0);
  // Without it: an error that names the key.
  const ToolRun without = tool_.Run(RunLine(), BareNode(tool_, ""));
  EXPECT_EQ(without.exit_code, 4) << without;
  EXPECT_THAT(without.err, HasSubstr("request key"));
  EXPECT_THAT(without.err, HasSubstr("offline"));
}

TEST_F(PackTest, OnlyPacksOfTrustedSignersAreUsed) {
  const std::string key = Keys("k");
  const std::string other = Keys("other");
  const std::string pack = Build("a.whetpack");
  const std::string trusted = key + ".pub";
  // Unsigned.
  ToolRun verify = tool_.Run({"pack", "verify", pack, "--trusted-keys", trusted});
  EXPECT_EQ(verify.exit_code, 3) << verify;
  EXPECT_THAT(verify.err, HasSubstr("it is not signed"));
  Environment node = BareNode(tool_, pack);
  node.emplace_back("WHET_TRUSTED_KEYS", trusted);
  ToolRun run = tool_.Run(RunLine(), node);
  EXPECT_EQ(run.exit_code, 4) << run;
  EXPECT_THAT(run.err, HasSubstr("cannot trust pack"));
  // Signed by somebody else.
  ASSERT_EQ(tool_.Run({"pack", "sign", pack, "--key", other}).exit_code, 0);
  verify = tool_.Run({"pack", "verify", pack, "--trusted-keys", trusted});
  EXPECT_EQ(verify.exit_code, 3) << verify;
  EXPECT_THAT(verify.err, HasSubstr("which is not among the trusted keys"));
  // Signed by who is trusted; signing again replaces, and is the same as signing at once.
  ASSERT_EQ(tool_.Run({"pack", "sign", pack, "--key", key}).exit_code, 0);
  verify = tool_.Run({"pack", "verify", pack, "--trusted-keys", trusted + "," + other + ".pub"});
  EXPECT_EQ(verify.exit_code, 0) << verify;
  EXPECT_EQ(Bytes(pack), Bytes(Build("b.whetpack", {"--sign", key})));
  EXPECT_EQ(tool_.Run(RunLine(), node).exit_code, 0);
  // Then it may belong to anyone and be writable by anyone.
  ASSERT_EQ(chmod(pack.c_str(), 0666), 0);
  EXPECT_EQ(tool_.Run(RunLine(), node).exit_code, 0);
  const ToolRun open_to_all = tool_.Run(RunLine(), BareNode(tool_, pack));
  EXPECT_EQ(open_to_all.exit_code, 4) << open_to_all;
  EXPECT_THAT(open_to_all.err, HasSubstr("others may write it"));
}

TEST_F(PackTest, OneFlippedByteIsFound) {
  const std::string key = Keys("k");
  const std::string bytes = Bytes(Build("a.whetpack", {"--sign", key}));
  for (const size_t part : {0, 1, 2, 5, 8, 9, 10}) {
    std::string bad = bytes;
    const size_t at = part == 10 ? bad.size() - 1 : bad.size() * part / 10;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    const std::string path = tool_.Write("bad.whetpack", bad);
    const ToolRun verify = tool_.Run({"pack", "verify", path, "--trusted-keys", key + ".pub"});
    EXPECT_EQ(verify.exit_code, 3) << "byte " << at << "\n" << verify;
    // Nor may it be signed as if nothing had happened.
    const ToolRun sign = tool_.Run({"pack", "sign", path, "--key", key});
    EXPECT_EQ(sign.exit_code, 3) << "byte " << at << "\n" << sign;
    EXPECT_EQ(Bytes(path), bad);
  }
  for (const size_t size : {size_t{0}, size_t{100}, bytes.size() / 2, bytes.size() - 1}) {
    const std::string path = tool_.Write("short.whetpack", bytes.substr(0, size));
    EXPECT_EQ(tool_.Run({"pack", "verify", path}).exit_code, 3) << size;
  }
}

TEST_F(PackTest, WhatCannotBeCompiledIsSaidAndNothingIsWritten) {
  const std::vector<std::string> line = {
      "pack", "-p", kProblem, "-t", "host,gfx942", "-o", tool_.Path("a.whetpack")};
  const Environment no_gpu_compiler = {{"WHET_HIPRTC", "/none"}, {"WHET_AMDGPU_CLANG", "/none"}};
  const ToolRun refused = tool_.Run(line, no_gpu_compiler);
  EXPECT_EQ(refused.exit_code, 4) << refused;
  EXPECT_THAT(refused.err, HasSubstr("no pack was written"));
  EXPECT_THAT(refused.err, HasSubstr("gfx942"));
  EXPECT_FALSE(IsRegularFile(tool_.Path("a.whetpack")));
  std::vector<std::string> anyway = line;
  anyway.emplace_back("--keep-going");
  anyway.emplace_back("--json");
  const ToolRun written = tool_.Run(anyway, no_gpu_compiler);
  EXPECT_EQ(written.exit_code, 4) << written;
  EXPECT_EQ(JsonOut(written)["code"], 1) << written;
  EXPECT_EQ(JsonOut(written)["missing"].size(), 1u) << written;
  EXPECT_EQ(tool_.Run({"pack", "verify", tool_.Path("a.whetpack")}).exit_code, 0);
}

TEST_F(PackTest, BadInputIsOneLine) {
  const std::string key = Keys("k");
  ASSERT_TRUE(MakeDirectories(tool_.Path("directory")).ok());
  const std::string text = tool_.Write("text", "no pack\n");
  const std::string list = tool_.Write("list.jsonl", "{\"operation\": \"rms_norm\"}\nnonsense\n");
  const struct {
    std::vector<std::string> line;
    std::string message;
  } cases[] = {
      {{"pack", "verify", tool_.Path("none.whetpack")}, "none.whetpack"},
      {{"pack", "show", text}, "it is no pack"},
      {{"pack", "show", tool_.Path("directory")}, "directory"},
      {{"pack", "sign", text, "--key", key}, "it is no pack"},
      {{"pack", "sign", text, "--key", tool_.Path("none")}, "none"},
      {{"pack", "sign", text, "--key", key + ".pub"}, "cannot use"},
      {{"pack", "keygen", key}, "a file of that name already"},
      {{"pack", "verify", text, "--trusted-keys", "abc"}, "abc"},
      {{"pack", "--problems", list, "-t", "host", "-o", tool_.Path("x")}, "list.jsonl:2"},
      {{"pack", "-p", "nothing:a=1", "-t", "host", "-o", tool_.Path("x")}, "nothing"},
      {{"pack", "-p", kProblem, "-t", "frob", "-o", tool_.Path("x")}, "frob"},
      {{"pack", "-p", kProblem, "-t", "host", "-o", tool_.Path("x"), "--sign", "none"}, "none"},
      {{"pack", "-p", kProblem, "-t", "host", "-o", tool_.Path("none/x")}, "none/x"},
      {{"pack", "-p", kProblem, "-t", "host", "-o", tool_.Path("directory")}, "directory"},
  };
  for (const auto& c : cases) {
    const ToolRun run = tool_.Run(c.line);
    EXPECT_EQ(run.exit_code, 3) << run;
    EXPECT_THAT(run.err, HasSubstr(c.message)) << run;
    EXPECT_THAT(run.err, HasSubstr("whet: error: ")) << run;
  }
  struct stat info;
  ASSERT_EQ(stat(key.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

}  // namespace
}  // namespace whet::testing
