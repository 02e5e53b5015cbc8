#include "bench/amd/evidence_cases.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/ops/operation.h"
#include "src/runtime/builtin_templates.h"

namespace whet::amd {
namespace {

// The shapes that must be fast; other templates are compiled for their example.
std::vector<FieldValues> ProblemsOf(const KernelTemplate& kernel_template, const Target& target,
                                    bool all) {
  const Operation& operation = OperationFor(kernel_template.name());
  FieldValues example = operation.ExampleFields();
  if (!absl::StartsWith(kernel_template.name(), "attention_forward")) return {example};
  std::vector<FieldValues> problems;
  // Causal or not is other code; few cases take them by turns.
  for (const auto& [dqk, causal] :
       {std::pair(128, 0), std::pair(192, 1), std::pair(128, 1), std::pair(192, 0)}) {
    if (!all && problems.size() == 2) break;
    FieldValues fields;
    for (const auto& field : example) {
      if (field.first == "dtype") fields.push_back(field);
    }
    // gfx942 has its own e4m3.
    if (kernel_template.name() == "attention_forward_fp8" && target.architecture == "gfx942") {
      fields.front().second = Value(std::string("e4m3fnuz"));
    }
    // As the whole path from BF16 asks for it: scales that are powers of two.
    if (kernel_template.name() == "attention_forward_fp8")
      fields.emplace_back("exact_exponents", Value(int64_t{1}));
    for (const auto& [name, value] :
         {std::pair("batch", 1), std::pair("heads_q", 16), std::pair("seq_q", 16384),
          std::pair("dqk", dqk), std::pair("dv", 128), std::pair("causal", causal)}) {
      fields.emplace_back(name, Value(int64_t{value}));
    }
    problems.push_back(std::move(fields));
  }
  return problems;
}

double IntegerOf(const Problem& problem, absl::string_view name) {
  return static_cast<double>(IntegerField(problem.fields(), name, 0));
}

}  // namespace

std::string EvidenceCase::Name() const {
  std::string name = kernel_template->name();
  if (flops_per_tile > 0) {
    absl::StrAppend(&name, " ", IntegerOf(problem, "dqk"), "/", IntegerOf(problem, "dv"));
  }
  return absl::StrCat(name, " ", variant.id(), flops_per_tile > 0 && !causal ? ", not causal" : "");
}

absl::StatusOr<std::vector<EvidenceCase>> EvidenceCases(const Target& target, bool all_variants) {
  const TemplateFiles files = BuiltinTemplateFiles();
  std::vector<EvidenceCase> cases;
  for (const std::string& name : OperationNames(files)) {
    absl::StatusOr<KernelTemplate> parsed = KernelTemplate::Parse(name, files);
    if (!parsed.ok()) return parsed.status();
    const auto kernel_template = std::make_shared<const KernelTemplate>(*std::move(parsed));
    const std::vector<FieldValues> problems = ProblemsOf(*kernel_template, target, all_variants);
    for (const FieldValues& fields : problems) {
      if (fields.empty()) continue;
      absl::StatusOr<Problem> problem =
          kernel_template->MakeProblem(OperationFor(name).CompleteFields(fields));
      if (!problem.ok()) return problem.status();
      const absl::StatusOr<std::vector<Variant>> variants =
          kernel_template->Variants(*problem, target, DeviceLimits{});
      if (!variants.ok()) {
        if (absl::IsUnimplemented(variants.status())) continue;
        return variants.status();
      }
      std::string last_kernel;
      for (const Variant& variant : *variants) {
        if (!all_variants && variant.kernel == last_kernel) continue;
        last_kernel = variant.kernel;
        // It has no loop of matrix instructions: one shape says what there is to say.
        if (!all_variants && variant.kernel == "portable" && &fields != &problems.front()) continue;
        EvidenceCase one{kernel_template, *problem, variant};
        if (absl::StartsWith(name, "attention_forward")) {
          one.flops_per_tile =
              2.0 * 32 * 64 * (IntegerOf(*problem, "dqk") + IntegerOf(*problem, "dv"));
          one.rows_per_block = 256;
          one.causal = IntegerOf(*problem, "causal") != 0;
          one.seq = IntegerOf(*problem, "seq_q");
        }
        one.drains_each_step = name == "attention_forward_fp8" && variant.kernel == "gfx942";
        cases.push_back(std::move(one));
      }
    }
  }
  return cases;
}

std::vector<std::string> Complaints(const KernelEvidence& evidence, const EvidenceCase& one,
                                    const Target& target) {
  std::vector<std::string> complaints;
  const auto expect = [&](bool holds, const std::string& otherwise) {
    if (!holds) complaints.push_back(otherwise);
  };
  const LoopCounts& loop = evidence.loop;
  const int64_t most_registers = 512 / evidence.waves_per_simd;
  const int64_t most_lds = target.architecture == "gfx950" ? 160 * 1024 : 64 * 1024;
  const int64_t lds = evidence.launch.shared_bytes + evidence.resources.shared_bytes;
  expect(evidence.resources.spill_bytes == 0,
         absl::StrCat(evidence.resources.spill_bytes, " bytes of scratch"));
  expect(evidence.resources.registers <= most_registers,
         absl::StrCat(evidence.resources.registers, " VGPRs, ", most_registers, " at most"));
  expect(lds <= most_lds, absl::StrCat(lds, " bytes of LDS, ", most_lds, " at most"));
  for (const std::string& hazard : evidence.hazards) expect(false, hazard);
  expect(loop.scratch == 0, absl::StrCat(loop.scratch, " scratch accesses in the loop"));
  expect(loop.accumulator_moves == 0,
         absl::StrCat(loop.accumulator_moves, " moves of accumulators in the loop"));
  expect(loop.matrix_total == 0 || loop.wait_drained == 0 || one.drains_each_step,
         absl::StrCat(loop.wait_drained, " waits in the loop that leave nothing in flight"));
  return complaints;
}

}  // namespace whet::amd
