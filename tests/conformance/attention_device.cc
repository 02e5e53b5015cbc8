// Runs the conformance table on a device and says what it found: for machines with a GPU, where there is no test runner.
//
//   attention_device CASES.jsonl [cuda|hip|cpu] [variants per case, default 3; 0: all]
//
// Ends with "N passed, N failed" and exits with 1 when something failed.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "src/base/files.h"
#include "src/ops/operation.h"
#include "src/runtime/runtime.h"
#include "tests/conformance/conformance.h"

namespace whet {
namespace {

int Run(const std::string& path, Platform platform, size_t per_case) {
  const absl::StatusOr<std::string> text = ReadFile(path, 16 << 20);
  const auto cases =
      text.ok() ? LoadCases(*text) : absl::StatusOr<std::vector<ConformanceCase>>(text.status());
  if (!cases.ok()) {
    std::fprintf(stderr, "%s\n", cases.status().ToString().c_str());
    return 2;
  }
  absl::StatusOr<Options> options = OptionsFromEnvironment(SystemEnvironment());
  if (!options.ok()) {
    std::fprintf(stderr, "%s\n", options.status().ToString().c_str());
    return 2;
  }
  options->tuning = TuningMode::kNever;
  const auto runtime = Runtime::Open(*options, platform, 0);
  if (!runtime.ok()) {
    std::fprintf(stderr, "%s\n", runtime.status().ToString().c_str());
    return 2;
  }
  const DeviceIdentity& identity = (*runtime)->device().identity();
  std::mt19937 random(20261130);
  int passed = 0, failed = 0;
  double worst = 0;
  for (const ConformanceCase& listed : *cases) {
    const ConformanceCase c = ForTarget(listed, identity.target);
    const auto kernel_template = (*runtime)->FindTemplate(c.operation);
    if (!kernel_template.ok()) {
      std::fprintf(stderr, "%s\n", kernel_template.status().ToString().c_str());
      return 2;
    }
    const auto problem =
        (*kernel_template)->MakeProblem(OperationFor(c.operation).CompleteFields(c.fields));
    const auto variants =
        problem.ok()
            ? (*kernel_template)->Variants(*problem, identity.target, DeviceLimits::Of(identity))
            : absl::StatusOr<std::vector<Variant>>(problem.status());
    if (!variants.ok()) {
      std::printf("FAILED %s: %s\n", c.name.c_str(), variants.status().ToString().c_str());
      ++failed;
      continue;
    }
    // The first and the last (preferred kernel and fallback), then by lot.
    std::vector<Variant> chosen = *variants;
    if (per_case > 0 && chosen.size() > per_case) {
      std::shuffle(chosen.begin() + 1, chosen.end() - 1, random);
      std::swap(chosen[1], chosen.back());
      chosen.resize(per_case);
    }
    for (const Variant& variant : chosen) {
      const auto result = RunCase(**runtime, **kernel_template, c, variant);
      if (result.ok() && result->problem.empty()) {
        ++passed;
        worst = std::max(worst, result->relative_l2);
        continue;
      }
      ++failed;
      std::printf("FAILED %s, %s: %s\n", c.name.c_str(), variant.id().c_str(),
                  result.ok() ? result->problem.c_str() : result.status().ToString().c_str());
      if (absl::IsUnavailable(result.status())) {
        std::printf("the device is lost; stopping\n%d passed, %d failed\n", passed, failed);
        return 1;
      }
    }
  }
  std::printf("%s: largest relative L2 difference to float64 %.3g\n%d passed, %d failed\n",
              identity.product.c_str(), worst, passed, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace whet

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(
        stderr, "usage: attention_device CASES.jsonl [cuda|hip|cpu] [variants per case; 0: all]\n");
    return 2;
  }
  const std::string platform = argc > 2 ? argv[2] : "cuda";
  const int per_case = argc > 3 ? std::atoi(argv[3]) : 3;
  return whet::Run(argv[1],
                   platform == "cpu"   ? whet::Platform::kCpu
                   : platform == "hip" ? whet::Platform::kHip
                                       : whet::Platform::kCuda,
                   static_cast<size_t>(std::max(0, per_case)));
}
