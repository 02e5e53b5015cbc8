// What to measure first on a real MI300X or MI355X: the rates that decide between schedules, and the operand layouts that the kernels
// rely on. The device code are kernel templates beside this file; each rate is a variant of one of them.
//
//   MicrobenchmarkTemplates t = *LoadMicrobenchmarks("bench/hip/templates");
//   const auto rates = Rates(t, target);
//   for (const Rate& rate : *rates) { ... compile rate.variant, launch, RateClocks(rate, clocks) ... }
//   const auto layouts = Layouts(t, target);
//   for (const Layout& layout : *layouts) { ... launch ..., CheckLayout(layout, digit, d) ... }
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "src/model/kernel_template.h"

namespace whet::amd {

struct MicrobenchmarkTemplates {
  KernelTemplate rates;
  KernelTemplate layouts;
};

// Reads the templates in `directory`; device code that all templates share is the library's own.
absl::StatusOr<MicrobenchmarkTemplates> LoadMicrobenchmarks(const std::string& directory);

// One rate: a problem and a variant of the template `rates`.
struct Rate {
  std::string name;         // "v_exp_f32, 2 waves"
  std::string instruction;  // that is timed, as the disassembler calls it
  Problem problem;
  Variant variant;
  int64_t iterations = 0;
  int instructions = 16;  // of one wave in one iteration
  int waves_per_simd = 1;
  double flops = 0;  // of one instruction of a wave
  double bytes = 0;  // likewise
};
absl::StatusOr<std::vector<Rate>> Rates(const MicrobenchmarkTemplates& templates,
                                        const Target& target);

// Clocks between two of the timed instructions on one SIMD, from each wave's clocks: the slowest wave
// counts. Of barriers and of overlap, clocks of one of the first wave's.
double RateClocks(const Rate& rate, const std::vector<int64_t>& clocks);

// One layout: a problem of the template `layouts` for each digit.
struct Layout {
  std::string name;  // "v_mfma_f32_32x32x16_bf16"
  int shape = 0;
  std::vector<Problem> problems;  // one for each digit
};
absl::StatusOr<std::vector<Layout>> Layouts(const MicrobenchmarkTemplates& templates,
                                            const Target& target);

// Empty when the output `d` of the problem for `digit` is what the documented layout gives, otherwise
// the first element that is not.
std::string CheckLayout(const Layout& layout, int digit, const std::vector<float>& d);

}  // namespace whet::amd
