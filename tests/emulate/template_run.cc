#include "tests/emulate/template_run.h"

#include <memory>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "src/model/kernel_template.h"
#include "src/runtime/builtin_templates.h"

namespace whet::emulator {

absl::StatusOr<EmulatorReport> PlaySource(const EmulatedVariant& variant) {
  const absl::StatusOr<std::unique_ptr<WaveProgram>> program = WaveProgram::Compile(variant.source);
  if (!program.ok()) return program.status();
  return (*program)->Run(variant.launch);
}

absl::StatusOr<EmulatedVariant> SpecializeForEmulator(
    const std::string& problem_text, const std::string& kernel,
    const std::vector<std::pair<std::string, int64_t>>& parameters,
    const std::string& architecture) {
  std::string operation;
  const absl::StatusOr<FieldValues> fields = ParseFieldText(problem_text, &operation);
  if (!fields.ok()) return fields.status();
  TemplateFiles files = BuiltinTemplateFiles();
  // A kernel can be tried before its operation offers it.
  std::string& json = files[absl::StrCat(operation, "/", operation, ".json")];
  const std::string quoted = absl::StrCat("\"", kernel, "\"");
  if (!absl::StrContains(json, quoted))
    json = absl::StrReplaceAll(json,
                               {{"\"kernels\": [", absl::StrCat("\"kernels\": [", quoted, ", ")}});
  const absl::StatusOr<KernelTemplate> parsed = KernelTemplate::Parse(operation, files);
  if (!parsed.ok()) return parsed.status();
  const absl::StatusOr<Problem> problem = parsed->MakeProblem(*fields);
  if (!problem.ok()) return problem.status();
  const absl::StatusOr<Target> target = Target::Parse(architecture);
  if (!target.ok()) return target.status();
  const DeviceLimits limits;
  const absl::StatusOr<std::vector<Variant>> variants = parsed->Variants(*problem, *target, limits);
  if (!variants.ok()) return variants.status();
  for (const Variant& variant : *variants) {
    bool fits = variant.kernel == kernel;
    for (const auto& [name, value] : parameters)
      fits = fits && absl::StrContains(absl::StrCat(variant.id(), ","),
                                       absl::StrCat(name, "=", value, ","));
    if (!fits) continue;
    const absl::StatusOr<Specialization> s = parsed->Specialize(*problem, variant, *target, limits);
    if (!s.ok()) return s.status();
    EmulatedVariant result;
    result.variant = variant.id();
    result.options = s->options;
    result.source = {s->source, s->entry, architecture};
    for (size_t i = 0; i < 3; ++i) {
      result.launch.grid[i] = static_cast<uint32_t>(s->launch.grid[i]);
      result.launch.block[i] = static_cast<uint32_t>(s->launch.block[i]);
    }
    result.launch.shared_bytes = static_cast<size_t>(s->launch.shared_bytes);
    return result;
  }
  return absl::NotFoundError(absl::StrCat("specialize ", problem_text, ": no variant of ", kernel,
                                          " fits on ", architecture));
}

}  // namespace whet::emulator
