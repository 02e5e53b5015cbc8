// The page of a tuning run: it holds its data, loads nothing, and cannot be broken by what a
// compiler printed.
#include "src/cli/tune_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "src/base/files.h"
#include "src/tune/evidence.h"
#include "tests/support/simulated_space.h"

namespace whet {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

// What a browser's JSON.parse would be given.
json DataOf(const std::string& page) {
  const std::string begin = "<script type=\"application/json\" id=\"whet-data\">";
  const size_t at = page.find(begin);
  EXPECT_NE(at, std::string::npos);
  if (at == std::string::npos) return {};
  const size_t from = at + begin.size();
  const size_t end = page.find("</script>", from);
  return json::parse(page.substr(from, end - from), nullptr, /*allow_exceptions=*/false);
}

// The evidence of a run on the simulated GPU, with clocks and power, one of its variants renamed to
// carry what a hostile log might hold.
json SimulatedRun(int variants, uint64_t seed) {
  SimulatedSpace space({.variants = variants, .space_seed = seed, .noise_seed = seed, .gpu = {}});
  absl::StatusOr<TuningResult> result =
      Tune(space.request(), space.device(), space.source(), nullptr);
  EXPECT_TRUE(result.ok()) << result.status();
  result->evidence.back().outcome = VariantOutcome::kFailed;
  result->evidence.back().reason = "</script><script>alert(1)</script> <!-- \xFF";
  json problem = json::parse(EvidenceToJson(*result, {}));
  for (json& variant : problem["variants"]) variant.erase("samples_ns");
  problem["problem"] = "simulated:variants=" + std::to_string(variants);
  problem["operation"] = "simulated";
  problem["data"] = "normal, seed 1";
  problem["seconds_total"] =
      static_cast<double>(space.device().clock().MonotonicNanoseconds()) / 1e9;
  problem["signature"] = {{"inputs",
                           {{{"name", "x"},
                             {"toggles_inner", 0.35},
                             {"toggles_outer", 0.34},
                             {"zeros", 0.0},
                             {"ones", 0.49},
                             {"exponent_spread", 1.6}}}}};
  return problem;
}

TEST(TunePageTest, HoldsItsDataAndLoadsNothing) {
  const json data = {
      {"device", {{"product", "simulated GPU"}, {"target", "none"}, {"driver", "0"}}},
      {"problems",
       {SimulatedRun(24, 3),
        SimulatedRun(8, 5),
        {{"problem", "broken:n=1"}, {"error", "no variant is left; </script>"}}}}};
  const std::string page = TunePage(data.dump(-1, ' ', false, json::error_handler_t::replace));
  // For a person with a browser, where the build keeps what tests leave.
  if (const char* outputs = std::getenv("TEST_UNDECLARED_OUTPUTS_DIR"); outputs != nullptr) {
    EXPECT_TRUE(WriteFileAtomically(JoinPath(outputs, "report.html"), page).ok());
  }
  const json read = DataOf(page);
  ASSERT_TRUE(read.is_object());
  ASSERT_EQ(read["problems"].size(), 3u);
  const json& problem = read["problems"][0];
  EXPECT_EQ(problem["winner"], data["problems"][0]["winner"]);
  ASSERT_EQ(problem["variants"].size(), 24u);
  int finalists = 0, out = 0, telemetry = 0;
  for (const json& v : problem["variants"]) {
    if (v.value("final_round", false)) {
      ++finalists;
      EXPECT_LE(v["low_ns"], v["median_ns"]);
      EXPECT_GE(v["high_ns"], v["median_ns"]);
      telemetry += static_cast<int>(v["telemetry"].size());
    }
    if (v.value("out_seconds", 0.0) > 0) {
      ++out;
      EXPECT_FALSE(v["stage"].get<std::string>().empty());
      EXPECT_FALSE(v["reason"].get<std::string>().empty());
    }
  }
  EXPECT_GT(finalists, 0);
  EXPECT_GT(out, 10);
  EXPECT_GT(telemetry, 10);
  EXPECT_EQ(read["problems"][2]["error"], "no variant is left; </script>");

  // One file: nothing is fetched, and the data ends where it should.
  for (const char* outside : {"http:", "https:", "<link", " src=", "@import", "url(", "fetch("}) {
    // The one exception names the language of vector graphics and is never fetched.
    std::string rest = page;
    const std::string graphics = "http://www.w3.org/2000/svg";
    rest.replace(rest.find(graphics), graphics.size(), "");
    EXPECT_THAT(rest, Not(HasSubstr(outside)));
  }
  size_t scripts = 0;
  for (size_t at = page.find("<script"); at != std::string::npos;
       at = page.find("<script", at + 1)) {
    ++scripts;
  }
  EXPECT_EQ(scripts, 2u);
}

}  // namespace
}  // namespace whet
