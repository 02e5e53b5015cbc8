#include "bench/amd/evidence.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/match.h"
#include "bench/amd/build_variant.h"
#include "bench/amd/hazards.h"

namespace whet::amd {
namespace {

IssueResult Simulate(const std::vector<Instruction>& loop, int waves,
                     const IssueConstants& constants) {
  const absl::StatusOr<std::vector<WaveStep>> steps = WaveSteps(loop, constants);
  if (!steps.ok() || steps->empty()) return {};
  return SimulateIssue(std::vector<std::vector<WaveStep>>(static_cast<size_t>(waves), *steps),
                       constants);
}

}  // namespace

double MatrixFlops(const LoopCounts& loop) {
  double flops = 0;
  for (const auto& [operation, number] : loop.matrix) {
    if (!absl::StartsWith(operation, "v_mfma")) continue;
    // v_mfma_f32_32x32x16_bf16, v_mfma_f32_32x32x8bf16_1k, v_mfma_scale_f32_32x32x64_f8f6f4. Those of 16 rows are row sums, no work that was asked for.
    const size_t shape = operation.find("_32x32x");
    int depth = 0;
    if (shape != std::string::npos &&
        std::sscanf(operation.c_str() + shape, "_32x32x%d", &depth) == 1) {
      flops += 2.0 * 32 * 32 * depth * number;
    }
  }
  return flops;
}

absl::StatusOr<KernelEvidence> Gather(Compiler& compiler, const KernelTemplate& kernel_template,
                                      const Problem& problem, const Variant& variant,
                                      const Target& target) {
  const absl::StatusOr<BuiltVariant> built =
      BuildVariant(compiler, kernel_template, problem, variant, target);
  if (!built.ok()) return built.status();
  const absl::StatusOr<std::string> listing = Disassemble(built->object.bytes);
  if (!listing.ok()) return listing.status();
  const std::vector<Instruction> code = ParseListing(*listing);
  const std::vector<Instruction> loop = MainLoop(code);

  KernelEvidence evidence;
  evidence.resources = built->object.resources;
  evidence.launch = built->launch;
  evidence.object_bytes = static_cast<int64_t>(built->object.bytes.size());
  const int64_t threads = built->launch.block[0] * built->launch.block[1] * built->launch.block[2];
  evidence.waves_per_simd = static_cast<int>(std::max<int64_t>(1, threads / 256));
  for (Hazard& hazard : FindHazards(code, target.architecture)) {
    evidence.hazards.push_back(std::move(hazard.what));
  }
  evidence.loop = CountLoop(loop);
  evidence.matrix_flops = MatrixFlops(evidence.loop);
  evidence.set_r = Simulate(loop, evidence.waves_per_simd, kSetR);
  evidence.set_v = Simulate(loop, evidence.waves_per_simd, kSetV);
  const double flops = evidence.matrix_flops * evidence.waves_per_simd;
  evidence.tflops_r = PredictedTflops(target.architecture, flops, evidence.set_r.clocks, kSetR);
  evidence.tflops_v = PredictedTflops(target.architecture, flops, evidence.set_v.clocks, kSetV);
  if (evidence.loop.packed_f32 > 0) {
    const auto alone = [&](const IssueConstants& set) {
      const IssueConstants constants = PackedAlone(set);
      return PredictedTflops(target.architecture, flops,
                             Simulate(loop, evidence.waves_per_simd, constants).clocks, constants);
    };
    evidence.tflops_packed_alone = std::min(alone(kSetR), alone(kSetV));
  }
  return evidence;
}

}  // namespace whet::amd
