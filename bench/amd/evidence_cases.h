// What is compiled as evidence: for each template of the library the problems that matter, for each of
// its kernels the default variant or all of them, and what every code object must keep to.
//
//   for (const EvidenceCase& c : *EvidenceCases(target, /*all_variants=*/false)) {
//     absl::StatusOr<KernelEvidence> e = Gather(compiler, *c.kernel_template, c.problem, c.variant, target);
//     for (const std::string& complaint : Complaints(*e, c, target)) ...
//   }
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/amd/evidence.h"
#include "src/model/kernel_template.h"

namespace whet::amd {

struct EvidenceCase {
  std::shared_ptr<const KernelTemplate> kernel_template;
  Problem problem;
  Variant variant;
  double rows_per_block = 0;  // of attention, else 0
  double flops_per_tile = 0;  // of attention: 32 query rows and 64 keys, else 0
  bool causal = false;
  double seq = 0;
  // Each step waits for the loads of the step before and then issues its own: nothing is in flight at the
  // wait, and yet a load has a whole step to arrive.
  bool drains_each_step = false;
  std::string Name() const;  // "attention_forward 192/128 gfx950:lead=6"
};

// Every case for `target`, problems in order, kernels in order of preference. InvalidArgument when a
// template of the library does not parse.
absl::StatusOr<std::vector<EvidenceCase>> EvidenceCases(const Target& target, bool all_variants);

// What is wrong, one clause each: scratch memory, more registers or LDS than the block's waves can have,
// waits in the main loop that leave nothing in flight, accumulators that are moved about.
std::vector<std::string> Complaints(const KernelEvidence& evidence, const EvidenceCase& one,
                                    const Target& target);

}  // namespace whet::amd
