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
#include "src/model/problem.h"
#include "src/model/variant.h"
#include "src/runtime/runtime.h"

namespace whet {

struct ConformanceCase {
  std::string name;
  FieldValues fields;
  std::string data = "normal";
  uint64_t seed = 1;
};

// One JSON object per line: name, fields, data, seed. InvalidArgument names the line.
absl::StatusOr<std::vector<ConformanceCase>> LoadCases(const std::string& jsonl);

struct CaseResult {
  std::string variant;
  double relative_l2 = 0;  // largest over the outputs
  std::string problem;     // what is wrong, or empty
};

// Errors of the runtime (no such variant, no compiler, launch failed) are its status; wrong results are CaseResult::problem.
absl::StatusOr<CaseResult> RunCase(Runtime& runtime, const KernelTemplate& kernel_template,
                                   const ConformanceCase& c, const std::optional<Variant>& variant);

// Largest relative L2 error to float64 that a case may show: rounding of the dtype, not of the method.
double Allowed(const ConformanceCase& c);

}  // namespace whet
