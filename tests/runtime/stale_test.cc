// What other caches gave back though it was stale, asked of ours: the key changes when, and only
// when, what it stands for does. The numbers are those of the table in docs/cache.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_replace.h"
#include "cache/store.h"
#include "src/model/kernel_template.h"
#include "src/runtime/code_provider.h"
#include "tests/runtime/scale_add.h"

namespace whet {
namespace {

using ::testing::HasSubstr;

class StaleTest : public ::testing::Test {
 protected:
  StaleTest() : files_(ScaleAddFiles("[0, 1]", 0)) {
    files_["common/cpu_block.h"] = "#include \"common/helper.h\"\n";
    files_["common/helper.h"] = "static inline float Twice(float x) { return 2 * x; }\n";
    files_["common/unused.h"] = "#define UNUSED 1\n";
  }

  static Target Cpu(const char* text = "x86-64:avx2") { return *Target::Parse(text); }

  CodeKeyFields Fields(const FieldValues& values = {{"n", int64_t{100}}},
                       const char* target = "x86-64:avx2") const {
    const KernelTemplate t = *KernelTemplate::Parse("scale_add", files_);
    const Problem problem = *t.MakeProblem(values);
    const Variant variant = *t.DefaultVariant(problem, Cpu(target), {});
    return RequestFields(t, problem, *t.Specialize(problem, variant, Cpu(target), {}), Cpu(target));
  }

  std::string CodeRequest(const FieldValues& values = {{"n", int64_t{100}}}) const {
    return CodeRequestKey(Fields(values)).bytes();
  }

  std::string Tuning(int64_t n, const char* product = "a processor") const {
    const KernelTemplate t = *KernelTemplate::Parse("scale_add", files_);
    DeviceIdentity device;
    device.target = Cpu();
    device.product = product;
    return TuningKeyOf(t, *t.MakeProblem({{"n", n}}), device).bytes();
  }

  TemplateFiles files_;
};

TEST_F(StaleTest, A35_A38_AnEditedHelperIsAnotherKernel) {
  const std::string code = CodeRequest(), tuning = Tuning(100);
  files_["common/helper.h"] = "static inline float Twice(float x) { return x + x; }\n";
  EXPECT_NE(CodeRequest(), code);
  EXPECT_NE(Tuning(100), tuning);
}

TEST_F(StaleTest, A36_TheKeyChangesExactlyWithWhatIsInIt) {
  const std::string code = CodeRequest();
  EXPECT_EQ(CodeRequest(), code);
  // In another order, with a default spelled out, or beside a file that is not included: the same.
  EXPECT_EQ(CodeRequest({{"alignment", int64_t{16}}, {"n", int64_t{100}}}), code);
  files_["common/unused.h"] = "#define UNUSED 2\n";
  EXPECT_EQ(CodeRequest(), code);
  // A constant that is baked in.
  EXPECT_NE(CodeRequest({{"n", int64_t{101}}}), code);
  EXPECT_NE(CodeRequest({{"n", int64_t{100}}, {"alignment", int64_t{8}}}), code);
}

TEST_F(StaleTest, A40_A76_VersionsAndBuildsAreInTheKey) {
  CodeKeyFields fields = Fields();
  fields.compiler = "hostcxx";
  fields.compiler_version = "14.0.6";
  fields.compiler_build = "a";
  const std::string key = CodeKey(fields).bytes();
  CodeKeyFields other = fields;
  other.compiler_version = "14.0.7";
  EXPECT_NE(CodeKey(other).bytes(), key);
  other = fields;
  other.compiler_build = "b";
  EXPECT_NE(CodeKey(other).bytes(), key);
  const std::string request = CodeRequest();
  files_["scale_add/scale_add.json"] = absl::StrReplaceAll(files_["scale_add/scale_add.json"],
                                                           {{"\"version\": 1", "\"version\": 2"}});
  EXPECT_NE(CodeRequest(), request);
}

TEST_F(StaleTest, A46_A48_AWinnerBelongsToItsShapeItsVariantsAndItsDevice) {
  const std::string winner = Tuning(100);
  EXPECT_EQ(Tuning(100), winner);
  EXPECT_NE(Tuning(101), winner);
  EXPECT_NE(Tuning(100, "another processor"), winner);
  // A winner is named by its parameters' values, never by its place in a list; and other variants
  // to choose from make it another choice.
  files_ = ScaleAddFiles("[1, 0]", 0);
  files_["common/cpu_block.h"] = "#include \"common/helper.h\"\n";
  files_["common/helper.h"] = "static inline float Twice(float x) { return 2 * x; }\n";
  EXPECT_EQ(Fields().variant, "blocks:flavour=0");
  files_["scale_add/blocks.json"] =
      absl::StrReplaceAll(files_["scale_add/blocks.json"], {{"[1, 0]", "[1, 0, 2]"}});
  EXPECT_NE(Tuning(100), winner);
}

// A cache that lacks the running architecture is a miss with the target in its message, before
// anything is loaded.
TEST_F(StaleTest, A42_A43_CodeForAnotherTargetIsNotTaken) {
  const KernelTemplate t = *KernelTemplate::Parse("scale_add", files_);
  const Problem problem = *t.MakeProblem({{"n", int64_t{100}}});
  const std::unique_ptr<Store> store = Store::Open({}, Logger(LogSink()));
  const CodeKeyFields shipped = Fields({{"n", int64_t{100}}}, "x86-64:avx2,avx512f");
  ASSERT_TRUE(store
                  ->PutCode({.key = CodeKey(shipped).bytes(),
                             .request = CodeRequestKey(shipped).bytes(),
                             .object = "code for a larger processor",
                             .attributes = "{}"})
                  .ok());
  Toolchains toolchains({});
  Options options;
  options.cache_policy = CachePolicy::kOffline;
  const Logger log{LogSink()};
  CompileCounters counters;
  const Variant variant = *t.DefaultVariant(problem, Cpu(), {});
  CodeProvider small(Cpu(), {}, toolchains, *store, options, log, counters);
  const auto missing = small.Get(t, problem, variant, "");
  ASSERT_TRUE(absl::IsNotFound(missing.status())) << missing.status();
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("x86-64:avx2"));
  CodeProvider large(Cpu("x86-64:avx2,avx512f"), {}, toolchains, *store, options, log, counters);
  const auto found = large.Get(t, problem, variant, "");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->object, "code for a larger processor");
  EXPECT_EQ(counters.compiles, 0);
}

TEST(CompatibleTargetsTest, CodeForOpenFeaturesServesDevicesThatNameThem) {
  const auto texts = [](const char* target) {
    std::vector<std::string> all;
    for (const Target& t : CompatibleTargets(*Target::Parse(target))) all.push_back(t.ToString());
    return all;
  };
  EXPECT_THAT(texts("gfx942:sramecc+:xnack-"),
              ::testing::UnorderedElementsAre("gfx942:sramecc+:xnack-", "gfx942:sramecc+",
                                              "gfx942:xnack-", "gfx942"));
  EXPECT_EQ(texts("gfx942:sramecc+:xnack-").front(), "gfx942:sramecc+:xnack-");
  EXPECT_THAT(texts("gfx942"), ::testing::ElementsAre("gfx942"));
  EXPECT_THAT(texts("sm_90a"), ::testing::ElementsAre("sm_90a", "sm_90"));
  EXPECT_THAT(texts("sm_90"), ::testing::ElementsAre("sm_90"));
  EXPECT_EQ(texts("x86-64:avx2,fma").size(), 1u);
}

}  // namespace
}  // namespace whet
