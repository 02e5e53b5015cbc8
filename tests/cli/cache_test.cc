// whet cache through the real tool: every verb, without a compiler or a GPU; and the cache policies,
// each by its option and by its variable.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/base/files.h"
#include "tests/cli/json_out.h"
#include "tests/cli/tool.h"

namespace whet::testing {
namespace {

using ::testing::HasSubstr;

constexpr char kProblem[] = "rms_norm:dtype=f32,rows=8,columns=64";
constexpr char kOther[] = "rms_norm:dtype=f32,rows=8,columns=32";
using Environment = std::vector<std::pair<std::string, std::string>>;

const Environment kNoCompiler = {{"PATH", "/none"},
                                 {"WHET_CXX", "/none/cxx"},
                                 {"WHET_HIPRTC", "/none/hiprtc"},
                                 {"WHET_NVRTC", "/none/nvrtc"},
                                 {"WHET_AMDGPU_CLANG", "/none/clang"}};

class CacheTest : public ::testing::Test {
 protected:
  ToolRun Run(std::vector<std::string> line, Environment more = {}) {
    more.insert(more.end(), kNoCompiler.begin(), kNoCompiler.end());
    return tool_.Run(line, more);
  }

  nlohmann::json Json(std::vector<std::string> line, const Environment& more = {}) {
    line.emplace_back("--json");
    const ToolRun run = Run(line, more);
    EXPECT_EQ(run.exit_code, 0) << run;
    return JsonOut(run);
  }

  // The default variant of a problem, compiled into the cache in `directory`.
  void Fill(const std::string& problem, const std::string& directory) {
    const ToolRun run =
        tool_.Run({"compile", problem, "-t", "host", "--default-only", "--cache", directory});
    ASSERT_EQ(run.exit_code, 0) << run;
  }

  // A problem run so that nothing but its code is looked at.
  std::vector<std::string> Launch(const std::vector<std::string>& more = {}) {
    std::vector<std::string> line = {"run",      kProblem, "--seconds", "0",
                                     "--tuning", "never",  "--json"};
    line.insert(line.end(), more.begin(), more.end());
    return line;
  }

  std::string Origin(const ToolRun& run) {
    EXPECT_EQ(run.exit_code, 0) << run;
    return JsonOut(run)["resolution"].value("code_origin", "");
  }

  int CodeIn(const std::string& directory) {
    return static_cast<int>(Json({"cache", "ls", "--cache", directory})["code"].size());
  }

  const Tool tool_;
};

TEST_F(CacheTest, AnAbsentCacheIsEmptyAndStaysAbsent) {
  EXPECT_EQ(Json({"cache", "ls"})["code"].size(), 0u);
  EXPECT_EQ(Json({"cache", "stats"})["layers"].size(), 0u);
  EXPECT_FALSE(IsDirectory(tool_.cache()));
}

TEST_F(CacheTest, EntriesAreListedShownAndCounted) {
  Fill(kProblem, tool_.cache());
  Fill(kOther, tool_.cache());
  const nlohmann::json ls = Json({"cache", "ls"});
  ASSERT_EQ(ls["code"].size(), 2u);
  EXPECT_EQ(Json({"cache", "ls", "--match", "columns=32"})["code"].size(), 1u);
  const std::string hash = ls["code"][0]["key_hash"];
  const std::string object = tool_.Path("object.so");
  const nlohmann::json show = Json({"cache", "show", hash.substr(0, 12), "--object", object});
  EXPECT_EQ(show["code"][0]["key"]["template"], "rms_norm");
  EXPECT_THAT(ReadFile(object, 64 << 20).value(), HasSubstr("ELF"));
  const nlohmann::json stats = Json({"cache", "stats"});
  EXPECT_EQ(stats["layers"][0]["code"], 2);
  EXPECT_EQ(stats["limit_bytes"], int64_t{2} << 30);
  EXPECT_EQ(Json({"cache", "stats"}, {{"WHET_CACHE_SIZE", "500M"}})["limit_bytes"], 500 << 20);
  EXPECT_EQ(Run({"cache", "show", "0123456789ab"}).exit_code, 3);
  EXPECT_EQ(Run({"cache", "show", "xyz"}).exit_code, 3);
  EXPECT_THAT(Run({"cache", "show", hash.substr(0, 12)}).out, HasSubstr("rms_norm"));
}

TEST_F(CacheTest, WhyMissNamesTheFieldThatDiffers) {
  Fill(kProblem, tool_.cache());
  EXPECT_EQ(Json({"cache", "why-miss", kProblem})["there"], true);
  const nlohmann::json miss = Json({"cache", "why-miss", kOther});
  EXPECT_EQ(miss["there"], false);
  // Its shape is in the source as well, as constants.
  std::vector<std::string> fields;
  for (const nlohmann::json& d : miss["nearest"][0]["differences"]) fields.push_back(d["field"]);
  EXPECT_THAT(fields, ::testing::IsSupersetOf({"problem", "source"}));
  const nlohmann::json gpu = Json({"cache", "why-miss", kProblem, "--target", "gfx942"});
  EXPECT_EQ(gpu["there"], false);
  EXPECT_EQ(gpu["key"]["target"], "gfx942");
  EXPECT_EQ(Json({"cache", "why-miss", kProblem, "--winner"})["nearest"].size(), 0u);
  EXPECT_EQ(Run({"cache", "why-miss", "rms_norm:colour=1"}).exit_code, 3);
}

TEST_F(CacheTest, AWinnerIsFoundUnderTheKeyThatWhyMissAsksFor) {
  const ToolRun tune = tool_.Run({"tune", kProblem, "--budget", "2"});
  ASSERT_EQ(tune.exit_code, 0) << tune;
  EXPECT_EQ(Json({"cache", "why-miss", kProblem, "--winner"})["there"], true);
  const nlohmann::json other = Json({"cache", "why-miss", kOther, "--winner"});
  EXPECT_EQ(other["there"], false);
  EXPECT_EQ(other["nearest"][0]["differences"][0]["field"], "problem") << other;
  // And a pack takes it along with its code, so that another node needs neither.
  const std::string pack = tool_.Path("tuned.whetpack");
  const nlohmann::json exported = Json({"cache", "export", "-o", pack, "--winning"});
  EXPECT_EQ(exported["winners"], 1);
  EXPECT_GE(exported["code"], 1);
  const ToolRun run =
      Run({"run", kProblem, "--seconds", "0", "--cache-policy", "offline", "--json"},
          {{"WHET_CACHE", tool_.Path("node")}, {"WHET_PACKS", pack}});
  ASSERT_EQ(run.exit_code, 0) << run;
  EXPECT_EQ(JsonOut(run)["resolution"]["variant_origin"], "pack") << run;
  EXPECT_EQ(JsonOut(run)["resolution"]["code_origin"], "pack") << run;
}

TEST_F(CacheTest, CachesAreMergedComparedExportedAndImported) {
  const std::string a = tool_.Path("a"), b = tool_.Path("b"), pack = tool_.Path("p.whetpack");
  Fill(kProblem, a);
  Fill(kOther, b);
  EXPECT_EQ(Json({"cache", "diff", a, b})["same"], false);
  EXPECT_EQ(Run({"cache", "diff", a, b, "--exit-code"}).exit_code, 1);
  const nlohmann::json merged = Json({"cache", "merge", a, b});
  EXPECT_EQ(merged["code_added"], 2);
  EXPECT_EQ(Json({"cache", "merge", b, a})["code_added"], 0);
  EXPECT_EQ(Json({"cache", "export", "-o", pack})["code"], 2);
  EXPECT_EQ(Json({"cache", "diff", tool_.cache(), pack})["same"], true);
  EXPECT_EQ(Json({"cache", "import", pack, "--cache", tool_.Path("c")})["code_added"], 2);
  EXPECT_EQ(Json({"cache", "diff", tool_.Path("c"), tool_.cache(), "--exit-code"})["same"], true);
  EXPECT_EQ(Json({"cache", "export", "-o", pack, "--target", "gfx*"})["code"], 0);
  EXPECT_EQ(Json({"cache", "ls", "--in", pack})["code"].size(), 0u);
}

TEST_F(CacheTest, VerifyFindsDamageAndAMergeSavesTheRest) {
  Fill(kProblem, tool_.cache());
  Fill(kOther, tool_.cache());
  EXPECT_EQ(Json({"cache", "verify"})["intact"], 2);
  const std::string file = JoinPath(tool_.cache(), "cache.db");
  std::string bytes = *ReadFile(file, 64 << 20);
  // An object's own bytes: nothing else of the file.
  const size_t frame = bytes.rfind("\x28\xb5\x2f\xfd");
  ASSERT_NE(frame, std::string::npos);
  bytes[frame + 200] = static_cast<char>(bytes[frame + 200] ^ 1);
  tool_.Write("cache/cache.db", bytes);
  const ToolRun look = Run({"cache", "verify", "--in", tool_.cache(), "--json"});
  EXPECT_EQ(look.exit_code, 1) << look;
  EXPECT_EQ(JsonOut(look)["damaged"], 1) << look;
  const ToolRun merge = Run({"cache", "merge", tool_.cache(), "--cache", tool_.Path("saved")});
  EXPECT_EQ(merge.exit_code, 1) << merge;
  EXPECT_EQ(CodeIn(tool_.Path("saved")), 1);
  const ToolRun drop = Run({"cache", "verify", "--json"});
  EXPECT_EQ(drop.exit_code, 1) << drop;
  EXPECT_EQ(Json({"cache", "verify"})["intact"], 1);
  EXPECT_EQ(Json({"cache", "stats"})["layers"][0]["dropped"].size(), 1u);
}

TEST_F(CacheTest, PruneRemovesWhatItIsTold) {
  Fill(kProblem, tool_.cache());
  Fill(kOther, tool_.cache());
  EXPECT_EQ(Json({"cache", "prune", "--unused-for", "1d"})["code"], 2);
  EXPECT_EQ(Json({"cache", "prune", "--older-generations"})["code"], 2);
  EXPECT_EQ(Json({"cache", "prune", "--max-size", "1k"})["code"], 0);
  Fill(kProblem, tool_.cache());
  EXPECT_EQ(Json({"cache", "prune", "--all"})["removed_code"], 1);
  EXPECT_EQ(Run({"cache", "prune"}).exit_code, 2);
  EXPECT_EQ(Run({"cache", "prune", "--unused-for", "soon"}).exit_code, 3);
  EXPECT_EQ(Run({"cache", "prune", "--max-size", "-1"}).exit_code, 3);
}

TEST_F(CacheTest, BadSourcesAreOneLineAndStatusThree) {
  const std::string text = tool_.Write("text", std::string(5000, 'x'));
  ASSERT_TRUE(MakeDirectories(tool_.Path("empty")).ok());
  for (const std::vector<std::string>& line : std::vector<std::vector<std::string>>{
           {"cache", "ls", "--in", tool_.Path("none")},
           {"cache", "ls", "--in", tool_.Path("empty")},
           {"cache", "ls", "--in", text},
           {"cache", "merge", text},
           {"cache", "diff", text, tool_.Path("none")},
           {"cache", "export", "-o", tool_.Path("x.whetpack")},
           {"cache", "verify", "--cache-policy", "read-only"},
           {"cache", "prune", "--all", "--cache-policy", "offline"},
           {"cache", "ls", "--cache-policy", "sometimes"}}) {
    const ToolRun run = Run(line);
    EXPECT_EQ(run.exit_code, 3) << run;
    EXPECT_THAT(run.err, HasSubstr("whet: error: ")) << run;
  }
  EXPECT_EQ(*ReadFile(text, 1 << 20), std::string(5000, 'x'));
}

// Each policy, by the option in one round and by the variable in the other.
class PolicyTest : public CacheTest, public ::testing::WithParamInterface<bool> {
 protected:
  ToolRun Launched(const std::string& policy, const Environment& more = {}) {
    Environment environment = more;
    if (!GetParam()) {
      environment.emplace_back("WHET_CACHE_POLICY", policy);
      return tool_.Run(Launch(), environment);
    }
    return tool_.Run(Launch({"--cache-policy", policy}), environment);
  }
};

TEST_P(PolicyTest, ReadWriteKeepsWhatItMakes) {
  EXPECT_EQ(Origin(Launched("read-write")), "compiled");
  EXPECT_EQ(Origin(Launched("read-write")), "user cache");
}

TEST_P(PolicyTest, OffTouchesNoDisk) {
  EXPECT_EQ(Origin(Launched("off")), "compiled");
  EXPECT_FALSE(IsDirectory(tool_.cache()));
  Fill(kProblem, tool_.cache());
  EXPECT_EQ(Origin(Launched("off")), "compiled");
}

TEST_P(PolicyTest, ReadOnlyReadsAndWritesNothing) {
  EXPECT_EQ(Origin(Launched("read-only")), "compiled");
  EXPECT_FALSE(IsDirectory(tool_.cache()));
  Fill(kProblem, tool_.cache());
  const std::string before = *ReadFile(JoinPath(tool_.cache(), "cache.db"), 64 << 20);
  EXPECT_EQ(Origin(Launched("read-only")), "user cache");
  EXPECT_EQ(*ReadFile(JoinPath(tool_.cache(), "cache.db"), 64 << 20), before);
}

TEST_P(PolicyTest, OfflineMakesAMissAnErrorThatNamesTheKey) {
  const ToolRun miss = Launched("offline");
  EXPECT_EQ(miss.exit_code, 4) << miss;
  EXPECT_THAT(miss.err, HasSubstr("request key"));
  EXPECT_THAT(miss.err, HasSubstr("columns=64"));
  // Though compilers are there.
  Fill(kProblem, tool_.cache());
  EXPECT_EQ(Origin(Launched("offline")), "user cache");
}

TEST_P(PolicyTest, VerifyCompilesAgain) {
  Fill(kProblem, tool_.cache());
  EXPECT_EQ(Origin(Launched("verify")), "compiled");
  const ToolRun same = Launched("verify");
  EXPECT_EQ(same.err.find("differs"), std::string::npos) << same;
  EXPECT_EQ(CodeIn(tool_.cache()), 1);
}

INSTANTIATE_TEST_SUITE_P(ByOptionAndByVariable, PolicyTest, ::testing::Bool());

TEST_F(CacheTest, A64_A65_AnUnusableDirectoryIsOneWarningAndARightResult) {
  const std::string file = tool_.Write("file", "");
  const ToolRun run = tool_.Run(Launch({"--cache", JoinPath(file, "cache")}));
  EXPECT_EQ(Origin(run), "compiled");
  EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run;
  EXPECT_THAT(run.err, HasSubstr("whet: warning: "));
}

TEST_F(CacheTest, A67_ADirectoryThatOthersCanWriteIsNotUsed) {
  Fill(kProblem, tool_.cache());
  ASSERT_EQ(chmod(tool_.cache().c_str(), 0777), 0);
  const ToolRun run = tool_.Run(Launch());
  EXPECT_EQ(Origin(run), "compiled");
  EXPECT_THAT(run.err, HasSubstr("whet: warning: "));
}

}  // namespace
}  // namespace whet::testing
