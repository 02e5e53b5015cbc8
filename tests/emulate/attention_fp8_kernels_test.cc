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
  const auto add = [&](AttentionFp8Case c, const Tune& tune, int seq_q, int seq_kv, bool causal) {
    c.tune = tune;
    c.seq_q = seq_q;
    c.seq_kv = seq_kv;
    c.causal = causal;
    cases.push_back(c);
  };
  add(gfx950, {{"weights", 0}}, 100, 333, true);
  add(gfx950, {{"weights", 1}, {"lazy", 0}, {"lead", 1}}, 70, 129, false);
  add(gfx950, {{"weights", 2}, {"pingpong", 1}}, 270, 400, true);
  add(gfx950, {{"weights", 3}}, 64, 260, false);
  add(gfx950, {{"weights", 4}, {"lead", 3}}, 33, 390, true);
  {
    AttentionFp8Case c = gfx950;  // 192 / 128, scales per rows, grouped heads
    c.heads_q = 2;
    c.batch = 1;
    c.dqk = 192;
    c.q_scale_rows = 64;
    c.k_scale_rows = 64;
    c.gap = 16;
    c.lse_shift = true;
    add(c, {{"weights", 2}}, 140, 300, true);
    c.exact_exponents = false;
    c.k_scale_rows = 128;
    c.heads_q = 1;
    add(c, {{"weights", 4}, {"pingpong", 1}}, 70, 270, true);
    add(c, {{"weights", 0}, {"lazy", 0}}, 70, 270, false);
  }
  {
    AttentionFp8Case c =
        gfx950;  // head dimensions that do not fill their padding; two batches; more rows than keys
    c.dqk = 80;
    c.dv = 40;
    c.batch = 2;
    add(c, {{"weights", 2}}, 40, 20, true);
    c.dqk = 64;
    c.dv = 64;
    c.exact_exponents = false;
    c.batch = 1;
    add(c, {{"weights", 3}, {"pingpong", 1}}, 260, 130, false);
    add(c, {{"weights", 2}}, 40, 0, false);
    add(c, {{"weights", 2}}, 0, 40, false);
  }
  for (const bool pingpong : {false, true}) {
    AttentionFp8Case c = gfx950;  // references that rise and fall by far
    const Tune tune = {{"weights", pingpong ? 0 : 2}, {"pingpong", pingpong}, {"lazy", !pingpong}};
    c.spread = 1.5f;
    c.sink = 3.0f;
    c.late = 1.0f;
    add(c, tune, 40, 400, false);
    c.sink = 0;
    c.late = 4.0f;
    add(c, tune, 40, 400, false);
  }
  {
    AttentionFp8Case c = gfx950;
    c.nan_query = 3;
    c.nan_key = 200;
    add(c, {{"weights", 2}}, 70, 260, true);
    c.nan_query = -1;
    c.nan_key = -1;
    c.nan_value = 10;
    add(c, {{"weights", 3}}, 70, 260, false);
    c.nan_value = -1;
    c.scale = -0.1f;
    c.exact_exponents = false;
    c.lse = false;
    add(c, {{"weights", 4}}, 70, 130, true);
  }
  // gfx942: the same with less.
  const AttentionFp8Case gfx942{.kernel = "gfx942", .architecture = "gfx942"};
  add(gfx942, {{"weights", 0}, {"lazy", 0}}, 100, 333, true);
  add(gfx942, {{"weights", 2}}, 270, 200, true);
  add(gfx942, {{"weights", 3}, {"lead", 4}}, 64, 129, false);
  {
    AttentionFp8Case c = gfx942;
    c.heads_q = 2;
    c.dqk = 192;
    c.q_scale_rows = 64;
    c.k_scale_rows = 64;
    c.gap = 16;
    c.lse_shift = true;
    c.exact_exponents = false;
    add(c, {{"weights", 4}, {"lead", 2}}, 100, 200, true);
  }
  {
    AttentionFp8Case c = gfx942;
    c.dqk = 80;
    c.dv = 40;
    c.batch = 2;
    add(c, {{"weights", 2}}, 40, 20, true);
    c.batch = 1;
    c.scale = -0.1f;
    c.dqk = 64;
    c.dv = 64;
    add(c, {{"weights", 0}}, 40, 70, true);
    add(c, {{"weights", 2}}, 40, 0, false);
  }
  for (const int weights : {0, 2}) {
    AttentionFp8Case c = gfx942;
    c.spread = 1.5f;
    c.sink = 2.5f;
    c.late = 1.0f;
    add(c, {{"weights", weights}, {"lazy", weights / 2}}, 40, 300, false);
    c.sink = 0;
    c.late = 3.0f;
    add(c, {{"weights", weights}, {"lazy", weights / 2}}, 40, 300, false);
  }
  {
    AttentionFp8Case c = gfx942;
    c.nan_query = 3;
    c.nan_key = 200;
    add(c, {{"weights", 2}}, 70, 260, true);
    add(c, {{"weights", 0}}, 70, 260, true);
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
  EXPECT_LT(result->worst_row, exponential ? 0.045 : 0.06);
  // A weight on the line between two powers of two is up to 6 % too large.
  EXPECT_LT(result->lse_error, exponential ? 0.03 : 0.07);
  EXPECT_EQ(result->wrong_nans, 0);
  EXPECT_TRUE(result->untouched_gaps);
}

INSTANTIATE_TEST_SUITE_P(Table, AttentionFp8Kernels, ::testing::ValuesIn(Cases()));

}  // namespace
}  // namespace whet::emulator
