#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "src/model/kernel_template.h"
#include "tests/support/sample_template.h"

namespace whet {
namespace {

KernelTemplate Sample() { return *KernelTemplate::Parse("sample", SampleTemplateFiles()); }

absl::StatusOr<Specialization> Specialize(const std::string& variant, const std::string& target,
                                          const DeviceLimits& limits = {}) {
  const KernelTemplate t = Sample();
  return t.Specialize(*t.MakeProblem(SampleFields()), *Variant::Parse(variant),
                      *Target::Parse(target), limits);
}

// Sources are compiled and cached by these bytes: a change of the prelude empties every code cache.
TEST(SpecializeTest, ThePreludeIsAContract) {
  const absl::StatusOr<Specialization> s = Specialize("cpu:block=16,vector=4", "x86-64:avx2");
  ASSERT_TRUE(s.ok()) << s.status();
  EXPECT_EQ(s->source,
            "#define WHET_PLATFORM_CPU 1\n"
            "#define WHET_ARCH_x86_64 1\n"
            "#define WHET_ENTRY sample_cpu\n"
            "#define WHET_F32 1\n"
            "#define WHET_F16 2\n"
            "#define WHET_BF16 3\n"
            "#define WHET_E4M3 4\n"
            "#define WHET_E4M3FNUZ 5\n"
            "#define WHET_E5M2 6\n"
            "#define WHET_I8 7\n"
            "#define WHET_U8 8\n"
            "#define WHET_I32 9\n"
            "#define WHET_I64 10\n"
            "#define SHAPE_DTYPE WHET_BF16\n"
            "#define SHAPE_ROWS 100\n"
            "#define SHAPE_COLUMNS 64\n"
            "#define SHAPE_BIAS 0\n"
            "#define SHAPE_LABEL \"plain\"\n"
            "#define SHAPE_ALIGNMENT 16\n"
            "#define SHAPE_SHIFT (-1)\n"
            "#define SHAPE_ELEMENT_BYTES 2\n"
            "#define SHAPE_ROW_BYTES 128\n"
            "#define TUNE_BLOCK 16\n"
            "#define TUNE_VECTOR 4\n"
            "#define LAUNCH_BLOCK_X 1\n"
            "#define LAUNCH_BLOCK_Y 1\n"
            "#define LAUNCH_BLOCK_Z 1\n"
            "#define LAUNCH_SHARED_BYTES 128\n"
            "#line 1 \"sample/cpu.cc\"\n"
            "#line 1 \"common/shared.h\"\n"
            "\n"
            "int shared_header;\n"
            "#line 2 \"sample/cpu.cc\"\n"
            "int cpu_source;\n");
  EXPECT_EQ(s->entry, "sample_cpu");
  EXPECT_EQ(s->template_name, "sample");
  EXPECT_EQ(s->variant.id(), "cpu:block=16,vector=4");
  EXPECT_EQ(s->launch.grid[0], 7);
  EXPECT_EQ(s->launch.shared_bytes, 128);
  EXPECT_EQ(s->options.at("hostcxx"), (std::vector<std::string>{"-ffast-math", "-DX=1"}));
  EXPECT_TRUE(s->tensor_maps.empty());
}

TEST(SpecializeTest, TensorMapsClusterAndPlatform) {
  const absl::StatusOr<Specialization> s = Specialize("wide:tile=64", "sm_90a");
  ASSERT_TRUE(s.ok()) << s.status();
  EXPECT_EQ(s->source.rfind("#define WHET_PLATFORM_CUDA 1\n#define WHET_ARCH_sm_90a 1\n", 0), 0u);
  EXPECT_EQ(s->launch.cluster[0], 2);
  EXPECT_EQ(s->launch.grid[0], 2);
  ASSERT_EQ(s->tensor_maps.size(), 1u);
  EXPECT_EQ(s->tensor_maps[0].name, "x_map");
  EXPECT_EQ(s->tensor_maps[0].argument, 0);
  EXPECT_EQ(s->tensor_maps[0].box, (std::vector<int64_t>{64, 64}));
  EXPECT_EQ(s->tensor_maps[0].swizzle_bytes, 128);
}

TEST(SpecializeTest, AnEmptyProblemLaunchesNothing) {
  const KernelTemplate t = Sample();
  FieldValues fields = SampleFields();
  fields[1].second = int64_t{0};
  const absl::StatusOr<Specialization> s = t.Specialize(
      *t.MakeProblem(fields), *Variant::Parse("gpu:threads=64"), *Target::Parse("sm_80"), {});
  ASSERT_TRUE(s.ok()) << s.status();
  EXPECT_TRUE(s->launch.empty());
}

// The device's limits decide whether a variant fits; what they are is no part of the source.
TEST(SpecializeTest, TheSourceDoesNotDependOnTheDevice) {
  const DeviceLimits limits = {
      .compute_units = 132, .l2_bytes = 50 << 20, .shared_bytes_max = 227 << 10};
  EXPECT_EQ(Specialize("wide:tile=64", "sm_90a")->source,
            Specialize("wide:tile=64", "sm_90a", limits)->source);
}

struct Refused {
  std::string variant;
  std::string target;
  DeviceLimits limits;
  std::string message;
};

TEST(SpecializeTest, RefusesWhatIsNoVariant) {
  const std::vector<Refused> cases = {
      {"none:x=1", "x86-64", {}, "there is no such kernel"},
      {"cpu", "x86-64", {}, "kernel cpu has 2 parameters, not 0"},
      {"cpu:vector=1,block=8", "x86-64", {}, "parameter 1 of kernel cpu is block, not vector"},
      {"cpu:block=9,vector=1", "x86-64", {}, "9 is not one of the values of block for x86-64"},
      {"cpu:block=8,vector=4", "x86-64", {}, "vectors need avx2"},
      {"cpu:block=8,vector=1", "gfx942", {}, "it is not for hip"},
      {"gpu:threads=512", "gfx950", {}, "512 is not one of the values of threads for gfx950"},
      {"wide:tile=64", "sm_80", {}, "it is not for sm_80"},
      {"wide:tile=512", "sm_90a", {}, "box of tensor map x_map has an extent of 512"},
      {"wide:tile=128", "sm_90a", {.shared_bytes_max = 1000}, "a block can have 1000"},
  };
  for (const Refused& c : cases) {
    const absl::Status status = Specialize(c.variant, c.target, c.limits).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.variant;
    EXPECT_NE(status.message().find(c.message), absl::string_view::npos) << status;
    EXPECT_NE(status.message().find("cannot specialise sample " + c.variant + " for " + c.target),
              absl::string_view::npos)
        << status;
  }
}

TEST(SpecializeTest, ExtremeIntegersAreLiterals) {
  const KernelTemplate t = Sample();
  FieldValues fields = SampleFields();
  fields.emplace_back("shift", std::numeric_limits<int64_t>::min());
  const absl::StatusOr<Specialization> s = t.Specialize(
      *t.MakeProblem(fields), *Variant::Parse("gpu:threads=64"), *Target::Parse("sm_80"), {});
  ASSERT_TRUE(s.ok()) << s.status();
  EXPECT_NE(s->source.find("#define SHAPE_SHIFT (-9223372036854775807 - 1)\n"), std::string::npos);
}

}  // namespace
}  // namespace whet
