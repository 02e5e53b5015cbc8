// The variants of FP8 attention on Hopper: none that its class of accuracy does not allow, few enough to be tried, the default first.

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/model/kernel_template.h"
#include "src/runtime/builtin_templates.h"

namespace whet {
namespace {

struct Shape {
  int64_t seq = 4096, dqk = 128, dv = 128, accuracy = 1, k_scale_rows = 0;

  std::string ToString() const {
    return absl::StrCat(seq, " keys, ", dqk, "/", dv, ", class ", accuracy, ", scales per ",
                        k_scale_rows);
  }
};

class HopperFp8SpaceTest : public ::testing::Test {
 protected:
  static KernelTemplate Attention() {
    return *KernelTemplate::Parse("attention_forward_fp8", BuiltinTemplateFiles());
  }

  std::vector<Variant> Variants(const Shape& s) const {
    constexpr int64_t kHeads = 16;
    FieldValues fields = {{"dtype", "e4m3"},
                          {"batch", int64_t{1}},
                          {"heads_q", kHeads},
                          {"heads_kv", kHeads},
                          {"seq_q", s.seq},
                          {"seq_kv", s.seq},
                          {"dqk", s.dqk},
                          {"dv", s.dv},
                          {"causal", int64_t{1}},
                          {"v_stride_d", s.seq},
                          {"accuracy", s.accuracy},
                          {"k_scale_rows", s.k_scale_rows},
                          {"alignment", int64_t{16}}};
    for (const auto& [tensor, dim] : {std::pair("q", s.dqk), {"k", s.dqk}, {"o", s.dv}}) {
      fields.emplace_back(absl::StrCat(tensor, "_stride_s"), dim);
    }
    for (const auto& [tensor, dim] :
         {std::pair("q", s.dqk), {"k", s.dqk}, {"v", s.dv}, {"o", s.dv}}) {
      fields.emplace_back(absl::StrCat(tensor, "_stride_h"), s.seq * dim);
      fields.emplace_back(absl::StrCat(tensor, "_stride_b"), kHeads * s.seq * dim);
    }
    const absl::StatusOr<Problem> problem = attention_.MakeProblem(fields);
    EXPECT_TRUE(problem.ok()) << problem.status();
    const absl::StatusOr<std::vector<Variant>> variants =
        attention_.Variants(*problem, *Target::Parse("sm_90a"), limits_);
    EXPECT_TRUE(variants.ok()) << variants.status();
    return *variants;
  }

  std::vector<Shape> Shapes() const {
    std::vector<Shape> shapes;
    for (const int64_t seq : {64, 512, 1024, 2048, 2064, 4096, 8192, 8208, 16384, 65536}) {
      for (const int64_t accuracy : {0, 1, 2}) {
        for (const int64_t rows : {0, 64}) {
          shapes.push_back({seq, 128, 128, accuracy, rows});
          shapes.push_back({seq, 192, 128, accuracy, rows});
          shapes.push_back({seq, 192, 192, accuracy, rows});
          shapes.push_back({seq, 64, 64, accuracy, rows});
        }
      }
    }
    return shapes;
  }

  const KernelTemplate attention_ = Attention();
  const DeviceLimits limits_ = {
      .compute_units = 132, .l2_bytes = 50 << 20, .shared_bytes_max = 232448};
};

TEST_F(HopperFp8SpaceTest, EveryLengthHasAFewVariantsAndThisKernelFirst) {
  for (const Shape& shape : Shapes()) {
    const std::vector<Variant> variants = Variants(shape);
    ASSERT_FALSE(variants.empty()) << shape.ToString();
    EXPECT_EQ(variants[0].kernel, "sm90") << shape.ToString();
    EXPECT_LE(variants.size(), 44u) << shape.ToString();
  }
}

TEST_F(HopperFp8SpaceTest, NoVariantIsCoarserThanItsClass) {
  for (const Shape& shape : Shapes()) {
    const int64_t together[] = {1024, 2048, 8192};  // keys in one sum of the tensor cores
    for (const Variant& variant : Variants(shape)) {
      if (variant.kernel != "sm90") continue;
      const std::string id = variant.id();
      const auto is = [&](const std::string& value) { return absl::StrContains(id, value); };
      EXPECT_FALSE(shape.accuracy == 0 && is("direct=1")) << shape.ToString() << ": " << id;
      EXPECT_FALSE(shape.seq > together[shape.accuracy] && is("promote=0"))
          << shape.ToString() << ": " << id;
      EXPECT_FALSE(shape.accuracy == 0 && is("promote=16")) << shape.ToString() << ": " << id;
      const int64_t unscaled =
          shape.accuracy < 2 ? 0 : (is("direct=1") ? int64_t{1024} : int64_t{16384});
      EXPECT_FALSE(shape.seq > unscaled && is("scale_blocks=0")) << shape.ToString() << ": " << id;
    }
  }
}

TEST_F(HopperFp8SpaceTest, TheDefaultIsWhatWasMeasuredBest) {
  const std::pair<Shape, std::string> cases[] = {
      {{.seq = 512}, "block_kv=128,direct=1,lazy=1,promote=0,scale_blocks=1,schedule=1"},
      {{.seq = 4096}, "block_kv=128,direct=1,lazy=1,promote=16,scale_blocks=1,schedule=2"},
      {{.seq = 512, .dqk = 192},
       "block_kv=128,direct=1,lazy=1,promote=0,scale_blocks=1,schedule=1"},
      {{.seq = 16384, .dqk = 192},
       "block_kv=128,direct=1,lazy=1,promote=16,scale_blocks=1,schedule=2"},
      {{.seq = 16384, .dqk = 192, .k_scale_rows = 64},
       "block_kv=128,direct=1,lazy=1,promote=16,scale_blocks=1,schedule=2"},
      {{.seq = 8192, .dqk = 192, .accuracy = 2},
       "block_kv=192,direct=1,lazy=1,promote=0,scale_blocks=1,schedule=2"},
      {{.seq = 1024, .accuracy = 0},
       "block_kv=96,direct=0,lazy=1,promote=0,scale_blocks=1,schedule=1"},
      {{.seq = 16384, .accuracy = 0},
       "block_kv=128,direct=0,lazy=1,promote=8,scale_blocks=1,schedule=2"},
  };
  for (const auto& [shape, variant] : cases) {
    EXPECT_EQ(Variants(shape)[0].id(), absl::StrCat("sm90:", variant, ",cache_mib=22"))
        << shape.ToString();
  }
}

}  // namespace
}  // namespace whet
