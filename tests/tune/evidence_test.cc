#include "src/tune/evidence.h"

#include <limits>
#include <random>
#include <string>

#include "gtest/gtest.h"

namespace whet {
namespace {

TuningResult Result() {
  TuningResult r;
  r.winner = Variant::Parse("cpu:block_q=32").value();
  r.gain = 1.25;
  r.kept_incumbent = true;
  r.soak = absl::Milliseconds(150);
  r.compile = absl::Seconds(2);
  VariantEvidence timed;
  timed.variant = r.winner;
  timed.outcome = VariantOutcome::kTimed;
  timed.relative_error = 1.5e-5;
  timed.median_ns = 1234.5;
  timed.low_ns = 1230;
  timed.high_ns = 1240;
  timed.final_round = timed.steady = timed.tied = true;
  timed.samples_ns = {1234.5, 1233.1};
  TelemetrySample sample;
  sample.monotonic_ns = 77;
  sample.clock_mhz = 1980;
  timed.telemetry = {sample};
  VariantEvidence wrong;
  wrong.variant = Variant::Parse("cpu:block_q=64").value();
  wrong.outcome = VariantOutcome::kWrong;
  wrong.reason = "its y differs \"much\" \xFF";
  wrong.relative_error = std::numeric_limits<double>::infinity();
  r.evidence = {timed, wrong};
  return r;
}

TEST(EvidenceTest, ComesBackAsItWas) {
  const std::string json = EvidenceToJson(
      Result(), {.driver = "570.1", .compiler = "nvrtc 13.0 abc", .data_signature = "{}"});
  const absl::StatusOr<Evidence> back = EvidenceFromJson(json);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->protocol, kTuningProtocol);
  EXPECT_EQ(back->context.driver, "570.1");
  EXPECT_EQ(back->context.compiler, "nvrtc 13.0 abc");
  EXPECT_EQ(back->context.data_signature, "{}");
  const TuningResult& r = back->result;
  EXPECT_EQ(r.winner, Result().winner);
  EXPECT_EQ(r.gain, 1.25);
  EXPECT_TRUE(r.kept_incumbent);
  EXPECT_FALSE(r.budget_spent);
  EXPECT_EQ(r.soak, absl::Milliseconds(150));
  EXPECT_EQ(r.compile, absl::Seconds(2));
  ASSERT_EQ(r.evidence.size(), 2u);
  EXPECT_EQ(r.evidence[0].outcome, VariantOutcome::kTimed);
  EXPECT_DOUBLE_EQ(r.evidence[0].relative_error, 1.5e-5);
  EXPECT_DOUBLE_EQ(r.evidence[0].median_ns, 1234.5);
  EXPECT_TRUE(r.evidence[0].final_round && r.evidence[0].steady && r.evidence[0].tied);
  EXPECT_EQ(r.evidence[0].samples_ns.size(), 2u);
  ASSERT_EQ(r.evidence[0].telemetry.size(), 1u);
  EXPECT_EQ(r.evidence[0].telemetry[0].clock_mhz, 1980);
  EXPECT_FALSE(r.evidence[0].telemetry[0].power_watts.has_value());
  EXPECT_EQ(r.evidence[1].outcome, VariantOutcome::kWrong);
  EXPECT_EQ(r.evidence[1].reason, "its y differs \"much\" \xEF\xBF\xBD");
  EXPECT_EQ(r.evidence[1].relative_error, -1);  // infinity is not stored
  // And the text itself is stable.
  EXPECT_EQ(EvidenceToJson(r, back->context),
            EvidenceToJson(EvidenceFromJson(json)->result, back->context));
}

TEST(EvidenceTest, GoldenText) {
  TuningResult r;
  r.winner = Variant::Parse("k:a=1").value();
  VariantEvidence e;
  e.variant = r.winner;
  e.outcome = VariantOutcome::kTimed;
  e.median_ns = 10.04;
  r.evidence = {e};
  EXPECT_EQ(EvidenceToJson(r, {.driver = "d", .compiler = "c", .data_signature = ""}),
            R"({"format":1,"protocol":3,"winner":"k:a=1","gain":0.0,"kept_incumbent":false,)"
            R"("budget_spent":false,"seconds":{"compile":0.0,"verify":0.0,"screen":0.0,)"
            R"("finals":0.0,"device":0.0,"soak":0.0},"driver":"d","compiler":"c",)"
            R"("variants":[{"variant":"k:a=1","outcome":"timed","median_ns":10.0,"low_ns":0.0,)"
            R"("high_ns":0.0}]})");
}

TEST(EvidenceTest, TheGainAloneIsTheOutermostOne) {
  const struct {
    const char* json;
    double gain;
  } cases[] = {
      {R"({"format": 1, "gain": 1.25, "variants": [{"gain": 3}]})", 1.25},
      {R"({"seconds": {"gain": 7}, "gain": 2})", 2},
      {R"({"variants": [{"gain": 3}]})", 0},
      {R"({"gain": null})", 0},
      {R"({"gain": {"gain": 4}})", 0},
      {R"([{"gain": 4}])", 0},
      {R"({"gain": 1.5, what follows is not read)", 1.5},
      {"", 0},
  };
  for (const auto& c : cases) EXPECT_EQ(GainInJson(c.json), c.gain) << c.json;
}

TEST(EvidenceTest, ForeignTextIsRefused) {
  for (const char* text : {"", "{", "[]", "null", "{}", R"({"format":2,"winner":"k:a=1"})",
                           R"({"format":"1"})", R"({"format":1,"winner":7})",
                           R"({"format":1,"winner":"k:a=1","variants":[{"variant":5}]})"}) {
    EXPECT_EQ(EvidenceFromJson(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(EvidenceTest, UnknownAndIllTypedFieldsAreIgnored) {
  const absl::StatusOr<Evidence> e = EvidenceFromJson(
      R"({"format":1,"winner":"k:a=1","gain":"x","seconds":7,"new":{"a":[1]},"variants":[)"
      R"({"variant":"k:a=1","outcome":"evaporated","samples_ns":[1,"2",null],"telemetry":[5]}]})");
  ASSERT_TRUE(e.ok()) << e.status();
  EXPECT_EQ(e->result.gain, 0);
  EXPECT_EQ(e->result.evidence[0].outcome, VariantOutcome::kUntried);
  EXPECT_EQ(e->result.evidence[0].samples_ns, std::vector<double>{1});
}

// Any damage to a real text is an error or other evidence, never a crash.
TEST(EvidenceTest, DamagedTextNeverCrashes) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const std::string json = EvidenceToJson(Result(), {});
  for (int i = 0; i < 2000; ++i) {
    std::string damaged = json;
    for (unsigned k = 0; k <= random() % 4; ++k) {
      damaged[random() % damaged.size()] = static_cast<char>(random() % 256);
    }
    damaged.resize(random() % 3 == 0 ? random() % damaged.size() : damaged.size());
    const absl::StatusOr<Evidence> e = EvidenceFromJson(damaged);
    if (e.ok()) {
      EXPECT_FALSE(EvidenceToJson(e->result, e->context).empty());
    }
  }
}

}  // namespace
}  // namespace whet
