// The BF16 attention kernel for Hopper through the compiler that the runtime uses: right where spills, or products that the assembler makes to
// wait for each other, would cost much of the speed and change no result.
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "src/compile/nvrtc/nvrtc.h"
#include "src/model/kernel_template.h"
#include "src/ops/operation.h"
#include "src/runtime/builtin_templates.h"
#include "tests/compile/compiler_fixture.h"

namespace whet {
namespace {

struct Shape {
  int64_t batch, heads, seq, dqk, dv;
};

class NvrtcAttentionTest : public CompilerFixture {
 protected:
  void SetUp() override { Use(OpenNvrtc("", &helper_, &failures_)); }
};

TEST_F(NvrtcAttentionTest, DefaultsOnHopperDoNotSpillAndDoNotSerialise) {
  const absl::StatusOr<KernelTemplate> t =
      KernelTemplate::Parse("attention_forward", BuiltinTemplateFiles());
  ASSERT_TRUE(t.ok()) << t.status();
  const Target target = *Target::Parse("sm_90a");
  const DeviceLimits limits = {
      .compute_units = 132, .l2_bytes = 50 << 20, .shared_bytes_max = 227 << 10};
  const std::vector<Shape> shapes = {
      {4, 32, 4096, 128, 128}, {16, 16, 1024, 192, 128}, {4, 51, 4096, 80, 80}};
  for (const Shape& s : shapes) {
    const FieldValues fields = {{"dtype", "bf16"},     {"batch", s.batch}, {"heads_q", s.heads},
                                {"heads_kv", s.heads}, {"seq_q", s.seq},   {"seq_kv", s.seq},
                                {"dqk", s.dqk},        {"dv", s.dv},       {"causal", 1}};
    const absl::StatusOr<Problem> problem =
        t->MakeProblem(OperationFor("attention_forward").CompleteFields(fields));
    ASSERT_TRUE(problem.ok()) << problem.status();
    const absl::StatusOr<std::vector<Variant>> variants = t->Variants(*problem, target, limits);
    ASSERT_TRUE(variants.ok()) << variants.status();
    const Variant& first = variants->front();
    ASSERT_EQ(first.kernel, "sm90");
    const absl::StatusOr<Specialization> unit = t->Specialize(*problem, first, target, limits);
    ASSERT_TRUE(unit.ok()) << unit.status();
    CompileRequest request;
    request.label = first.id();
    request.source = unit->source;
    request.entry = unit->entry;
    request.target = target;
    const absl::StatusOr<CodeObject> object = compiler_->Compile(request);
    ASSERT_TRUE(object.ok()) << object.status();
    EXPECT_EQ(object->resources.spill_bytes, 0) << s.dqk << "/" << s.dv << " " << first.id();
    EXPECT_FALSE(absl::StrContains(object->log, "serialized")) << object->log;
  }
}

}  // namespace
}  // namespace whet
