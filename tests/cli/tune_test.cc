// whet tune over a list: what each line is tuned on, shards, the summary and the page.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "src/base/files.h"
#include "tests/cli/json_out.h"
#include "tests/cli/tool.h"

namespace whet::testing {
namespace {

using ::testing::HasSubstr;

std::string List() {
  std::string list;
  for (const char* columns : {"64", "128", "192"}) {
    list += std::string(
                "{\"operation\": \"rms_norm\", \"dtype\": \"f32\", \"rows\": 8, \"columns\": ") +
            columns + ", \"data\": \"" + (columns[0] == '1' ? "sparse" : "uniform") +
            "\", \"seed\": 7}\n";
  }
  return list;
}

TEST(TuneTest, ShardsShareAListAndEachLineHasItsData) {
  const Tool tool;
  const std::string list = tool.Write("list.jsonl", List());
  const std::string page = tool.Path("report.html");
  std::set<std::string> seen;
  for (const char* shard : {"1/2", "2/2"}) {
    const ToolRun run = tool.Run({"tune", "--problems", list, "--shard", shard, "--budget", "2",
                                  "--report", page, "--json"});
    ASSERT_EQ(run.exit_code, 0) << run;
    const nlohmann::json json = JsonOut(run);
    EXPECT_EQ(json["problems"].size(), shard[0] == '1' ? 2u : 1u);
    for (const nlohmann::json& problem : json["problems"]) {
      EXPECT_TRUE(seen.insert(problem["problem"]).second) << "tuned by both shards";
      EXPECT_THAT(problem["data"].get<std::string>(), HasSubstr("seed 7"));
      EXPECT_EQ(problem["resolution"]["variant_origin"], "tuned");
    }
    const auto html = ReadFile(page, 16 << 20);
    ASSERT_TRUE(html.ok()) << html.status();
    EXPECT_THAT(*html, HasSubstr("\"shard\": \"" + std::string(shard)));
    EXPECT_THAT(*html, HasSubstr("toggles_inner"));
  }
  EXPECT_EQ(seen.size(), 3u);
}

TEST(TuneTest, TheSummaryNamesEveryProblemAndItsWinner) {
  const Tool tool;
  const std::string list = tool.Write(
      "list.jsonl", List().substr(0, List().find('\n') + 1) +
                        "{\"operation\": \"rms_norm\", \"dtype\": \"f32\", \"rows\": -1}\n");
  const ToolRun run = tool.Run({"tune", "--problems", list, "--budget", "2"});
  EXPECT_EQ(run.exit_code, 3) << run;
  EXPECT_THAT(run.out, HasSubstr("1 of 2 problems tuned"));
  EXPECT_THAT(run.out, HasSubstr("problem and winner"));
  EXPECT_THAT(run.out, HasSubstr("failed"));
  EXPECT_THAT(run.err, HasSubstr("list.jsonl:2"));
  EXPECT_EQ(run.err.find("(0.0 s)"), std::string::npos) << run.err;
}

// Captured tensors of another problem than the line says: named with the line, and the next problem is
// tuned all the same.
TEST(TuneTest, CapturedTensorsThatDoNotFitAreNamedAndTheNextProblemIsTuned) {
  const Tool tool;
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 8), }";
  header.resize(117, ' ');
  header += '\n';
  const std::string x =
      tool.Write("x.npy", std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(header.size()) +
                              '\0' + header + std::string(2 * 8 * sizeof(float), '\0'));
  const std::string list = tool.Write(
      "list.jsonl",
      "{\"operation\": \"rms_norm\", \"rows\": 3, \"columns\": 8, \"data\": \"captured\", "
      "\"inputs\": {\"x\": \"" +
          x + "\"}}\n" + List().substr(0, List().find('\n') + 1));
  const ToolRun run = tool.Run({"tune", "--problems", list, "--budget", "2"});
  EXPECT_EQ(run.exit_code, 3) << run;
  EXPECT_THAT(run.err, HasSubstr("list.jsonl:1"));
  EXPECT_THAT(run.err, HasSubstr("rows = 2"));
  EXPECT_THAT(run.out, HasSubstr("1 of 2 problems tuned"));
}

TEST(TuneTest, BadShardsAndLinesAreNamed) {
  const Tool tool;
  const std::string list = tool.Write("list.jsonl", List());
  for (const char* shard : {"0/2", "3/2", "1", "a/b", "1/2/3", "-1/2"}) {
    const ToolRun run = tool.Run({"tune", "--problems", list, "--shard", shard});
    EXPECT_EQ(run.exit_code, 3) << run;
    EXPECT_THAT(run.err, HasSubstr("expected I/N")) << shard;
  }
  const struct {
    const char *line, *text;
  } cases[] = {
      {R"({"operation": "rms_norm", "data": "captured"})", "names a file"},
      {R"({"operation": "rms_norm", "data": 3})", "\"data\" must be text"},
      {R"({"operation": "rms_norm", "seed": -1})", "\"seed\" must be a whole number"},
      {R"({"operation": "rms_norm", "inputs": "x.npy"})", "\"inputs\" must be an object"},
      {R"({"operation": "rms_norm", "data": "pink"})", "pink"},
      {R"({"operation": "rms_norm", "data": "captured", "safetensors": "no.safetensors"})",
       "no.safetensors"},
  };
  for (const auto& c : cases) {
    const std::string bad = tool.Write("bad.jsonl", std::string(c.line) + "\n");
    const ToolRun run = tool.Run({"tune", "--problems", bad});
    EXPECT_EQ(run.exit_code, 3) << run;
    EXPECT_THAT(run.err, HasSubstr(c.text)) << c.line;
  }
}

}  // namespace
}  // namespace whet::testing
