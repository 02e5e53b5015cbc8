// The AMD attention kernels of the library, lane by lane, against attention in double precision.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/emulate/attention_case.h"

namespace whet::emulator {
namespace {

struct Shape {
  int batch, heads_q, heads_kv, seq_q, seq_kv, dqk, dv;
};

// Lengths around the tiles (32 and 64 keys, 32 and 256 rows), rows with no visible key (causal with fewer keys than rows), grouped heads,
// head dimensions that fill their padding and that do not.
const std::vector<Shape> kMatrixShapes = {
    {1, 2, 1, 300, 200, 128, 128}, {1, 1, 1, 130, 700, 192, 128}, {1, 4, 2, 5, 64, 64, 64},
    {2, 2, 2, 33, 65, 72, 80},     {1, 1, 1, 257, 1, 96, 96},     {1, 1, 1, 40, 0, 128, 128},
    {1, 2, 2, 0, 10, 128, 128},    {1, 1, 1, 64, 128, 112, 40},   {1, 1, 1, 100, 130, 8, 8},
    {1, 1, 1, 513, 127, 160, 128},
};
const std::vector<Shape> kPortableShapes = {
    {1, 2, 1, 65, 70, 128, 128}, {1, 6, 2, 65, 33, 72, 80}, {1, 2, 1, 7, 130, 1, 1},
    {1, 1, 1, 130, 5, 256, 256}, {1, 2, 2, 100, 0, 64, 64}, {1, 2, 2, 0, 10, 64, 64},
};

// The emulator takes a second or two for a case: a quick run takes the shapes causal or not, and the
// portable kernel's in BF16 or F32, by turns; with WHET_TEST_ALL_CASES set, both.
std::vector<AttentionCase> Cases() {
  const bool all = std::getenv("WHET_TEST_ALL_CASES") != nullptr;
  int shapes = 0;
  std::vector<AttentionCase> cases;
  const auto add = [&](AttentionCase c, const Shape& s) {
    c.batch = s.batch;
    c.heads_q = s.heads_q;
    c.heads_kv = s.heads_kv;
    c.seq_q = s.seq_q;
    c.seq_kv = s.seq_kv;
    c.dqk = s.dqk;
    c.dv = s.dv;
    // Two kernels share a shape.
    const bool turn = shapes++ / 2 % 2 == 1;
    for (const bool causal : {false, true}) {
      if (!all && causal != turn) continue;
      c.causal = causal;
      // Both layouts and both with and without gaps, not every combination.
      c.rows_first = cases.size() % 2 == 1;
      c.gap = cases.size() % 3 == 1 ? 8 : 0;
      cases.push_back(c);
    }
  };
  for (const Shape& s : kMatrixShapes) {
    add({.kernel = "gfx950", .architecture = "gfx950"}, s);
    add({.kernel = "gfx9", .architecture = s.seq_q % 2 == 0 ? "gfx942" : "gfx90a"}, s);
  }
  int variant = 0;
  for (const Shape& s : kPortableShapes) {
    for (const bool bf16 : {false, true}) {
      if (!all && bf16 != (variant / 2 % 2 == 1)) {
        ++variant;
        continue;
      }
      const int64_t block_q = int64_t{16} << variant % 3, block_kv = variant % 2 == 0 ? 64 : 32;
      add({.kernel = "portable",
           .architecture = variant % 3 == 0 ? "gfx1030" : "gfx90a",
           .tune = {{"block_kv", block_kv}, {"block_q", block_q}},
           .bf16 = bf16,
           .alignment = 4},
          s);
      ++variant;
    }
  }
  // What is not finite stays in the rows that see it: a value (and rows that see no key at all), a query. Each with every kind of row sums.
  for (const std::string kernel : {"gfx950", "gfx9"}) {
    for (const int sums : {0, 1, 2}) {
      if (kernel == "gfx950" && sums == 2) continue;
      AttentionCase c{.kernel = kernel,
                      .architecture = kernel == "gfx9" ? "gfx942" : "gfx950",
                      .tune = {{"sums", sums}},
                      .seq_q = 40,
                      .seq_kv = 70,
                      .dqk = 64,
                      .dv = 64,
                      .causal = true,
                      .lse = sums != 1};
      c.hidden_values = true;
      cases.push_back(c);
      c.seq_kv = 30;
      cases.push_back(c);
      c.hidden_values = false;
      c.seq_kv = 70;
      c.causal = sums != 1;
      c.nan_query = 3;
      cases.push_back(c);
    }
  }
  // Logits that outgrow the first tile's maximum, so that references move; a negative scale; no LSE; every lead.
  for (const char* kernel : {"gfx950", "gfx9"}) {
    AttentionCase c{.kernel = kernel,
                    .architecture = std::string(kernel) == "gfx9" ? "gfx942" : "gfx950",
                    .seq_q = 70,
                    .seq_kv = 390,
                    .causal = true,
                    .spread = 6.0f};
    cases.push_back(c);
    c.spread = 1.0f;
    c.scale = -0.3f;
    c.lse = false;
    cases.push_back(c);
    for (const int lead :
         std::string(kernel) == "gfx9" ? std::vector<int>{1, 2} : std::vector<int>{4, 6}) {
      c.tune = {{"lead", lead}};
      cases.push_back(c);
    }
    // References that move with every kind of row sums.
    c.spread = 6.0f;
    for (const int sums :
         std::string(kernel) == "gfx9" ? std::vector<int>{0, 1, 2} : std::vector<int>{0, 1}) {
      c.tune = {{"sums", sums}};
      cases.push_back(c);
    }
  }
  return cases;
}

class AttentionKernels : public ::testing::TestWithParam<AttentionCase> {};

TEST_P(AttentionKernels, AgreeWithDoublePrecision) {
  const AttentionCase& c = GetParam();
  SCOPED_TRACE(Describe(c));
  const absl::StatusOr<AttentionResult> result = RunAttention(c);
  ASSERT_TRUE(result.ok()) << result.status();
  for (const EmulatorFinding& finding : result->report.findings) ADD_FAILURE() << finding.text;
  EXPECT_EQ(result->rows, int64_t{c.batch} * c.heads_q * c.seq_q);
  EXPECT_LT(result->output_error, c.bf16 ? 4e-3 : 2e-6);
  EXPECT_LT(result->lse_error, c.spread > 1 ? 1e-4 : 1e-5);
  EXPECT_TRUE(result->untouched_gaps);
}

INSTANTIATE_TEST_SUITE_P(Table, AttentionKernels, ::testing::ValuesIn(Cases()));

// The block order that the kernels promise, and that a partial run is compared only where it ran.
TEST(AttentionKernels, OnlyVisitedBlocksAreCompared) {
  AttentionCase c{.kernel = "gfx950", .architecture = "gfx950", .seq_q = 600, .seq_kv = 64};
  c.blocks = {0};
  const absl::StatusOr<AttentionResult> result = RunAttention(c);
  ASSERT_TRUE(result.ok()) << result.status();
  // The last rows of a head come first: 600 - 512 of them.
  EXPECT_EQ(result->rows, 88);
}

}  // namespace
}  // namespace whet::emulator
