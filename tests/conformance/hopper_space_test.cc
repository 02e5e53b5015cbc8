// The variants of Hopper attention: few enough to be tried in a first call, some for every problem that the kernel is for, and the ones that were
// measured best first.

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/model/kernel_template.h"
#include "src/ops/operation.h"
#include "src/runtime/builtin_templates.h"

namespace whet {
namespace {

struct Shape {
  int64_t batch = 4, heads = 32, seq = 4096, dqk = 128, dv = 128, causal = 1;
};

class HopperSpaceTest : public ::testing::Test {
 protected:
  static KernelTemplate Attention() {
    return *KernelTemplate::Parse("attention_forward", BuiltinTemplateFiles());
  }

  std::vector<Variant> Variants(const Shape& s) const {
    const FieldValues fields = {{"dtype", "bf16"},     {"batch", s.batch}, {"heads_q", s.heads},
                                {"heads_kv", s.heads}, {"seq_q", s.seq},   {"seq_kv", s.seq},
                                {"dqk", s.dqk},        {"dv", s.dv},       {"causal", s.causal}};
    const absl::StatusOr<Problem> problem =
        attention_.MakeProblem(OperationFor("attention_forward").CompleteFields(fields));
    EXPECT_TRUE(problem.ok()) << problem.status();
    const absl::StatusOr<std::vector<Variant>> variants =
        attention_.Variants(*problem, *Target::Parse("sm_90a"), limits_);
    EXPECT_TRUE(variants.ok()) << variants.status();
    return *variants;
  }

  const KernelTemplate attention_ = Attention();
  const DeviceLimits limits_ = {
      .compute_units = 132, .l2_bytes = 50 << 20, .shared_bytes_max = 232448};
};

TEST_F(HopperSpaceTest, EveryHeadDimensionHasAFewVariants) {
  for (int64_t dqk = 8; dqk <= 256; dqk += 16) {
    for (int64_t dv = 8; dv <= 256; dv += 8) {
      const std::vector<Variant> variants = Variants({.dqk = dqk, .dv = dv});
      ASSERT_FALSE(variants.empty());
      EXPECT_EQ(variants[0].kernel, "sm90") << dqk << "/" << dv;
      EXPECT_LE(variants.size(), 24u) << dqk << "/" << dv;
    }
  }
}

TEST_F(HopperSpaceTest, EveryLengthHasAFewVariants) {
  for (const int64_t seq : {1, 63, 64, 65, 128, 1000, 2047, 2048, 4097, 131072}) {
    for (const int64_t causal : {0, 1}) {
      for (const int64_t dim : {64, 128, 256}) {
        const std::vector<Variant> variants =
            Variants({.batch = 1, .heads = 3, .seq = seq, .dqk = dim, .dv = dim, .causal = causal});
        EXPECT_EQ(variants[0].kernel, "sm90") << seq << " " << causal << " " << dim;
        EXPECT_LE(variants.size(), 24u) << seq << " " << causal << " " << dim;
      }
    }
  }
}

TEST_F(HopperSpaceTest, TheDefaultIsWhatWasMeasuredBest) {
  struct Case {
    Shape shape;
    const char* variant;
  };
  const Case cases[] = {
      {{.batch = 32, .seq = 512},
       "warpgroups=2,block_kv=128,stages=2,speculate=1,schedule=2,cache_mib=22"},
      {{}, "warpgroups=2,block_kv=128,stages=2,speculate=1,schedule=2,cache_mib=22"},
      {{.batch = 1, .seq = 16384},
       "warpgroups=2,block_kv=128,stages=2,speculate=1,schedule=2,cache_mib=22"},
      {{.heads = 16, .dqk = 192},
       "warpgroups=2,block_kv=128,stages=2,speculate=1,schedule=2,cache_mib=22"},
      {{.batch = 16, .heads = 16, .seq = 1024, .dqk = 192},
       "warpgroups=2,block_kv=128,stages=2,speculate=1,schedule=2,cache_mib=22"},
      {{.heads = 64, .dqk = 64, .dv = 64},
       "warpgroups=3,block_kv=96,stages=2,speculate=1,schedule=2,cache_mib=22"},
      {{.heads = 51, .dqk = 80, .dv = 80},
       "warpgroups=3,block_kv=96,stages=2,speculate=0,schedule=2,cache_mib=22"},
      {{.heads = 26, .dqk = 160, .dv = 160},
       "warpgroups=2,block_kv=96,stages=2,speculate=1,schedule=2,cache_mib=22"},
      {{.heads = 16, .dqk = 256, .dv = 256},
       "warpgroups=2,block_kv=64,stages=2,speculate=0,schedule=2,cache_mib=22"},
      {{.causal = 0}, "warpgroups=2,block_kv=128,stages=2,speculate=1,schedule=1,cache_mib=22"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(Variants(c.shape)[0].id(), absl::StrCat("sm90:", c.variant))
        << c.shape.seq << " " << c.shape.dqk << "/" << c.shape.dv;
  }
}

TEST_F(HopperSpaceTest, ThePortableKernelOnlyFillsIn) {
  int portable = 0;
  for (const Variant& variant : Variants({})) portable += variant.kernel == "portable";
  EXPECT_EQ(portable, 1);
  // Head dimensions that are no multiple of 8.
  EXPECT_EQ(Variants({.dqk = 100, .dv = 36})[0].kernel, "portable");
}

}  // namespace
}  // namespace whet
