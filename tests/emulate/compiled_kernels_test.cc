// What AMD's compilers make of the attention kernels, instruction by instruction, against attention in double precision. A quick run
// takes a case or two for each compiler; with WHET_TEST_ALL_CASES set, the whole table for all of them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/compile/toolchains.h"
#include "tests/emulate/attention_case.h"
#include "tests/emulate/attention_fp8_case.h"
#include "tests/emulate/compiler_cases.h"
#include "tests/emulate/object_player.h"

namespace whet::emulator {
namespace {

class CompiledKernels : public ::testing::TestWithParam<CompilerCase> {
 protected:
  void SetUp() override {
    ToolchainOptions options;
    const char* library = GetParam().library;
    if (absl::StartsWith(library, "WHET_")) {
      library = std::getenv(GetParam().library);
      if (library == nullptr || *library == '\0') {
        GTEST_SKIP() << "SKIPPED: " << GetParam().library << " names no library";
      }
    }
    options.hiprtc_library = library;
    toolchains_ = std::make_unique<Toolchains>(std::move(options));
    const absl::StatusOr<Compiler*> compiler = toolchains_->Named("hiprtc");
    ASSERT_TRUE(compiler.ok()) << compiler.status();
    compiler_ = *compiler;
  }

  bool all() const { return std::getenv("WHET_TEST_ALL_CASES") != nullptr; }
  // What loads to LDS do with lanes beyond a buffer is not documented: kernels are right whether they write zeros or nothing. The waves
  // take turns in both orders. A quick run takes the stricter half: LDS that nothing has written is a finding.
  std::vector<Player> Players() {
    std::vector<Player> players = {
        PlayObject(compiler_, {.drop_lds_loads = true, .reverse_waves = true})};
    if (all()) players.push_back(PlayObject(compiler_, {}));
    return players;
  }

  std::unique_ptr<Toolchains> toolchains_;
  Compiler* compiler_ = nullptr;
};

std::vector<int64_t> Leads(const std::string& kernel) {
  return kernel == "gfx950" ? std::vector<int64_t>{4, 5, 6} : std::vector<int64_t>{1, 2, 3};
}

// Ragged lengths, more keys than rows and fewer, one token, no keys, grouped heads, strides with gaps, values that are not finite and
// must not be seen, a NaN query, logits that outgrow the first tile's.
std::vector<AttentionCase> Cases(const std::string& architecture, bool all) {
  const std::string kernel = architecture == "gfx950" ? "gfx950" : "gfx9";
  const AttentionCase base{.kernel = kernel, .architecture = architecture};
  std::vector<AttentionCase> cases;
  AttentionCase c = base;
  c.seq_q = 40;
  c.seq_kv = 130;
  c.causal = true;
  c.gap = 8;
  cases.push_back(c);
  if (!all) return cases;
  const auto add = [&](AttentionCase one, int seq_q, int seq_kv, int dqk, int dv, bool causal) {
    one.seq_q = seq_q;
    one.seq_kv = seq_kv;
    one.dqk = dqk;
    one.dv = dv;
    one.causal = causal;
    cases.push_back(one);
  };
  add(base, 1, 1, 128, 128, false);
  add(base, 1, 700, 192, 128, true);
  add(base, 257, 100, 96, 96, true);
  add(base, 40, 0, 128, 128, false);
  add(base, 300, 65, 72, 80, false);
  for (const int sums : {0, 1, 2}) {
    if (kernel == "gfx950" && sums == 2) continue;
    c = base;
    c.tune = {{"sums", sums}};
    c.lse = sums != 1;
    c.hidden_values = true;
    add(c, 40, 70, 64, 64, true);
    add(c, 40, 30, 64, 64, true);
    c.hidden_values = false;
    c.nan_query = 3;
    add(c, 40, 70, 64, 64, sums != 1);
  }
  c = base;
  c.spread = 6.0f;
  c.rows_first = true;
  add(c, 70, 390, 128, 128, true);
  // Five heads to one of K and V, and the lengths around a tile.
  c = base;
  c.heads_q = 10;
  c.heads_kv = 2;
  c.batch = 2;
  c.rows_first = true;
  add(c, 33, 31, 128, 128, true);
  for (const int64_t lead : Leads(kernel)) {
    c = base;
    c.tune = {{"lead", lead}};
    for (const int keys : {31, 32, 33, 63, 64, 65}) add(c, 33, keys, 128, 128, keys % 2 == 0);
  }
  return cases;
}

TEST_P(CompiledKernels, AttentionAgreesWithDoublePrecision) {
  for (const Player& player : Players()) {
    for (const AttentionCase& c : Cases(GetParam().architecture, all())) {
      SCOPED_TRACE(Describe(c));
      const absl::StatusOr<AttentionResult> result = RunAttention(c, player);
      ASSERT_TRUE(result.ok()) << result.status();
      for (const EmulatorFinding& finding : result->report.findings) ADD_FAILURE() << finding.text;
      EXPECT_LT(result->output_error, 5e-3);
      EXPECT_LT(result->lse_error, 1e-3);
      EXPECT_TRUE(result->untouched_gaps);
    }
  }
}

std::vector<AttentionFp8Case> Fp8Cases(const std::string& architecture, bool all) {
  const bool wide = architecture == "gfx950";
  const AttentionFp8Case base{
      .kernel = architecture, .architecture = architecture, .exact_exponents = wide};
  std::vector<AttentionFp8Case> cases;
  AttentionFp8Case c = base;
  c.seq_q = 40;
  c.seq_kv = 140;
  c.causal = true;
  c.tune = {{"weights", 3}};
  cases.push_back(c);
  // A second tile of which a single key exists, as the compiler can see.
  c.seq_q = 33;
  c.seq_kv = 65;
  c.dqk = c.dv = 80;
  cases.push_back(c);
  // Row sums in other registers than before, so that weights are given those: they must keep their distance.
  if (!wide) {
    c = base;
    c.seq_q = 300;
    c.seq_kv = 33;
    c.causal = true;
    cases.push_back(c);
    // An odd number of tiles, of which V has not a byte more.
    c.seq_q = 33;
    c.seq_kv = 3 * 64;
    c.causal = false;
    cases.push_back(c);
  }
  // A scale of NaN, whose exponent is E8M0's NaN.
  if (wide) {
    c = base;
    c.k_scale_rows = 64;
    c.nan_k_scale = 1;
    c.seq_q = 40;
    c.seq_kv = 90;
    c.causal = true;
    cases.push_back(c);
  }
  if (!all) return cases;
  const std::vector<int64_t> weights =
      wide ? std::vector<int64_t>{0, 1, 2, 3, 4} : std::vector<int64_t>{0, 2, 3, 4};
  for (const int64_t one : weights) {
    c = base;
    c.tune = {{"weights", one}};
    c.seq_q = 100;
    c.seq_kv = 333;
    c.causal = true;
    cases.push_back(c);
    c.seq_q = 40;
    c.seq_kv = 20;
    c.nan_value = 15;
    cases.push_back(c);
    c.seq_kv = 260;
    c.nan_value = -1;
    c.causal = false;
    c.late = 4.0f;
    c.exact_exponents = false;
    cases.push_back(c);
    c.late = 0;
    c.nan_query = 3;
    c.nan_key = 100;
    cases.push_back(c);
    c = base;
    c.tune = {{"weights", one}};
    c.heads_q = 2;
    c.dqk = 192;
    c.q_scale_rows = 64;
    c.k_scale_rows = 64;
    c.gap = 16;
    c.seq_q = 70;
    c.seq_kv = 140;
    cases.push_back(c);
    c = base;
    c.tune = {{"weights", one}};
    c.seq_q = 1;
    c.seq_kv = 1;
    cases.push_back(c);
    c.seq_kv = 0;
    cases.push_back(c);
  }
  // The lengths around a tile.
  const int tile = wide ? 128 : 64;
  for (const int keys : {tile - 1, tile, tile + 1, 4 * tile + 1}) {
    c = base;
    c.seq_q = 33;
    c.seq_kv = keys;
    c.heads_q = 5;
    c.causal = keys % 2 == 0;
    cases.push_back(c);
  }
  for (const int64_t one : {2, 3, 4}) {
    if (!wide) continue;
    c = base;
    c.tune = {{"weights", one}, {"rows", 64}};
    c.seq_q = 200;
    c.seq_kv = 270;
    c.causal = true;
    cases.push_back(c);
    c.exact_exponents = false;
    c.causal = false;
    cases.push_back(c);
    c.tune = {{"weights", one}, {"pingpong", 1}};
    cases.push_back(c);
  }
  return cases;
}

TEST_P(CompiledKernels, Fp8AttentionAgreesWithDoublePrecision) {
  if (std::string(GetParam().architecture) == "gfx90a") {
    GTEST_SKIP() << "SKIPPED: gfx90a has no matrix instructions for FP8";
  }
  for (const Player& player : Players()) {
    for (const AttentionFp8Case& c : Fp8Cases(GetParam().architecture, all())) {
      SCOPED_TRACE(Describe(c));
      const absl::StatusOr<AttentionFp8Result> result = RunAttentionFp8(c, player);
      ASSERT_TRUE(result.ok()) << result.status();
      for (const EmulatorFinding& finding : result->report.findings) ADD_FAILURE() << finding.text;
      EXPECT_LT(result->output_error, 0.036);
      // One weight that outdoes all others may be 7.3 % off where bytes are made without an exponential.
      EXPECT_LT(result->lse_error, 0.075);
      EXPECT_EQ(result->wrong_nans, 0);
      EXPECT_TRUE(result->untouched_gaps);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Compilers, CompiledKernels, ::testing::ValuesIn(kCompilerCases),
                         CompilerCaseName);

}  // namespace
}  // namespace whet::emulator
