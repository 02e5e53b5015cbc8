// whet run: one problem, from its first call to its result beside float64.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "src/base/clock.h"
#include "src/cli/command.h"
#include "src/cli/device_call.h"
#include "src/cli/device_flags.h"
#include "src/cli/problem_input.h"
#include "src/cli/report.h"
#include "src/ops/npy.h"

namespace whet {
namespace {

using nlohmann::ordered_json;

// Where an output goes.
struct OutputFile {
  std::string argument;
  std::string path;
};

class RunCommand final : public Command {
 public:
  void Declare(Verb app) override;
  Outcome Run(Session& session) override;

 private:
  absl::StatusOr<std::vector<OutputFile>> OutputFiles(const OperationTensors& tensors) const;
  Outcome Call(Session& session, Runtime& runtime, const KernelTemplate& kernel_template,
               const CallInput& input);

  ProblemFlags flags_;
  DeviceFlags device_;
  std::string variant_;
  std::vector<std::string> out_;
  bool no_check_ = false;
  double seconds_ = 0.3;
};

void RunCommand::Declare(Verb app) {
  verb_ =
      app.AddVerb("run", "Run a problem: the first call compiles and tunes, the result is checked");
  verb_.Footer(
      "Examples:\n"
      "  whet run attention_forward\n"
      "  whet run attention_forward -p "
      "dtype=bf16,batch=1,heads_q=32,heads_kv=8,seq_q=2048,dqk=128,causal=1\n"
      "  whet run attention_forward --safetensors layer0.safetensors --out o.npy\n"
      "  whet run rms_norm -p dtype=f32,rows=512,columns=1000 --json");
  DeclareProblemFlags(verb_, &flags_);
  verb_.Find("operation").Required();
  DeclareDeviceFlags(verb_, &device_);
  verb_
      .Option("--variant", &variant_,
              "Run this variant, whatever the caches hold; nothing is stored as a winner")
      .Type("ID");
  verb_.Option("--out", &out_, "Write the (first) output to FILE.npy, or NAME=FILE.npy")
      .Type("[NAME=]FILE")
      .OneValueEach();
  verb_.Flag("--no-check", &no_check_, "Do not compare with float64");
  verb_.Option("--seconds", &seconds_, "Time launches for about this long; 0: not at all")
      .Range(0.0, 3600.0)
      .ShowDefault();
  DeclareTensorFlags(verb_, &flags_);
}

absl::StatusOr<std::vector<OutputFile>> RunCommand::OutputFiles(
    const OperationTensors& tensors) const {
  std::vector<std::string> outputs;  // the pure ones first: they are what "the output" means
  for (const Direction direction : {Direction::kOut, Direction::kInOut}) {
    for (const Argument& argument : tensors.arguments) {
      if (argument.present && argument.direction == direction) outputs.push_back(argument.name);
    }
  }
  std::vector<OutputFile> files;
  for (const std::string& out : out_) {
    const size_t equals = out.find('=');
    if (equals == std::string::npos) {
      files.push_back({outputs.empty() ? "" : outputs[0], out});
    } else {
      files.push_back({out.substr(0, equals), out.substr(equals + 1)});
    }
    if (std::find(outputs.begin(), outputs.end(), files.back().argument) == outputs.end()) {
      return absl::InvalidArgumentError(absl::StrCat("--out ", out,
                                                     ": there is no such output; the problem has ",
                                                     absl::StrJoin(outputs, ", ")));
    }
  }
  return files;
}

Outcome RunCommand::Run(Session& session) {
  if (flags_.problems.size() > 1) {
    return {ExitCode::kUsage,
            absl::InvalidArgumentError("run takes one --problem; tune takes several")};
  }
  absl::StatusOr<std::unique_ptr<Runtime>> runtime = OpenRuntime(session, device_);
  if (!runtime.ok()) return InputFailure(runtime.status());
  absl::StatusOr<const KernelTemplate*> kernel_template =
      (*runtime)->FindTemplate(OperationName(flags_));
  if (!kernel_template.ok()) return InputFailure(kernel_template.status());
  absl::StatusOr<std::vector<std::string>> texts = ProblemTexts(flags_);
  if (!texts.ok()) return InputFailure(texts.status());
  absl::StatusOr<CallInput> input = MakeCallInput(**kernel_template, flags_, texts->front());
  if (!input.ok()) return InputFailure(input.status());
  return Call(session, **runtime, **kernel_template, *input);
}

// What one call showed.
struct CallReport {
  const Plan* plan = nullptr;
  double first_call_ns = 0;
  std::optional<double> second_call_ns;
  std::vector<OutputCheck> checks;
  std::optional<LaunchTiming> timing;
};

ordered_json CallJson(const CallReport& report, const Operation& operation, const Problem& problem,
                      const DeviceIdentity& device, const std::vector<OutputFile>& files) {
  ordered_json json = {{"operation", problem.operation()},
                       {"problem", problem.text()},
                       {"device", DeviceJson(device)},
                       {"resolution", ResolutionJson(report.plan->resolution())},
                       {"first_call_ns", report.first_call_ns}};
  if (report.second_call_ns.has_value()) json["second_call_ns"] = *report.second_call_ns;
  if (report.timing.has_value()) {
    json["timing"] = TimingJson(*report.timing, operation.Work(problem));
  }
  json["check"] = ChecksJson(report.checks);
  if (report.plan->tuning() != nullptr) json["tuning"] = TuningJson(*report.plan->tuning());
  ordered_json outputs = ordered_json::object();
  for (const OutputFile& file : files) outputs[file.argument] = file.path;
  json["outputs"] = std::move(outputs);
  return json;
}

void PrintCall(Console& console, const CallReport& report, const Operation& operation,
               const Problem& problem, const std::vector<OutputFile>& files) {
  const Resolution& resolution = report.plan->resolution();
  const std::string gain = GainText(resolution.gain);
  console.Row("first call",
              absl::StrCat(DurationText(report.first_call_ns), ": ", ResolutionText(resolution)));
  console.Row("variant", absl::StrCat(resolution.variant, gain.empty() ? "" : "  ", gain));
  if (!resolution.compiler.empty()) console.Row("compiler", resolution.compiler);
  if (!resolution.note.empty()) console.Row("note", OneLine(resolution.note));
  if (const std::string text = BudgetText(*report.plan); !text.empty()) console.Row("note", text);
  if (report.second_call_ns.has_value()) {
    console.Row("second call", DurationText(*report.second_call_ns));
  }
  if (report.timing.has_value()) {
    const std::string speed = SpeedText(operation.Work(problem), report.timing->median_ns);
    console.Row("speed",
                absl::StrFormat("%s%s%s a launch, median of %d", speed, speed.empty() ? "" : ", ",
                                DurationText(report.timing->median_ns), report.timing->launches));
  }
  for (const OutputCheck& check : report.checks) {
    console.Row(absl::StrCat("error of ", check.argument), CheckText(check));
  }
  for (const OutputFile& file : files) {
    console.Row("output", absl::StrCat(file.argument, " -> ", file.path));
  }
}

// The first check whose error is above its output's tolerance, as the failure that the user reads.
absl::Status JudgeChecks(const std::vector<OutputCheck>& checks, const OperationTensors& tensors,
                         const KernelTemplate& kernel_template, const Resolution& resolution) {
  for (const OutputCheck& check : checks) {
    const double tolerance = kernel_template.Tolerance(tensors.Find(check.argument).dtype());
    if (check.relative_l2 <= tolerance) continue;
    return absl::DataLossError(absl::StrFormat(
        "the output %s is wrong: %s, but %.2e is allowed; variant %s, built by %s: please report "
        "it "
        "with `whet doctor --json`",
        check.argument, CheckText(check), tolerance, resolution.variant, resolution.compiler));
  }
  return absl::OkStatus();
}

Outcome RunCommand::Call(Session& session, Runtime& runtime, const KernelTemplate& kernel_template,
                         const CallInput& input) {
  Console& console = session.console;
  Device& device = runtime.device();
  const Operation& operation = OperationFor(kernel_template.name());
  absl::StatusOr<std::vector<OutputFile>> files = OutputFiles(input.tensors);
  if (!files.ok()) return InputFailure(files.status());
  console.Row("problem", ProblemText(input.problem.text()));
  console.Row("device", DeviceText(device.identity()));
  if (!input.recipe.empty()) console.Row("recipe", input.recipe);

  absl::StatusOr<std::unique_ptr<DeviceCall>> call = DeviceCall::Make(device, input.tensors);
  if (!call.ok()) return ExecutionFailure(call.status());
  void* const* args = (*call)->args();
  Clock* clock = Clock::Real();
  CallReport report;

  const int64_t begin = clock->MonotonicNanoseconds();
  absl::StatusOr<const Plan*> plan = absl::UnknownError("");
  // Tuned as an application's first call is, with somebody waiting for it.
  const bool as_launched = variant_.empty() && runtime.options().tuning == TuningMode::kBlocking;
  absl::Status launched;
  if (as_launched) {
    launched = runtime.Launch(kernel_template, input.problem, args, nullptr);
    if (!launched.ok()) return ExecutionFailure(launched);
  }
  if (variant_.empty()) {
    plan = runtime.Prepare(kernel_template, input.problem, args, nullptr);
  } else {
    absl::StatusOr<Variant> variant = Variant::Parse(variant_);
    if (!variant.ok()) return InputFailure(variant.status());
    plan = runtime.PrepareVariant(kernel_template, input.problem, *variant);
  }
  if (!plan.ok()) return ExecutionFailure(plan.status());
  if (!as_launched) launched = (*plan)->Launch(args, nullptr);
  if (launched.ok()) launched = device.Synchronize(nullptr);
  if (!launched.ok()) return ExecutionFailure(launched);
  report.first_call_ns = static_cast<double>(clock->MonotonicNanoseconds() - begin);
  report.plan = *plan;
  console.EndProgress();

  absl::StatusOr<OperationTensors> after = (*call)->Download();
  if (!after.ok()) return ExecutionFailure(after.status());
  if (variant_.empty()) {
    const int64_t again = clock->MonotonicNanoseconds();
    launched = runtime.Launch(kernel_template, input.problem, args, nullptr);
    if (launched.ok()) launched = device.Synchronize(nullptr);
    if (!launched.ok()) return ExecutionFailure(launched);
    report.second_call_ns = static_cast<double>(clock->MonotonicNanoseconds() - again);
  }
  if (seconds_ > 0 && !(*plan)->geometry().empty()) {
    absl::StatusOr<LaunchTiming> timing = TimeLaunches(device, **plan, args, seconds_);
    if (!timing.ok()) return ExecutionFailure(timing.status());
    report.timing = *timing;
  }
  if (!no_check_) {
    absl::StatusOr<std::vector<OutputCheck>> checks =
        operation.Check(input.problem, input.tensors, *after, {});
    if (!checks.ok()) return ExecutionFailure(checks.status());
    report.checks = *std::move(checks);
  }
  for (const OutputFile& file : *files) {
    absl::Status written = WriteNpy(file.path, after->Find(file.argument));
    if (!written.ok()) return InputFailure(written);
  }
  PrintCall(console, report, operation, input.problem, *files);
  Outcome outcome;
  outcome.status =
      JudgeChecks(report.checks, input.tensors, kernel_template, report.plan->resolution());
  if (!outcome.status.ok()) outcome.code = ExitCode::kWrongResult;
  ordered_json json = CallJson(report, operation, input.problem, device.identity(), *files);
  if (!input.recipe.empty()) json["recipe"] = input.recipe;
  if (!outcome.status.ok()) json["error"] = ErrorJson(outcome);
  console.Json(DumpJson(json));
  return outcome;
}

}  // namespace

std::unique_ptr<Command> MakeRunCommand() { return std::make_unique<RunCommand>(); }

}  // namespace whet
