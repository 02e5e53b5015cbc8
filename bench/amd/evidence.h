// One variant through one compiler, with no GPU: what its code object uses, what its main loop issues,
// and how fast the issue simulation says that it is.
//
//   absl::StatusOr<KernelEvidence> e = Gather(compiler, kernel_template, problem, variant, target);
//   if (e.ok() && e->resources.spill_bytes == 0) Use(e->loop);
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/amd/issue_simulation.h"
#include "bench/amd/loop_counts.h"
#include "src/compile/compiler.h"
#include "src/model/kernel_template.h"

namespace whet::amd {

struct KernelEvidence {
  ResourceUse resources;
  LaunchGeometry launch;
  int64_t object_bytes = 0;
  int waves_per_simd = 1;   // of one block on a compute unit
  LoopCounts loop;          // of one iteration of the main loop
  double matrix_flops = 0;  // of one wave in one iteration, row sums by sparse products not counted
  std::vector<std::string> hazards;  // bench/amd/hazards.h, of the whole kernel
  // Absent (0 clocks) where an instruction's time is not known.
  IssueResult set_r;
  IssueResult set_v;
  // Of the whole chip, without what a causal problem wastes; 0 where the chip is not fitted.
  double tflops_r = 0;
  double tflops_v = 0;
  double tflops_packed_alone = 0;  // the worse of both sets, see IssueConstants
};

// The compiler's failure, or the disassembler's. A kernel without a loop with matrix instructions has
// empty counts.
absl::StatusOr<KernelEvidence> Gather(Compiler& compiler, const KernelTemplate& kernel_template,
                                      const Problem& problem, const Variant& variant,
                                      const Target& target);

// The operations of the dense matrix instructions in `loop` for one wave.
double MatrixFlops(const LoopCounts& loop);

}  // namespace whet::amd
