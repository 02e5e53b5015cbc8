// whet check: a HIP kernel's source on the CPU, lane by lane, with no GPU and no ROCm.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "src/base/clock.h"
#include "src/cli/command.h"
#include "src/cli/device_flags.h"
#include "src/cli/problem_input.h"
#include "src/cli/report.h"
#include "src/compile/toolchains.h"
#include "src/emulate/isa/object_program.h"
#include "src/emulate/wave_program.h"
#include "src/model/target.h"

namespace whet {
namespace {

using emulator::EmulatorArgument;
using emulator::EmulatorFinding;
using emulator::EmulatorLaunch;
using emulator::EmulatorReport;
using emulator::WaveProgram;
using nlohmann::ordered_json;

// What one run in the emulator showed.
struct CheckReport {
  std::string problem;
  std::string target;
  std::string variant;
  std::string compiler;  // of the code object that was played; empty: the source was
  LaunchGeometry launch;
  uint64_t blocks_run = 0;
  uint64_t blocks_total = 0;
  EmulatorReport emulator;
  std::vector<OutputCheck> checks;
  double nanoseconds = 0;
};

class CheckCommand final : public Command {
 public:
  void Declare(Verb app) override;
  Outcome Run(Session& session) override;

 private:
  absl::StatusOr<Variant> ChooseVariant(const KernelTemplate& kernel_template,
                                        const Problem& problem, const Target& target) const;
  absl::StatusOr<std::vector<uint64_t>> Blocks(uint64_t total) const;
  Outcome Emulate(Session& session, const KernelTemplate& kernel_template, const CallInput& input,
                  const Target& target);
  absl::StatusOr<EmulatorReport> Play(Session& session, const Specialization& special,
                                      const Target& target, const EmulatorLaunch& launch,
                                      CheckReport* report) const;

  ProblemFlags flags_;
  std::string target_ = "gfx950";
  std::string kernel_;
  std::string variant_;
  std::string blocks_;
  bool object_ = false;
  bool drop_ = false;
  int findings_ = 20;
  int limit_ = 600;
};

void CheckCommand::Declare(Verb app) {
  verb_ = app.AddVerb(
      "check", "Run a HIP kernel's source lane by lane on the CPU and report races; needs no GPU");
  verb_.Footer(
      "Examples:\n"
      "  whet check rms_norm -p dtype=bf16,rows=3,columns=100 --target gfx942\n"
      "  whet check attention_forward -p "
      "dtype=bf16,batch=1,heads_q=1,seq_q=128,seq_kv=1024,dqk=128,causal=1\n"
      "  WHET_TEMPLATES=my_templates whet check my_op -p n=1000 --kernel gpu --blocks 0,7\n"
      "Reported: LDS that is read before it is written, before another wave's write was waited "
      "for\n"
      "and published by a barrier, or while an asynchronous load owns it; LDS that is overwritten\n"
      "while others may read it; accesses outside LDS and the arguments; lanes and waves that\n"
      "disagree on what comes next; blocks that do not end. Not seen: inline assembly (give plain "
      "code under\n"
      "WHET_EMULATOR), the compiler's own waits, bank conflicts, time. Needs clang 20 or newer.\n"
      "With --object all instructions are played as compiled (gfx90a, gfx942, gfx950): also\n"
      "reported are registers that are used before a load was waited for, and instructions too\n"
      "close to one they depend on. Needs the compiler for the target, and llvm-objdump 20.");
  DeclareProblemFlags(verb_, &flags_);
  verb_.Find("operation").Required();
  verb_.Option("-t,--target", &target_, "AMD target whose lanes and instructions are played")
      .Type("TARGET")
      .ShowDefault();
  const Setting kernel =
      verb_.Option("--kernel", &kernel_, "The kernel's default variant, not the preferred one's")
          .Type("NAME");
  verb_.Option("--variant", &variant_, "This variant").Type("ID").Excludes(kernel);
  verb_.Flag("--object", &object_,
             "Compile, and play the instructions of the code object instead of the source");
  verb_.Flag(
      "--drop-lds-loads", &drop_,
      "With --object: loads to LDS beyond a buffer leave LDS alone instead of writing zeros");
  verb_
      .Option("--blocks", &blocks_,
              "Run these blocks only (0-3,17); the output is then not compared")
      .Type("LIST");
  verb_.Option("--findings", &findings_, "End after so many different findings")
      .Range(1, 10000)
      .ShowDefault();
  verb_.Option("--limit", &limit_, "Give a block up after so many seconds: it does not end")
      .Type("SECONDS")
      .Range(1, 86400)
      .ShowDefault();
  DeclareTensorFlags(verb_, &flags_);
}

Outcome CheckCommand::Run(Session& session) {
  if (flags_.problems.size() > 1) {
    return {ExitCode::kUsage, absl::InvalidArgumentError("check takes one --problem")};
  }
  if (drop_ && !object_) {
    return {ExitCode::kUsage, absl::InvalidArgumentError("--drop-lds-loads is for --object")};
  }
  absl::StatusOr<Target> target = Target::Parse(target_);
  if (!target.ok()) return InputFailure(target.status());
  if (target->platform != Platform::kHip) {
    return InputFailure(absl::InvalidArgumentError(
        absl::StrCat("cannot check for ", target_, ": only AMD's targets can be played (gfx950)")));
  }
  // The CPU's runtime brings the templates.
  absl::StatusOr<std::unique_ptr<Runtime>> runtime = OpenRuntime(session, {});
  if (!runtime.ok()) return InputFailure(runtime.status());
  absl::StatusOr<const KernelTemplate*> kernel_template =
      (*runtime)->FindTemplate(OperationName(flags_));
  if (!kernel_template.ok()) return InputFailure(kernel_template.status());
  absl::StatusOr<std::vector<std::string>> texts = ProblemTexts(flags_);
  if (!texts.ok()) return InputFailure(texts.status());
  absl::StatusOr<CallInput> input = MakeCallInput(**kernel_template, flags_, texts->front());
  if (!input.ok()) return InputFailure(input.status());
  return Emulate(session, **kernel_template, *input, *target);
}

absl::StatusOr<Variant> CheckCommand::ChooseVariant(const KernelTemplate& kernel_template,
                                                    const Problem& problem,
                                                    const Target& target) const {
  if (!variant_.empty()) return Variant::Parse(variant_);
  if (kernel_.empty()) return kernel_template.DefaultVariant(problem, target, DeviceLimits{});
  absl::StatusOr<std::vector<Variant>> variants =
      kernel_template.Variants(problem, target, DeviceLimits{});
  if (!variants.ok()) return variants.status();
  std::vector<std::string> kernels;
  for (const Variant& variant : *variants) {
    if (variant.kernel == kernel_) return variant;
    if (kernels.empty() || kernels.back() != variant.kernel) kernels.push_back(variant.kernel);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "cannot check kernel ", kernel_, " of ", kernel_template.name(), " on ", target.ToString(),
      ": for this problem there is ", absl::StrJoin(kernels, ", ")));
}

absl::StatusOr<std::vector<uint64_t>> CheckCommand::Blocks(uint64_t total) const {
  std::vector<uint64_t> blocks;
  if (blocks_.empty()) return blocks;
  for (absl::string_view piece : absl::StrSplit(blocks_, ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(piece, absl::MaxSplits('-', 1));
    uint64_t first = 0;
    uint64_t last = 0;
    if (!absl::SimpleAtoi(ends.front(), &first) || !absl::SimpleAtoi(ends.back(), &last) ||
        first > last || last >= total) {
      return absl::InvalidArgumentError(absl::StrCat("--blocks ", blocks_, ": \"", piece,
                                                     "\" is no block or range of blocks of 0 to ",
                                                     static_cast<int64_t>(total) - 1));
    }
    for (uint64_t block = first; block <= last; ++block) blocks.push_back(block);
  }
  return blocks;
}

// The bytes of each argument as the kernel gets them; what it writes goes to `after`.
std::vector<EmulatorArgument> EmulatorArguments(const OperationTensors& before,
                                                OperationTensors* after) {
  std::vector<EmulatorArgument> arguments;
  for (size_t i = 0; i < before.arguments.size(); ++i) {
    const Argument& argument = before.arguments[i];
    const HostTensor& tensor = before.tensors[i];
    if (argument.direction == Direction::kScalar) {
      EmulatorArgument scalar;
      scalar.name = argument.name;
      scalar.scalar.assign(reinterpret_cast<const char*>(tensor.data()),
                           static_cast<size_t>(tensor.span_bytes()));
      arguments.push_back(std::move(scalar));
    } else if (!argument.present) {
      arguments.push_back(EmulatorArgument::Buffer(argument.name, nullptr, 0));
    } else if (argument.direction == Direction::kIn) {
      // Kernels may read all of the aligned 16 bytes that hold an input's last element: no allocator
      // gives less, a HostTensor included.
      const int64_t bytes = (tensor.span_bytes() + 15) / 16 * 16;
      arguments.push_back(
          EmulatorArgument::Buffer(argument.name, tensor.data(), static_cast<size_t>(bytes)));
    } else {
      after->tensors[i] = tensor.Clone();
      arguments.push_back(EmulatorArgument::Writable(argument.name, after->tensors[i].data(),
                                                     static_cast<size_t>(tensor.span_bytes())));
    }
  }
  return arguments;
}

// What the code object's compiler was: "hiprtc 7.0.51831".
std::string CompilerName(const Compiler& compiler) {
  return absl::StrCat(compiler.identity().compiler, " ", compiler.identity().version);
}

ordered_json ReportJson(const CheckReport& report) {
  ordered_json findings = ordered_json::array();
  for (const EmulatorFinding& finding : report.emulator.findings) {
    ordered_json item = {{"text", finding.text}};
    if (!finding.location.empty()) item["location"] = finding.location;
    findings.push_back(std::move(item));
  }
  return {{"problem", report.problem},
          {"target", report.target},
          {"variant", report.variant},
          {"compiler", report.compiler},
          {"blocks", {{"run", report.blocks_run}, {"total", report.blocks_total}}},
          {"shared_bytes", report.launch.shared_bytes},
          {"matrix_operations", report.emulator.matrix_operations},
          {report.compiler.empty() ? "wave_operations" : "instructions",
           report.emulator.wave_operations},
          {"barriers", report.emulator.barriers},
          {"findings", std::move(findings)},
          {"check", ChecksJson(report.checks)}};
}

void Print(Console& console, const CheckReport& report) {
  console.Row("problem", ProblemText(report.problem));
  console.Row("variant", absl::StrCat(report.variant, " on ", report.target,
                                      report.compiler.empty() ? "" : " by ", report.compiler));
  console.Row(
      "played",
      absl::StrFormat("%d of %d blocks of %d threads, %s: %d matrix operations, %d barriers",
                      report.blocks_run, report.blocks_total,
                      report.launch.block[0] * report.launch.block[1] * report.launch.block[2],
                      DurationText(report.nanoseconds), report.emulator.matrix_operations,
                      report.emulator.barriers));
  for (const EmulatorFinding& finding : report.emulator.findings) {
    console.Row("finding", finding.text);
  }
  if (report.emulator.findings.empty()) console.Row("findings", "none");
  for (const OutputCheck& check : report.checks) {
    console.Row(absl::StrCat("error of ", check.argument), CheckText(check));
  }
}

// The failure that the findings and errors amount to.
absl::Status Judge(const CheckReport& report, const KernelTemplate& kernel_template,
                   const OperationTensors& tensors) {
  const std::vector<EmulatorFinding>& findings = report.emulator.findings;
  if (!findings.empty()) {
    return absl::DataLossError(
        absl::StrFormat("%s on %s has %d finding%s, the first: %s", report.variant, report.target,
                        findings.size(), findings.size() == 1 ? "" : "s", findings.front().text));
  }
  for (const OutputCheck& check : report.checks) {
    const double tolerance = kernel_template.Tolerance(tensors.Find(check.argument).dtype());
    if (check.relative_l2 <= tolerance) continue;
    return absl::DataLossError(
        absl::StrFormat("%s on %s computes a wrong %s: %s, but %.2e is allowed", report.variant,
                        report.target, check.argument, CheckText(check), tolerance));
  }
  return absl::OkStatus();
}

absl::StatusOr<EmulatorReport> CheckCommand::Play(Session& session, const Specialization& special,
                                                  const Target& target,
                                                  const EmulatorLaunch& launch,
                                                  CheckReport* report) const {
  Clock* const clock = Clock::Real();
  int64_t begin = 0;
  absl::StatusOr<EmulatorReport> played;
  if (object_) {
    Toolchains toolchains(session.options.toolchains);
    const absl::StatusOr<Compiler*> compiler = toolchains.For(target);
    if (!compiler.ok()) return compiler.status();
    report->compiler = CompilerName(**compiler);
    CompileRequest request;
    request.label = report->variant;
    request.source = special.source;
    request.entry = special.entry;
    request.target = target;
    const auto options = special.options.find((*compiler)->identity().compiler);
    if (options != special.options.end()) request.options = options->second;
    const absl::StatusOr<CodeObject> object = (*compiler)->Compile(request);
    if (!object.ok()) return object.status();
    const auto program = isa::ObjectProgram::Load({.bytes = object->bytes, .entry = special.entry});
    if (!program.ok()) return program.status();
    begin = clock->MonotonicNanoseconds();
    played = (*program)->Run(launch, {.drop_lds_loads = drop_});
  } else {
    const absl::StatusOr<std::unique_ptr<WaveProgram>> program =
        WaveProgram::Compile({.source = special.source,
                              .entry = special.entry,
                              .architecture = target.architecture,
                              .compiler = session.options.toolchains.amdgpu_clang});
    if (!program.ok()) return program.status();
    begin = clock->MonotonicNanoseconds();
    played = (*program)->Run(launch);
  }
  report->nanoseconds = static_cast<double>(clock->MonotonicNanoseconds() - begin);
  return played;
}

Outcome CheckCommand::Emulate(Session& session, const KernelTemplate& kernel_template,
                              const CallInput& input, const Target& target) {
  Console& console = session.console;
  CheckReport report;
  report.problem = input.problem.text();
  report.target = target.ToString();
  absl::StatusOr<Variant> variant = ChooseVariant(kernel_template, input.problem, target);
  if (!variant.ok()) return InputFailure(variant.status());
  report.variant = variant->id();
  absl::StatusOr<Specialization> special =
      kernel_template.Specialize(input.problem, *variant, target, DeviceLimits{});
  if (!special.ok()) return InputFailure(special.status());
  report.launch = special->launch;
  const int64_t* const grid = special->launch.grid;
  report.blocks_total = static_cast<uint64_t>(grid[0]) * static_cast<uint64_t>(grid[1]) *
                        static_cast<uint64_t>(grid[2]);
  absl::StatusOr<std::vector<uint64_t>> blocks = Blocks(report.blocks_total);
  if (!blocks.ok()) return InputFailure(blocks.status());
  report.blocks_run = blocks->empty() ? report.blocks_total : blocks->size();

  OperationTensors after = input.tensors;
  EmulatorLaunch launch;
  for (size_t i = 0; i < 3; ++i) {
    launch.grid[i] = static_cast<uint32_t>(special->launch.grid[i]);
    launch.block[i] = static_cast<uint32_t>(special->launch.block[i]);
  }
  launch.shared_bytes = static_cast<size_t>(special->launch.shared_bytes);
  launch.arguments = EmulatorArguments(input.tensors, &after);
  launch.blocks = *std::move(blocks);
  launch.max_findings = static_cast<size_t>(findings_);
  launch.block_limit = absl::Seconds(limit_);
  if (const ProgressSink progress = console.Progress()) {
    launch.progress = [progress, &report](uint64_t done, uint64_t of) {
      progress(report.variant, "play", static_cast<int>(done), static_cast<int>(of));
    };
  }
  absl::StatusOr<EmulatorReport> emulated = Play(session, *special, target, launch, &report);
  if (!emulated.ok()) return ExecutionFailure(emulated.status());
  report.emulator = *std::move(emulated);
  console.EndProgress();

  // After an access outside of everything the run has ended early, and its output says nothing.
  if (launch.blocks.empty() && report.emulator.findings.empty()) {
    absl::StatusOr<std::vector<OutputCheck>> checks =
        OperationFor(kernel_template.name()).Check(input.problem, input.tensors, after, {});
    if (!checks.ok()) return ExecutionFailure(checks.status());
    report.checks = *std::move(checks);
  }
  Print(console, report);
  Outcome outcome;
  outcome.status = Judge(report, kernel_template, input.tensors);
  if (!outcome.status.ok()) outcome.code = ExitCode::kWrongResult;
  ordered_json json = ReportJson(report);
  if (!outcome.status.ok()) json["error"] = ErrorJson(outcome);
  console.Json(DumpJson(json));
  return outcome;
}

}  // namespace

std::unique_ptr<Command> MakeCheckCommand() { return std::make_unique<CheckCommand>(); }

}  // namespace whet
