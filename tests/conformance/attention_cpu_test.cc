// Attention on the CPU over the conformance table: for each case the reference, the default and a seeded choice of other variants.

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "src/runtime/runtime.h"
#include "tests/conformance/conformance.h"
#include "tests/support/runfile.h"

namespace whet {
namespace {

// A compile per case and variant is what this costs, so a quick run takes every fifteenth case; with WHET_TEST_ALL_CASES set, all.
constexpr size_t kStride = 15;

TEST(AttentionConformance, CpuVariantsAgreeWithFloat64) {
  const auto cases = LoadCases(ReadRunfile("tests/conformance/attention_cases.jsonl"));
  ASSERT_TRUE(cases.ok()) << cases.status();
  ASSERT_GT(cases->size(), 100u);
  Options options;
  options.tuning = TuningMode::kNever;
  const auto runtime = Runtime::Open(options, Platform::kCpu, 0);
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  const auto kernel_template = (*runtime)->FindTemplate("attention_forward");
  ASSERT_TRUE(kernel_template.ok()) << kernel_template.status();
  const char* all = std::getenv("WHET_TEST_ALL_CASES");
  const size_t stride = all != nullptr ? 1 : kStride;

  std::mt19937 random(20261130);
  int compared = 0;
  for (size_t i = 0; i < cases->size(); i += stride) {
    const ConformanceCase& c = (*cases)[i];
    const auto problem = (*kernel_template)->MakeProblem(c.fields);
    ASSERT_TRUE(problem.ok()) << c.name << ": " << problem.status();
    const DeviceIdentity& identity = (*runtime)->device().identity();
    const auto variants =
        (*kernel_template)->Variants(*problem, identity.target, DeviceLimits::Of(identity));
    ASSERT_TRUE(variants.ok()) << c.name << ": " << variants.status();
    std::vector<Variant> chosen = {variants->front(), (*variants)[random() % variants->size()]};
    if (i % (3 * stride) == 0) chosen.push_back(variants->back());
    for (const Variant& variant : chosen) {
      const auto result = RunCase(**runtime, **kernel_template, c, variant);
      ASSERT_TRUE(result.ok()) << c.name << ", " << variant.id() << ": " << result.status();
      EXPECT_EQ(result->problem, "")
          << c.name << ", " << result->variant << ": " << problem->text();
      ++compared;
    }
  }
  EXPECT_GT(compared, 34);
}

}  // namespace
}  // namespace whet
