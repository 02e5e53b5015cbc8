// FP8 attention and quantisation on the CPU over their conformance tables: for each case the default and a seeded choice of
// another variant.

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "src/ops/operation.h"
#include "src/runtime/runtime.h"
#include "tests/conformance/conformance.h"
#include "tests/support/runfile.h"

namespace whet {
namespace {

// A compile per case and variant is what this costs: a quick run takes every twelfth case, all of them with
// WHET_TEST_ALL_CASES.
constexpr size_t kStride = 12;

void RunTable(const std::string& table, size_t least) {
  const auto cases = LoadCases(ReadRunfile(table));
  ASSERT_TRUE(cases.ok()) << cases.status();
  ASSERT_GT(cases->size(), least);
  Options options;
  options.tuning = TuningMode::kNever;
  const auto runtime = Runtime::Open(options, Platform::kCpu, 0);
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  const size_t stride = std::getenv("WHET_TEST_ALL_CASES") != nullptr ? 1 : kStride;
  std::mt19937 random(20261130);
  size_t compared = 0;
  for (size_t i = 0; i < cases->size(); i += stride) {
    const ConformanceCase& c = (*cases)[i];
    const auto kernel_template = (*runtime)->FindTemplate(c.operation);
    ASSERT_TRUE(kernel_template.ok()) << kernel_template.status();
    const auto problem =
        (*kernel_template)->MakeProblem(OperationFor(c.operation).CompleteFields(c.fields));
    ASSERT_TRUE(problem.ok()) << c.name << ": " << problem.status();
    const DeviceIdentity& identity = (*runtime)->device().identity();
    const auto variants =
        (*kernel_template)->Variants(*problem, identity.target, DeviceLimits::Of(identity));
    ASSERT_TRUE(variants.ok()) << c.name << ": " << variants.status();
    std::vector<Variant> chosen = {variants->front()};
    if (i % (2 * stride) == 0) chosen.push_back((*variants)[random() % variants->size()]);
    if (i == 0) chosen.push_back(variants->back());
    for (const Variant& variant : chosen) {
      const auto result = RunCase(**runtime, **kernel_template, c, variant);
      ASSERT_TRUE(result.ok()) << c.name << ", " << variant.id() << ": " << result.status();
      EXPECT_EQ(result->problem, "")
          << c.name << ", " << result->variant << ": " << problem->text();
      ++compared;
    }
  }
  EXPECT_GT(compared, cases->size() / stride);
}

TEST(Fp8Conformance, AttentionOnTheCpuAgreesWithFloat64) {
  RunTable("tests/conformance/attention_fp8_cases.jsonl", 60);
}

TEST(Fp8Conformance, QuantisationOnTheCpuAgreesWithFloat64) {
  RunTable("tests/conformance/quantize_fp8_cases.jsonl", 60);
}

}  // namespace
}  // namespace whet
