// The AMD FP8 attention kernels, lane by lane, against attention in double precision on the same bytes.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/emulate/attention_fp8_case.h"

namespace whet::emulator {
namespace {

// The first parameter of every case is how weights are made.
class AttentionFp8Kernels : public ::testing::TestWithParam<AttentionFp8Case> {};

using Tune = std::vector<std::pair<std::string, int64_t>>;

// Every way of making weights, with everything else that a kernel has variants of somewhere.
std::vector<AttentionFp8Case> Cases() {
  std::vector<AttentionFp8Case> cases;
  const AttentionFp8Case gfx950{.kernel = "gfx950", .architecture = "gfx950"};
  const AttentionFp8Case gfx942{.kernel = "gfx942", .architecture = "gfx942"};
  const auto add = [&](AttentionFp8Case c, const Tune& tune, int seq_q, int seq_kv, bool causal) {
    c.tune = tune;
    c.seq_q = seq_q;
    c.seq_kv = seq_kv;
    c.causal = causal;
    cases.push_back(c);
  };
  add(gfx950, {{"weights", 0}}, 100, 333, true);
  add(gfx950, {{"weights", 1}, {"lazy", 0}, {"lead", 1}}, 70, 129, false);
  add(gfx950, {{"weights", 2}, {"pingpong", 1}, {"lazy", 1}}, 270, 300, true);
  add(gfx950, {{"weights", 3}, {"rows", 64}}, 200, 270, true);
  add(gfx942, {{"weights", 0}, {"lazy", 0}}, 100, 200, true);
  add(gfx942, {{"weights", 3}, {"lead", 3}}, 64, 129, false);
  for (AttentionFp8Case c : {gfx950, gfx942}) {
    // 192 / 128, scales per rows, grouped heads, gaps.
    const bool exact = c.kernel == "gfx950";
    c.heads_q = 2;
    c.dqk = 192;
    c.q_scale_rows = 64;
    c.k_scale_rows = 64;
    c.gap = 16;
    c.lse_shift = true;
    c.exact_exponents = exact;
    add(c, {{"weights", exact ? 2 : 4}}, 70, 140, true);
    // Head dimensions that do not fill their padding, two batches, more rows than keys, a negative scale.
    c = exact ? gfx950 : gfx942;
    c.dqk = 80;
    c.dv = 40;
    c.batch = 2;
    c.exact_exponents = false;
    c.scale = -0.1f;
    c.lse = !exact;
    add(c, {{"weights", exact ? 4 : 0}, {"lead", 1}}, 40, 20, true);
    // No keys.
    add(exact ? gfx950 : gfx942, {{"weights", 2}}, 40, 0, false);
    // References that rise and fall by far.
    c = exact ? gfx950 : gfx942;
    c.spread = 1.5f;
    c.sink = exact ? 3.0f : 2.5f;
    add(c, {{"weights", 2}, {"lazy", 1}}, 40, 260, false);
    c.sink = 0;
    c.late = 4.0f;
    c.exact_exponents = false;
    add(c, {{"weights", 0}, {"lazy", 0}}, 40, 260, false);
    // NaN.
    c = exact ? gfx950 : gfx942;
    c.nan_query = 3;
    c.nan_key = 100;
    add(c, {{"weights", exact ? 0 : 2}}, 50, 130, true);
    c.nan_query = -1;
    c.nan_key = -1;
    c.nan_value = 60;  // rows before the 30th do not see it
    add(c, {{"weights", 3}}, 40, 70, true);
    c.nan_value = 15;  // rows before the 20th see no key at all
    add(c, {{"weights", 3}}, 40, 20, true);
  }
  return cases;
}

TEST_P(AttentionFp8Kernels, AgreeWithDoublePrecision) {
  const AttentionFp8Case& c = GetParam();
  SCOPED_TRACE(Describe(c));
  const absl::StatusOr<AttentionFp8Result> result = RunAttentionFp8(c);
  ASSERT_TRUE(result.ok()) << result.status();
  for (const EmulatorFinding& finding : result->report.findings) ADD_FAILURE() << finding.text;
  const bool exponential = c.tune.front().second < 2;
  EXPECT_LT(result->output_error, exponential ? 0.028 : 0.035);
  EXPECT_LT(result->worst_row, 0.1);
  // One weight that outdoes all others may be 6 % off.
  EXPECT_LT(result->lse_error, 0.07);
  EXPECT_EQ(result->wrong_nans, 0);
  EXPECT_TRUE(result->untouched_gaps);
}

INSTANTIATE_TEST_SUITE_P(Table, AttentionFp8Kernels, ::testing::ValuesIn(Cases()));

}  // namespace
}  // namespace whet::emulator
