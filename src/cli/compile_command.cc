// whet compile: fills the cache for targets that need not be here.
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "src/cli/command.h"
#include "src/cli/device_flags.h"
#include "src/cli/problem_input.h"
#include "src/cli/report.h"
#include "src/cli/target_list.h"

namespace whet {
namespace {

using nlohmann::ordered_json;

// What became of one problem on one target.
struct TargetResult {
  std::string target;
  std::string problem;
  Outcome outcome = {};
  std::vector<CompiledVariant> variants = {};
};

class CompileCommand final : public Command {
 public:
  void Declare(Verb app) override;
  Outcome Run(Session& session) override;

 private:
  absl::StatusOr<std::vector<std::pair<const KernelTemplate*, Problem>>> Problems(
      Runtime& runtime, const Target& target) const;
  TargetResult CompileOne(Runtime& runtime, const KernelTemplate& kernel_template,
                          const Problem& problem, const Target& target,
                          const ProgressSink& progress) const;

  ProblemFlags flags_;
  std::vector<std::string> targets_;
  bool default_only_ = false;
};

void CompileCommand::Declare(Verb app) {
  verb_ = app.AddVerb("compile", "Compile for a list of targets into the cache; needs no GPU");
  verb_.Footer(
      "Examples:\n"
      "  whet compile --target gfx90a,gfx942,gfx950,sm_90a\n"
      "  whet compile --target gfx950:sramecc+:xnack- rms_norm -p "
      "dtype=bf16,rows=512,columns=4096\n"
      "  whet compile --target host attention_forward --default-only\n"
      "Without an operation, the example problem of every built-in one is compiled. A target for\n"
      "which a compiler is missing does not stop the others; the exit status is then 4.");
  DeclareProblemFlags(verb_, &flags_);
  verb_
      .Option("-t,--target", &targets_,
              "Targets: gfx942, gfx950:sramecc+:xnack-, sm_90a, x86-64:avx2,fma or host; "
              "several with commas")
      .Required()
      .Type("TARGETS")
      .OneValueEach();
  verb_.Flag("--default-only", &default_only_, "Only the default variant of each problem");
}

absl::StatusOr<std::vector<std::pair<const KernelTemplate*, Problem>>> CompileCommand::Problems(
    Runtime& runtime, const Target& target) const {
  absl::StatusOr<std::vector<std::string>> texts = ProblemTexts(flags_);
  if (!texts.ok()) return texts.status();
  std::vector<std::string> operations = {OperationName(flags_)};
  if (flags_.operation.empty()) {
    if (!flags_.problems.empty()) {
      return absl::InvalidArgumentError("--problem needs an operation before it");
    }
    operations.clear();
    for (const std::string& name : runtime.TemplateNames()) {
      if (!OperationFor(name).ExampleFields().empty()) operations.push_back(name);
    }
  }
  std::vector<std::pair<const KernelTemplate*, Problem>> problems;
  for (const std::string& operation : operations) {
    absl::StatusOr<const KernelTemplate*> kernel_template = runtime.FindTemplate(operation);
    if (!kernel_template.ok()) return kernel_template.status();
    for (const std::string& text : *texts) {
      const Operation& host = OperationFor(operation);
      absl::StatusOr<Problem> problem =
          text.empty() && !host.ExampleFields().empty()
              ? (*kernel_template)->MakeProblem(host.CompleteFields(host.ExampleFieldsFor(target)))
              : MakeProblemFromText(**kernel_template, text);
      if (!problem.ok()) return problem.status();
      problems.emplace_back(*kernel_template, *std::move(problem));
    }
  }
  return problems;
}

TargetResult CompileCommand::CompileOne(Runtime& runtime, const KernelTemplate& kernel_template,
                                        const Problem& problem, const Target& target,
                                        const ProgressSink& progress) const {
  TargetResult result{.target = target.ToString(), .problem = problem.text()};
  absl::StatusOr<std::vector<Variant>> variants =
      kernel_template.Variants(problem, target, DeviceLimits{});
  if (!variants.ok()) {
    result.outcome = ExecutionFailure(variants.status());
    return result;
  }
  if (default_only_) variants->resize(1);
  absl::StatusOr<std::vector<CompiledVariant>> compiled =
      CompileVariants(runtime, kernel_template, problem, *variants, target, progress);
  if (!compiled.ok()) {
    result.outcome = ExecutionFailure(compiled.status());
    return result;
  }
  result.variants = *std::move(compiled);
  for (const CompiledVariant& variant : result.variants) {
    if (variant.status.ok() || result.outcome.code != ExitCode::kDone) continue;
    result.outcome = ExecutionFailure(variant.status);
  }
  return result;
}

void Print(Console& console, const TargetResult& result) {
  const std::string label = absl::StrFormat("%-24s", result.target);
  if (result.variants.empty()) {
    console.Line(absl::StrCat(label, " not compiled: ", OneLine(result.outcome.status.message())));
    return;
  }
  int64_t bytes = 0;
  int cached = 0;
  int failed = 0;
  std::set<std::string> compilers;
  for (const CompiledVariant& variant : result.variants) {
    if (!variant.status.ok()) {
      ++failed;
      continue;
    }
    bytes += variant.object_bytes;
    cached += variant.was_cached ? 1 : 0;
    compilers.insert(variant.compiler);
  }
  const int stored = static_cast<int>(result.variants.size()) - failed;
  console.Line(absl::StrFormat(
      "%s %d of %d variants of %s, %s, %s%s", label, stored, result.variants.size(),
      result.problem.substr(0, result.problem.find(':')), BytesText(bytes),
      absl::StrJoin(compilers, ", "),
      cached == 0 ? "" : absl::StrFormat(" (%d were in the cache already)", cached)));
  for (const CompiledVariant& variant : result.variants) {
    if (variant.status.ok()) continue;
    console.Line(
        absl::StrCat("  failed: ", variant.variant.id(), ": ", OneLine(variant.status.message())));
  }
}

ordered_json ResultJson(const TargetResult& result) {
  ordered_json variants = ordered_json::array();
  for (const CompiledVariant& variant : result.variants) {
    ordered_json item = {{"variant", variant.variant.id()}, {"ok", variant.status.ok()}};
    if (variant.status.ok()) {
      item["compiler"] = variant.compiler;
      item["was_cached"] = variant.was_cached;
      item["object_bytes"] = variant.object_bytes;
    } else {
      item["error"] = std::string(variant.status.message());
    }
    variants.push_back(std::move(item));
  }
  ordered_json json = {{"target", result.target}, {"problem", result.problem}};
  if (result.outcome.code != ExitCode::kDone) {
    json["error"] = std::string(result.outcome.status.message());
  }
  json["variants"] = std::move(variants);
  return json;
}

Outcome CompileCommand::Run(Session& session) {
  absl::StatusOr<std::vector<Target>> targets = ParseTargetList(targets_);
  if (!targets.ok()) return InputFailure(targets.status());
  // The CPU device is always there; it brings the templates, the compilers and the cache.
  absl::StatusOr<std::unique_ptr<Runtime>> runtime = OpenRuntime(session, {});
  if (!runtime.ok()) return InputFailure(runtime.status());
  Console& console = session.console;

  ordered_json results = ordered_json::array();
  Outcome worst;
  size_t failed = 0;
  size_t compilations = 0;
  for (const Target& target : *targets) {
    const auto problems = Problems(**runtime, target);
    if (!problems.ok()) return InputFailure(problems.status());
    compilations += problems->size();
    for (const auto& [kernel_template, problem] : *problems) {
      const TargetResult result =
          CompileOne(**runtime, *kernel_template, problem, target, console.Progress());
      console.EndProgress();
      Print(console, result);
      results.push_back(ResultJson(result));
      if (result.outcome.code == ExitCode::kDone) continue;
      if (failed++ == 0) worst = result.outcome;
    }
  }
  const Store& store = (*runtime)->store();
  const std::string where = store.persistent() ? store.path() : "";
  if (where.empty()) {
    console.Line("nothing was kept: there is no cache on disk; `whet doctor` says why");
  } else {
    console.Row("cache", where);
  }
  if (failed > 0 && compilations > 1) {
    worst.status = absl::Status(
        worst.status.code(),
        absl::StrFormat(
            "%d of %d compilations failed (the reasons are above, and in `whet doctor`); "
            "the first: %s",
            failed, compilations, worst.status.message()));
  }
  ordered_json json = {{"cache", where}, {"targets", std::move(results)}};
  if (failed > 0) json["error"] = ErrorJson(worst);
  console.Json(DumpJson(json));
  return worst;
}

}  // namespace

std::unique_ptr<Command> MakeCompileCommand() { return std::make_unique<CompileCommand>(); }

}  // namespace whet
