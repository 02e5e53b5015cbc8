// Which kernel quantises what on Hopper, and with which variant first: the one that was measured best.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/model/kernel_template.h"
#include "src/ops/operation.h"
#include "src/runtime/builtin_templates.h"

namespace whet {
namespace {

struct Case {
  const char* why;
  FieldValues more;  // than BF16, 32 heads, 16384 tokens, and the dim
  int64_t dim;
  const char* variant;
};

class HopperQuantizeSpaceTest : public ::testing::Test {
 protected:
  static KernelTemplate Quantize() {
    return *KernelTemplate::Parse("quantize_fp8", BuiltinTemplateFiles());
  }

  std::vector<Variant> Variants(const Case& c) const {
    FieldValues fields = {{"batch", int64_t{1}}, {"heads", int64_t{32}}, {"dim", c.dim}};
    fields.insert(fields.end(), c.more.begin(), c.more.end());
    SetDefaultField(&fields, "dtype", "bf16");
    SetDefaultField(&fields, "seq", int64_t{16384});
    const absl::StatusOr<Problem> problem =
        quantize_.MakeProblem(OperationFor("quantize_fp8").CompleteFields(std::move(fields)));
    EXPECT_TRUE(problem.ok()) << c.why << ": " << problem.status();
    const absl::StatusOr<std::vector<Variant>> variants = quantize_.Variants(
        *problem, *Target::Parse("sm_90a"),
        {.compute_units = 132, .l2_bytes = 50 << 20, .shared_bytes_max = 232448});
    EXPECT_TRUE(variants.ok()) << c.why << ": " << variants.status();
    return *variants;
  }

  const KernelTemplate quantize_ = Quantize();
};

TEST_F(HopperQuantizeSpaceTest, TheDefaultIsWhatWasMeasuredBest) {
  const FieldValues rotated = {{"rotate", int64_t{1}}, {"scale_rows", int64_t{64}}};
  const FieldValues both = {
      {"rotate", int64_t{1}}, {"scale_rows", int64_t{64}}, {"center", int64_t{1}}};
  const Case cases[] = {
      {"queries", rotated, 128, "sm90:slots=4,blocks=1,lag_mib=20"},
      {"keys, both remedies", both, 128, "sm90:slots=3,blocks=2,lag_mib=28"},
      {"keys, one scale", {{"center", int64_t{1}}}, 128, "sm90:slots=4,blocks=1,lag_mib=28"},
      {"values", {{"transpose", int64_t{1}}}, 128, "sm90:slots=4,blocks=1,lag_mib=20"},
      {"keys of 192", both, 192, "sm90:slots=4,blocks=1,lag_mib=28"},
      {"keys of 64", both, 64, "sm90:slots=3,blocks=3,lag_mib=28"},
      {"keys, centred on a sample",
       {{"rotate", int64_t{1}},
        {"scale_rows", int64_t{64}},
        {"center", int64_t{1}},
        {"sampled_mean", int64_t{1}}},
       128,
       "sm90:slots=3,blocks=2,lag_mib=20"},
      {"queries of 192", rotated, 192, "sm90:slots=3,blocks=1,lag_mib=20"},
      {"one token", {{"seq", int64_t{1}}}, 128, "sm90:slots=4,blocks=1,lag_mib=20"},
  };
  for (const Case& c : cases) {
    const std::vector<Variant> variants = Variants(c);
    ASSERT_FALSE(variants.empty()) << c.why;
    EXPECT_EQ(variants[0].id(), c.variant) << c.why;
    EXPECT_LE(variants.size(), 16u) << c.why;
  }
}

TEST_F(HopperQuantizeSpaceTest, ThePortableKernelTakesTheRest) {
  const Case cases[] = {
      {"a dim without a transform in blocks of 16", {}, 72, ""},
      {"a dim that is too large for the registers", {{"rotate", int64_t{1}}}, 256, ""},
      {"f32", {{"dtype", "f32"}}, 128, ""},
      {"the other e4m3", {{"to", "e4m3fnuz"}}, 128, ""},
      {"one scale for all", {{"per_tensor", int64_t{1}}}, 128, ""},
      {"shifts of the log-sum-exp", {{"lse_shift", int64_t{1}}}, 128, ""},
      {"centred values", {{"transpose", int64_t{1}}, {"center", int64_t{1}}}, 128, ""},
      {"one scale and a sample", {{"center", int64_t{1}}, {"sampled_mean", int64_t{1}}}, 128, ""},
      {"pointers of no alignment", {{"alignment", int64_t{2}}}, 128, ""},
      {"no tokens", {{"seq", int64_t{0}}}, 128, ""},
  };
  for (const Case& c : cases) {
    for (const Variant& variant : Variants(c)) EXPECT_EQ(variant.kernel, "gpu") << c.why;
  }
}

}  // namespace
}  // namespace whet
