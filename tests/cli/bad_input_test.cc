// Whatever is wrong with what the tool is given ends in one line that says what, where and what to
// do, and in a documented exit status; whatever is wrong with the cache ends in a warning and a right
// result.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/base/files.h"
#include "src/ops/npy.h"
#include "tests/cli/json_out.h"
#include "tests/cli/tool.h"
#include "tests/ops/tensor_files.h"

namespace whet::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::vector<std::string> kSmall = {
    "run", "rms_norm", "-p", "dtype=f32,rows=8,columns=64", "--tuning", "never", "--seconds", "0"};

void ExpectOneLineError(const ToolRun& run, int exit_code, const std::vector<std::string>& parts) {
  EXPECT_EQ(run.exit_code, exit_code) << run;
  EXPECT_THAT(run.err, StartsWith("whet: error: ")) << run;
  EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run;
  for (const std::string& part : parts) EXPECT_THAT(run.err, HasSubstr(part));
}

std::vector<std::string> Attention(const std::string& fields) {
  return {"run", "attention_forward", "-p", fields};
}

TEST(BadInputTest, ProblemsAreJudgedBeforeAnythingIsCompiled) {
  const Tool tool;
  const std::string good = "dtype=bf16,batch=1,heads_q=4,seq_q=8,dqk=16";
  const struct {
    std::vector<std::string> line;
    std::vector<std::string> message;
  } cases[] = {
      {Attention("dtype=f64,batch=1,heads_q=4,seq_q=8,dqk=16"), {"dtype", "f64"}},
      {Attention("dtype=e4m3,batch=1,heads_q=4,seq_q=8,dqk=16"), {"dtype", "e4m3"}},
      {Attention("dtype=bf16,batch=1,heads_q=6,heads_kv=4,seq_q=8,dqk=16"),
       {"heads_q must be a multiple of heads_kv"}},
      {Attention(good + ",heads_kv=0"), {"heads_kv"}},
      {Attention(good + ",dv=0"), {"dv"}},
      {Attention(good + ",o_stride_s=15"), {"o_stride_s must be at least dv"}},
      {Attention(good + ",window=128"), {"a sliding window is not supported yet"}},
      {Attention(good + ",sink=1"), {"attention sinks are not supported yet"}},
      {Attention(good + ",causal=2"), {"causal"}},
      {Attention(good + ",colour=3"), {"colour"}},
      {Attention(good + ",batch"), {"batch"}},
      {Attention("dtype=bf16,batch=-1,heads_q=4,seq_q=8,dqk=16"), {"batch"}},
      {Attention("dtype=bf16,batch=many,heads_q=4,seq_q=8,dqk=16"), {"batch", "many"}},
      {Attention("batch=1,heads_q=4,seq_q=8,dqk=16"), {"dtype"}},
      {Attention("dtype=bf16,batch=4611686018427387904,heads_q=4,seq_q=8,dqk=16"),
       {"argument q", "more bytes than 63 bits"}},
      {Attention("rms_norm:dtype=bf16,rows=1,columns=8"), {"rms_norm"}},
      {{"run", "rms_norm:dtype=f32,rows=1,columns=8", "-p", "rows=2"}, {"fields are given twice"}},
      {{"run", "softmax"},
       {"softmax", "attention_forward, attention_forward_fp8, quantize_fp8, rms_norm"}},
      {{"run", "rms_norm", "--data", "zeroes"}, {"zeroes", "normal, uniform"}},
      {{"run", "rms_norm", "--scalar", "epsilon=big"}, {"epsilon=big"}},
      {{"run", "rms_norm", "--scalar", "scale=1"}, {"no scalar named scale"}},
      {{"run", "rms_norm", "--out", "z=z.npy"}, {"there is no such output; the problem has y"}},
      {{"run", "rms_norm", "--device", "tpu"}, {"tpu", "cpu, hip, cuda"}},
      {{"run", "rms_norm", "--device", "cpu:x"}, {"cpu:x"}},
      {{"run", "rms_norm", "--variant", "cpu:"}, {"cpu:"}},
      {{"tune"}, {"there is nothing to tune"}},
      {{"tune", "--problems", "/none/list.jsonl"}, {"/none/list.jsonl"}},
      {{"compile", "--target", "riscv64", "rms_norm"}, {"riscv64"}},
      {{"compile", "--target", "gfx1030:xnack+", "rms_norm"}, {"xnack"}},
      {{"compile", "--target", "gfx942,,sm_90a", "rms_norm"}, {"target"}},
      {{"compile", "--target", "gfx942", "-p", "rows=8"}, {"--problem needs an operation"}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(absl::StrJoin(c.line, " "));
    ExpectOneLineError(tool.Run(c.line), 3, c.message);
  }
}

TEST(BadInputTest, SettingsAreNamed) {
  const Tool tool;
  for (const auto& [name, value] :
       {std::pair("WHET_CACHE_POLICY", "sometimes"), std::pair("WHET_TUNING", "maybe"),
        std::pair("WHET_TUNING_BUDGET", "-3"), std::pair("WHET_CPU_THREADS", "all")}) {
    ExpectOneLineError(tool.Run(kSmall, {{name, value}}), 3, {name, value});
  }
  ExpectOneLineError(tool.Run({"run", "rms_norm", "--cache-policy", "sometimes"}), 3,
                     {"sometimes", "read-only"});
  ExpectOneLineError(tool.Run(kSmall, {{"WHET_TEMPLATES", "/none/templates"}}), 3,
                     {"/none/templates"});
}

TEST(BadInputTest, FilesAreNotTrusted) {
  const Tool tool;
  const auto tensor = [&](const char* name, DType dtype, std::vector<int64_t> shape) {
    HostTensor t = *HostTensor::Make(dtype, std::move(shape));
    for (int64_t i = 0; i < t.elements(); ++i) t.Set(i, 0.5);
    const std::string path = tool.Path(name);
    EXPECT_TRUE(WriteNpy(path, t).ok());
    return path;
  };
  const std::string good = tensor("good.npy", DType::kF32, {1, 2, 8, 16});
  const std::string lying = tool.Write(
      "lying.npy", Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 8, 17), }",
                       std::string(1024, '\0')));
  const std::string huge = tool.Write(
      "huge.npy",
      Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 8), }", "x"));
  const std::string beyond = tool.Write(
      "beyond.safetensors",
      Safetensors(R"({"q":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", "short"));
  const std::string other =
      tool.Write("other.safetensors",
                 Safetensors(R"({"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "ab"));
  const auto attention = [&](const std::string& q, const std::string& k, const std::string& v) {
    return std::vector<std::string>{"run", "attention_forward", "--q", q, "--k", k, "--v", v};
  };
  const struct {
    std::vector<std::string> line;
    std::vector<std::string> message;
  } cases[] = {
      {attention("/none/q.npy", good, good), {"/none/q.npy", "No such file"}},
      {attention(tool.Write("empty.npy", ""), good, good), {"empty.npy", "does not begin"}},
      {attention(lying, good, good), {"lying.npy", "1088 bytes, but 1024 bytes follow"}},
      {attention(huge, good, good), {"huge.npy", "more than 63 bits can count"}},
      {attention(tool.Write("q.txt", "1 2 3"), good, good), {"q.txt", "must end in .npy"}},
      {attention(tool.Path(""), good, good), {"must end in .npy"}},
      {attention(good, tensor("f16.npy", DType::kF16, {1, 2, 8, 16}), good),
       {"k has dtype = f16", "dtype = f32"}},
      {attention(good, tensor("rank.npy", DType::kF32, {2, 8, 16}), good),
       {"k has 3 dimensions, [2, 8, 16]"}},
      {attention(good, tensor("dim.npy", DType::kF32, {1, 2, 8, 20}), good), {"k has dqk = 20"}},
      {attention(good, tensor("heads.npy", DType::kF32, {1, 3, 8, 16}),
                 tensor("heads_v.npy", DType::kF32, {1, 3, 8, 16})),
       {"heads_q must be a multiple of heads_kv"}},
      {{"run", "attention_forward", "--safetensors", beyond},
       {"beyond.safetensors", "ends at byte 16"}},
      {{"run", "attention_forward", "--safetensors", other},
       {"no tensor named q, k, v; it has w", "--input q="}},
      {{"run", "attention_forward", "--input", absl::StrCat("q=", other, ":z")},
       {"no tensor 'z' in it; it has w"}},
      {{"run", "attention_forward", "--input", absl::StrCat("z=", good)}, {"there is no input z"}},
      {{"run", "attention_forward", "--q", good, "--input", absl::StrCat("q=", good)},
       {"q was given twice"}},
      {{"run", "attention_forward", "--q", good, "--k", good}, {"v is missing"}},
      {{"run", "attention_forward", "-p", "dtype=bf16", "--q", good, "--k", good, "--v", good},
       {"it is f32, but the problem says dtype=bf16; add --convert"}},
      {{"run", "attention_forward", "-p", "batch=2", "--q", good, "--k", good, "--v", good},
       {"q has batch = 1, but batch = 2"}},
      {{"tune", "rms_norm", "-p", "rows=1", "-p", "rows=2", "--input", absl::StrCat("x=", good)},
       {"one problem"}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(absl::StrJoin(c.line, " "));
    ExpectOneLineError(tool.Run(c.line), 3, c.message);
  }
  const ToolRun full = tool.Run({"run", "rms_norm", "-p", "dtype=f32,rows=2,columns=8", "--tuning",
                                 "never", "--seconds", "0", "--out", "/none/y.npy"});
  ExpectOneLineError(full, 3, {"/none/y.npy"});
}

TEST(BadInputTest, AnUnknownDeviceIsMissing) {
  const Tool tool;
  for (const char* device : {"hip:63", "cuda:63"}) {
    ExpectOneLineError(tool.Run({"run", "rms_norm", "--device", device}), 4, {});
  }
}

// It may well be the name of a GPU to come: only a compiler can tell.
TEST(BadInputTest, ATargetThatNoCompilerKnowsIsMissing) {
  const Tool tool;
  ExpectOneLineError(
      tool.Run({"compile", "--target", "gfx9000", "rms_norm", "--default-only", "--quiet"}), 4,
      {"gfx9000", "clang_amdgpu", "hiprtc"});
}

TEST(BadCompilerTest, NoneAtAllIsMissingAndSaysWhatToDo) {
  const Tool tool;
  ExpectOneLineError(tool.Run(kSmall, {{"WHET_CXX", "/none/c++"}}), 4, {"/none/c++"});
  const ToolRun run =
      tool.Run({"compile", "--target", "gfx942,sm_90a", "rms_norm", "--default-only", "--json"},
               {{"WHET_HIPRTC", "/none/hiprtc"},
                {"WHET_AMDGPU_CLANG", "/none/clang"},
                {"WHET_NVRTC", "/none/nvrtc"}});
  EXPECT_EQ(run.exit_code, 4) << run;
  const nlohmann::json json = JsonOut(run);
  EXPECT_THAT(json["targets"][0]["error"].get<std::string>(), HasSubstr("hiprtc"));
  EXPECT_THAT(json["targets"][0]["error"].get<std::string>(), HasSubstr("/none/clang"));
  EXPECT_THAT(json["targets"][1]["error"].get<std::string>(), HasSubstr("/none/nvrtc"));
}

TEST(BadCompilerTest, OneThatCrashesOrRefusesIsReported) {
  const Tool tool;
  // Each answers the probe as a compiler does and fails when it is given the kernel.
  const std::string probe =
      "case \"$*\" in *rms_norm*|*kernel*|*-shared*) ;; *) exec c++ \"$@\";; esac\n";
  for (const auto& [name, end] : {std::pair("crash", "kill -SEGV $$"),
                                  std::pair("refuse", "echo 'k.cc:1: error: no' >&2; exit 1"),
                                  std::pair("nothing", "exit 0")}) {
    const std::string script = tool.Script(name, absl::StrCat(probe, end));
    const ToolRun run = tool.Run(kSmall, {{"WHET_CXX", script}});
    EXPECT_TRUE(run.exit_code == 4 || run.exit_code == 5) << name << run;
    EXPECT_THAT(run.err, StartsWith("whet: error: ")) << name << run;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run;
  }
  // The tool lives on, and so does what it stored.
  EXPECT_EQ(tool.Run(kSmall).exit_code, 0);
}

TEST(BadCompilerTest, OneThatHangsIsKilledAtItsTimeLimit) {
  const Tool tool;
  const std::string script =
      tool.Script("hang", "grep -q rms_norm kernel.cc 2>/dev/null && sleep 1000\nexec c++ \"$@\"");
  ExpectOneLineError(tool.Run(kSmall, {{"WHET_CXX", script}, {"WHET_COMPILE_TIMEOUT", "2"}}), 5,
                     {"rms_norm cpu:rows_per_block=16", "did not finish within 2s"});
}

TEST(BadCompilerTest, OneThatMiscompilesIsFoundOutByFloat64) {
  const Tool tool;
  const std::string script = tool.Script("miscompile",
                                         "for a; do case $a in *.cc) sed -i 's/SquareRoot(mean + "
                                         "/SquareRoot(mean * 2 + /' \"$a\";; esac; done\n"
                                         "exec c++ \"$@\"");
  const ToolRun run = tool.Run(kSmall, {{"WHET_CXX", script}});
  ExpectOneLineError(run, 6, {"y is wrong", "2.93e-01", "1.00e-05", "cpu:rows_per_block=16"});
}

TEST(OfflineTest, CodeCompiledBeforeNeedsNoCompiler) {
  const Tool tool;
  const ToolRun cold = tool.Run({"run", "rms_norm", "-p", "dtype=f32,rows=8,columns=64",
                                 "--cache-policy", "offline", "--seconds", "0"});
  EXPECT_EQ(cold.exit_code, 4) << cold;
  EXPECT_THAT(cold.err, HasSubstr("whet: error: the cache holds no code for")) << cold;
  const ToolRun compiled = tool.Run({"compile", "--target", "host", "--default-only", "--json",
                                     "rms_norm", "-p", "dtype=f32,rows=8,columns=64"});
  ASSERT_EQ(compiled.exit_code, 0) << compiled;
  EXPECT_EQ(JsonOut(compiled)["targets"][0]["variants"].size(), 1u);
  const ToolRun again = tool.Run({"compile", "--target", "host", "--default-only", "--json",
                                  "rms_norm", "-p", "dtype=f32,rows=8,columns=64"});
  EXPECT_EQ(JsonOut(again)["targets"][0]["variants"][0]["was_cached"], true) << again;
  const ToolRun warm = tool.Run({"run", "rms_norm", "-p", "dtype=f32,rows=8,columns=64",
                                 "--cache-policy", "offline", "--json", "--seconds", "0"},
                                {{"WHET_CXX", "/none/c++"}});
  ASSERT_EQ(warm.exit_code, 0) << warm;
  EXPECT_EQ(JsonOut(warm)["resolution"]["code_origin"], "user cache");
}

// A cache that cannot be used makes a slow start and at most one warning, never a failure.
TEST(BadCacheTest, EveryUnusableCacheStillGivesARightResult) {
  struct Case {
    const char* name;
    std::function<std::string(const Tool&)> make;  // returns the cache's directory
    bool warns;
  };
  const Case cases[] = {
      {"is a file", [](const Tool& t) { return t.Write("file", "x"); }, true},
      {"cannot be made", [](const Tool&) { return std::string("/proc/whet/cache"); }, true},
      {"others can write",
       [](const Tool& t) {
         EXPECT_TRUE(MakeDirectories(t.Path("open")).ok());
         EXPECT_EQ(chmod(t.Path("open").c_str(), 0777), 0);
         return t.Path("open");
       },
       true},
      {"garbage in the database",
       [](const Tool& t) {
         EXPECT_TRUE(MakeDirectories(t.Path("garbage")).ok());
         t.Write("garbage/cache.db", std::string(5000, 'g'));
         chmod(t.Path("garbage/cache.db").c_str(), 0600);
         return t.Path("garbage");
       },
       true},
      {"an empty database",
       [](const Tool& t) {
         EXPECT_TRUE(MakeDirectories(t.Path("empty")).ok());
         t.Write("empty/cache.db", "");
         chmod(t.Path("empty/cache.db").c_str(), 0600);
         return t.Path("empty");
       },
       false},
      {"a directory in the database's place",
       [](const Tool& t) {
         EXPECT_TRUE(MakeDirectories(t.Path("dir/cache.db")).ok());
         return t.Path("dir");
       },
       true},
  };
  for (const Case& c : cases) {
    const Tool tool;
    const ToolRun run = tool.Run(kSmall, {{"WHET_CACHE", c.make(tool)}});
    EXPECT_EQ(run.exit_code, 0) << c.name << "\n" << run;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), c.warns ? 1 : 0) << c.name << run;
    if (c.warns) {
      EXPECT_THAT(run.err, StartsWith("whet: warning: ")) << c.name;
    }
  }
}

TEST(BadCacheTest, AReadOnlyDirectoryServesHitsAndTakesNothing) {
  if (geteuid() == 0) GTEST_SKIP() << "permissions do not stop root; run the tests as another user";
  const Tool tool;
  ASSERT_EQ(tool.Run(kSmall).exit_code, 0);
  ASSERT_EQ(chmod(tool.cache().c_str(), 0500), 0);
  const ToolRun run = tool.Run(kSmall);
  EXPECT_EQ(run.exit_code, 0) << run;
  ASSERT_EQ(chmod(tool.cache().c_str(), 0700), 0);
}

TEST(BadCacheTest, GarbageIsSetAsideAndTheNextProcessIsWarm) {
  const Tool tool;
  ASSERT_TRUE(MakeDirectories(tool.cache()).ok());
  tool.Write("cache/cache.db", "this is no database, but it may be dear to somebody");
  chmod(JoinPath(tool.cache(), "cache.db").c_str(), 0600);
  const ToolRun first = tool.Run(kSmall);
  EXPECT_EQ(first.exit_code, 0) << first;
  EXPECT_THAT(first.err, HasSubstr("corrupt-1"));
  EXPECT_EQ(*ReadFile(JoinPath(tool.cache(), "cache.db.corrupt-1"), 1 << 20),
            "this is no database, but it may be dear to somebody");
  std::vector<std::string> json = kSmall;
  json.push_back("--json");
  const ToolRun second = tool.Run(json, {{"WHET_CXX", "/none/c++"}});
  ASSERT_EQ(second.exit_code, 0) << second;
  EXPECT_EQ(JsonOut(second)["resolution"]["code_origin"], "user cache");
}

TEST(BadCacheTest, LookingChangesNothing) {
  const Tool tool;
  const ToolRun none = tool.Run({"cache", "ls", "--json"});
  EXPECT_EQ(none.exit_code, 0) << none;
  EXPECT_EQ(JsonOut(none)["code"].size(), 0u);
  EXPECT_FALSE(IsDirectory(tool.cache())) << "ls made a cache";
}

}  // namespace
}  // namespace whet::testing
