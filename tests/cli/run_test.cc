// whet run and whet tune on the CPU: from a cold cache, from a warm one, and on captured tensors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "src/base/files.h"
#include "src/ops/npy.h"
#include "src/ops/safetensors.h"
#include "tests/cli/json_out.h"
#include "tests/cli/tool.h"
#include "tests/support/runfile.h"

namespace whet::testing {
namespace {

using ::testing::HasSubstr;

const std::vector<std::string> kFast = {"--json", "--tuning", "never", "--seconds", "0"};

std::vector<std::string> With(std::vector<std::string> line, const std::vector<std::string>& more) {
  line.insert(line.end(), more.begin(), more.end());
  return line;
}

double Error(const nlohmann::json& json) {
  const nlohmann::json& value = json["check"][0]["relative_l2"];
  return value.is_number() ? value.get<double>() : 1e300;
}

TEST(RunTest, SecondProcessStartsFromTheCache) {
  const Tool tool;
  const auto line = With({"run", "rms_norm", "-p", "dtype=f32,rows=64,columns=256"}, kFast);
  const ToolRun first = tool.Run(line);
  ASSERT_EQ(first.exit_code, 0) << first;
  const nlohmann::json cold = JsonOut(first);
  EXPECT_EQ(cold["resolution"]["code_origin"], "compiled");
  EXPECT_EQ(cold["resolution"]["variant_origin"], "default");
  EXPECT_LT(Error(cold), 1e-5) << first;
  const ToolRun second = tool.Run(line, {{"WHET_CXX", "/none/no-compiler-here"}});
  ASSERT_EQ(second.exit_code, 0) << second;
  const nlohmann::json warm = JsonOut(second);
  EXPECT_EQ(warm["resolution"]["code_origin"], "user cache");
  EXPECT_EQ(warm["resolution"]["compiled"], 0);
  EXPECT_EQ(warm["check"], cold["check"]) << "the same code on the same data";
}

TEST(RunTest, TunesOnceAndKeepsTheWinner) {
  const Tool tool;
  const std::vector<std::string> line = {
      "run", "rms_norm",  "-p", "dtype=bf16,rows=32,columns=384", "--json", "--budget",
      "20",  "--seconds", "0"};
  const ToolRun first = tool.Run(line);
  ASSERT_EQ(first.exit_code, 0) << first;
  const nlohmann::json tuned = JsonOut(first);
  EXPECT_EQ(tuned["resolution"]["variant_origin"], "tuned") << first;
  EXPECT_GT(tuned["tuning"]["variants"].size(), 1u);
  EXPECT_GT(tuned["resolution"]["gain_over_default"], 0.0) << first;
  const nlohmann::json again = JsonOut(tool.Run(line));
  EXPECT_EQ(again["resolution"]["variant_origin"], "user cache");
  EXPECT_EQ(again["resolution"]["variant"], tuned["resolution"]["variant"]);
  // The evidence keeps six digits.
  EXPECT_NEAR(again["resolution"]["gain_over_default"].get<double>(),
              tuned["resolution"]["gain_over_default"].get<double>(), 1e-4);

  const nlohmann::json listing = JsonOut(tool.Run({"cache", "ls", "--json"}));
  EXPECT_EQ(listing["winners"].size(), 1u);
  EXPECT_EQ(listing["winners"][0]["winner"], tuned["resolution"]["variant"]);
  EXPECT_GE(listing["code"].size(), 2u);
}

TEST(RunTest, CapturedTensorsAgreeWithFloat64) {
  for (const char* name : {"minilm_layer0_s256", "minilm_layer5_s256"}) {
    const Tool tool;
    const std::string path = RunfilePath(absl::StrCat("tests/data/", name, ".safetensors"));
    const ToolRun run = tool.Run(
        With({"run", "attention_forward", "--safetensors", path, "--out", "o.npy"}, kFast));
    ASSERT_EQ(run.exit_code, 0) << run;
    const nlohmann::json json = JsonOut(run);
    EXPECT_THAT(json["problem"].get<std::string>(), HasSubstr("heads_q=12"));
    EXPECT_LT(Error(json), 5e-3) << run;
    EXPECT_EQ(json["check"][0]["rows_compared"], 12 * 256);
    absl::StatusOr<HostTensor> o = ReadNpy(tool.Path("o.npy"), {});
    ASSERT_TRUE(o.ok()) << o.status();
    EXPECT_EQ(o->ToString(), "f32 [1, 12, 256, 32]");
  }
}

// Strides beyond the extents leave gaps, which hold NaN: a kernel that reads one shows it.
TEST(RunTest, ProblemsOfEveryKindAgreeWithFloat64) {
  const Tool tool;
  const char* const problems[] = {
      "dtype=bf16,batch=2,heads_q=3,seq_q=50,dqk=40",
      "dtype=f32,batch=1,heads_q=4,heads_kv=2,seq_q=33,seq_kv=70,dqk=24,dv=48,causal=1,lse=1",
      "dtype=bf16,batch=1,heads_q=2,seq_q=70,seq_kv=33,dqk=16,causal=1,lse=1",
      "dtype=bf16,batch=2,heads_q=2,seq_q=37,dqk=32,q_stride_s=48,q_stride_h=2000,q_stride_b=5000,"
      "k_stride_s=40,k_stride_h=1500,k_stride_b=4000,v_stride_s=64,v_stride_h=2400,v_stride_b=4800,"
      "o_stride_s=33,o_stride_h=1300,o_stride_b=2700",
      "dtype=bf16,batch=0,heads_q=2,seq_q=8,dqk=16",
      "dtype=bf16,batch=1,heads_q=2,seq_q=8,seq_kv=0,dqk=16,lse=1",
  };
  for (const char* problem : problems) {
    const ToolRun run = tool.Run(With({"run", "attention_forward", "-p", problem}, kFast));
    EXPECT_EQ(run.exit_code, 0) << problem << "\n" << run;
    for (const nlohmann::json& check : JsonOut(run)["check"]) {
      EXPECT_LT(check["relative_l2"], 0.01) << problem << "\n" << run;
    }
  }
  const ToolRun norm = tool.Run(With(
      {"run", "rms_norm", "-p", "dtype=bf16,rows=7,columns=130,residual=1,x_stride=136"}, kFast));
  EXPECT_EQ(norm.exit_code, 0) << norm;
  EXPECT_EQ(JsonOut(norm)["check"].size(), 2u) << norm;
}

TEST(RunTest, FilesInEitherLayoutGiveTheSameOutput) {
  const Tool tool;
  absl::StatusOr<SafetensorsFile> file =
      SafetensorsFile::Open(RunfilePath("tests/data/minilm_layer0_s256.safetensors"));
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<std::string> plain = {"run",  "attention_forward", "-p", "dtype=f32", "--out",
                                    "a.npy"};
  std::vector<std::string> swapped = {
      "run", "attention_forward", "-p", "dtype=f32", "--layout", "bshd", "--out", "b.npy"};
  for (const char* name : {"q", "k", "v"}) {
    const HostTensor t = *file->Read(name);
    const std::string option = absl::StrCat("--", name);
    // WriteNpy turns the transposed view into [batch, sequence, heads, dimension] on disk.
    for (const auto& [suffix, tensor, line] :
         {std::tuple("", t, &plain), std::tuple("t", t.Permuted({0, 2, 1, 3}), &swapped)}) {
      const std::string path = tool.Path(absl::StrCat(name, suffix, ".npy"));
      ASSERT_TRUE(WriteNpy(path, tensor).ok());
      line->push_back(option);
      line->push_back(path);
    }
  }
  const ToolRun a = tool.Run(With(plain, kFast));
  const ToolRun b = tool.Run(With(swapped, kFast));
  ASSERT_EQ(a.exit_code, 0) << a;
  ASSERT_EQ(b.exit_code, 0) << b;
  const HostTensor o_a = *ReadNpy(tool.Path("a.npy"), {});
  const HostTensor o_b = *ReadNpy(tool.Path("b.npy"), {});
  ASSERT_EQ(o_a.shape(), o_b.shape());
  for (int64_t i = 0; i < o_a.elements(); ++i) ASSERT_EQ(o_a.At(i), o_b.At(i)) << i;
}

TEST(RunTest, ManyProcessesAtOnceShareOneColdCache) {
  const Tool tool;
  std::vector<ToolRun> runs(6);
  std::vector<std::thread> threads;
  for (ToolRun& run : runs) {
    threads.emplace_back([&tool, &run] {
      run = tool.Run(With({"run", "rms_norm", "-p", "dtype=f32,rows=8,columns=64"}, kFast));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const ToolRun& run : runs) {
    EXPECT_EQ(run.exit_code, 0) << run;
    EXPECT_EQ(run.err, "") << run;
    EXPECT_LT(Error(JsonOut(run)), 1e-5) << run;
  }
}

TEST(TuneTest, AListGoesOnAfterABadProblem) {
  const Tool tool;
  const std::string list =
      tool.Write("list.jsonl",
                 "{\"problem\": \"rms_norm:dtype=f32,rows=8,columns=64\"}\n"
                 "{\"operation\": \"rms_norm\", \"dtype\": \"f32\", \"rows\": -8}\n"
                 "{\"problem\": \"rms_norm:dtype=f32,rows=4,columns=32\"}\n");
  const ToolRun run = tool.Run({"tune", "--problems", list, "--budget", "10", "--json"});
  EXPECT_EQ(run.exit_code, 3) << run;
  const nlohmann::json json = JsonOut(run);
  ASSERT_EQ(json["problems"].size(), 3u);
  EXPECT_TRUE(json["problems"][0].contains("tuning")) << run;
  EXPECT_THAT(json["problems"][1]["error"].get<std::string>(), HasSubstr("list.jsonl:2"));
  EXPECT_TRUE(json["problems"][2].contains("tuning")) << run;
}

TEST(RunTest, PeopleReadWhatHappened) {
  const Tool tool;
  const ToolRun run = tool.Run({"run", "rms_norm", "-p", "dtype=f32,rows=64,columns=64", "--tuning",
                                "never", "--seconds", "0.01"});
  ASSERT_EQ(run.exit_code, 0) << run;
  for (const char* text :
       {"problem       rms_norm:dtype=f32,rows=64,columns=64\n",
        "device        cpu: ", "first call    ", "variant       ", "compiler      hostcxx ",
        "second call   ", "speed         ", "error of y    "}) {
    EXPECT_THAT(run.out, HasSubstr(text));
  }
}

TEST(RunTest, CapturedTensorsAreQuantisedForFp8WithARecipeThatIsShown) {
  const Tool tool;
  const std::string file = RunfilePath("tests/data/minilm_layer0_s256.safetensors");
  const ToolRun run = tool.Run(
      With({"run", "attention_forward_fp8", "--safetensors", file, "-p", "causal=1,lse=1"}, kFast));
  ASSERT_EQ(run.exit_code, 0) << run;
  const nlohmann::json json = JsonOut(run);
  EXPECT_THAT(json["recipe"].get<std::string>(), HasSubstr("chosen by total error"));
  EXPECT_THAT(json["problem"].get<std::string>(), HasSubstr("exact_exponents=1"));
  EXPECT_LT(Error(json), 0.01) << "beside float64 on the quantised inputs";
}

TEST(RunTest, QuantisesWithBothRemedies) {
  const Tool tool;
  const ToolRun run = tool.Run(With({"run", "quantize_fp8", "-p",
                                     "dtype=bf16,batch=1,heads=2,seq=300,dim=64,scale_rows=64,"
                                     "power_of_two=1,center=1,rotate=1",
                                     "--data", "biased"},
                                    kFast));
  ASSERT_EQ(run.exit_code, 0) << run;
  EXPECT_EQ(JsonOut(run)["check"].size(), 4u) << "y, scale, mean and the workspace";
}

}  // namespace
}  // namespace whet::testing
