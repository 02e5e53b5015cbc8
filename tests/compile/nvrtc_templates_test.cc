// The FP8 attention kernel for Hopper through the compiler that the runtime uses: right where spills in the loop, or products that the
// assembler makes to wait for each other, would cost half of the speed and change no result.
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/compile/nvrtc/nvrtc.h"
#include "src/model/kernel_template.h"
#include "src/runtime/builtin_templates.h"
#include "tests/compile/compiler_fixture.h"

namespace whet {
namespace {

struct Case {
  std::string variant;
  int seq_kv;
  int dqk;
  int accuracy;
  int most_spilled;  // bytes; with three warpgroups a few of them in the loop over keys
};

std::string Problem(const Case& c) {
  const auto strides = [&](const char* name, const char* last, int64_t rows, int64_t row) {
    return absl::StrCat(",", name, "_stride_b=", 4 * rows * row, ",", name,
                        "_stride_h=", rows * row, ",", name, "_stride_", last, "=", row);
  };
  return absl::StrCat(
      "attention_forward_fp8:dtype=e4m3,batch=2,heads_q=4,heads_kv=4,seq_q=", c.seq_kv,
      ",seq_kv=", c.seq_kv, ",dqk=", c.dqk, ",dv=128,causal=1,accuracy=", c.accuracy,
      strides("q", "s", c.seq_kv, c.dqk), strides("k", "s", c.seq_kv, c.dqk),
      strides("v", "d", 128, (c.seq_kv + 15) / 16 * 16), strides("o", "s", c.seq_kv, 128));
}

class NvrtcTemplatesTest : public CompilerFixture {
 protected:
  void SetUp() override { Use(OpenNvrtc("", &helper_, &failures_)); }
};

TEST_F(NvrtcTemplatesTest, HopperFp8AttentionCompilesWithoutSpills) {
  const absl::StatusOr<KernelTemplate> t =
      KernelTemplate::Parse("attention_forward_fp8", BuiltinTemplateFiles());
  ASSERT_TRUE(t.ok()) << t.status();
  const Target target = *Target::Parse("sm_90a");
  const DeviceLimits limits = {
      .compute_units = 132, .l2_bytes = 50 << 20, .shared_bytes_max = 227 << 10};
  const std::string rest = ",scale_blocks=1,schedule=1,cache_mib=22";
  const std::vector<Case> cases = {
      {absl::StrCat("block_kv=128,direct=1,lazy=1,promote=16", rest), 3001, 128, 1, 0},
      {absl::StrCat("block_kv=128,direct=1,lazy=1,promote=16", rest), 4096, 192, 1, 0},
      {absl::StrCat("block_kv=96,direct=0,lazy=1,promote=0", rest), 1024, 128, 0, 0},
  };
  for (const Case& c : cases) {
    std::string operation;
    const absl::StatusOr<FieldValues> fields = ParseFieldText(Problem(c), &operation);
    ASSERT_TRUE(fields.ok()) << fields.status();
    const absl::StatusOr<whet::Problem> problem = t->MakeProblem(*fields);
    ASSERT_TRUE(problem.ok()) << problem.status();
    const absl::StatusOr<Variant> variant = Variant::Parse(absl::StrCat("sm90:", c.variant));
    ASSERT_TRUE(variant.ok()) << variant.status();
    const absl::StatusOr<Specialization> unit = t->Specialize(*problem, *variant, target, limits);
    ASSERT_TRUE(unit.ok()) << unit.status();
    ASSERT_EQ(unit->tensor_maps.size(), 5u);
    EXPECT_EQ(unit->tensor_maps[1].interleave, c.seq_kv % 2 == 0);
    CompileRequest request;
    request.label = variant->id();
    request.source = unit->source;
    request.entry = unit->entry;
    request.target = target;
    const absl::StatusOr<CodeObject> object = compiler_->Compile(request);
    ASSERT_TRUE(object.ok()) << object.status();
    EXPECT_LE(object->resources.spill_bytes, c.most_spilled) << c.variant;
  }
}

}  // namespace
}  // namespace whet
