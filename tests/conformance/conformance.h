// The conformance table: one list of cases for every platform, compared with float64.
//
//   std::vector<ConformanceCase> cases = *LoadCases(ReadRunfile("tests/conformance/attention_cases.jsonl"));
//   CaseResult r = *RunCase(runtime, kernel_template, cases[0], variant);    // nullopt: as the runtime settles it
//   EXPECT_EQ(r.problem, "");
//
// Every buffer lies between guard bands and outputs begin as NaN, so a write outside, an element left out and a read of padding all show.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/model/problem.h"
#include "src/model/variant.h"
#include "src/runtime/runtime.h"

namespace whet {

struct ConformanceCase {
  std::string operation = "attention_forward";
  std::string name;
  FieldValues fields;
  std::string data = "normal";
  uint64_t seed = 1;
};

// One JSON object per line: operation, name, fields, data, seed. InvalidArgument names the line.
absl::StatusOr<std::vector<ConformanceCase>> LoadCases(const std::string& jsonl);

struct CaseResult {
  std::string variant;
  double relative_l2 = 0;  // largest over the outputs
  std::string problem;     // what is wrong, or empty
};

// Errors of the runtime (no such variant, no compiler, launch failed) are its status; wrong results are CaseResult::problem.
absl::StatusOr<CaseResult> RunCase(Runtime& runtime, const KernelTemplate& kernel_template,
                                   const ConformanceCase& c, const std::optional<Variant>& variant);

// The case with the FP8 flavour that the target has: tables say e4m3.
ConformanceCase ForTarget(ConformanceCase c, const Target& target);

// Largest relative L2 error to float64 that a case may show on that kernel: rounding of the dtype, not of the method; for FP8
// kernels that round probabilities, the bound of the accuracy class that the case accepts (docs/fp8.md).
double Allowed(const ConformanceCase& c, absl::string_view kernel);

}  // namespace whet
