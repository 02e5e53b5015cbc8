// whet tune: settles the winners of a list of problems on this machine.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "src/base/files.h"
#include "src/cli/command.h"
#include "src/cli/device_call.h"
#include "src/cli/device_flags.h"
#include "src/cli/problem_input.h"
#include "src/cli/problem_list.h"
#include "src/cli/report.h"
#include "src/cli/tune_page.h"
#include "src/tune/evidence.h"

namespace whet {
namespace {

using nlohmann::ordered_json;

constexpr size_t kShownVariants = 8;

// A problem with its tuning, for the report's page.
ordered_json PageProblem(const Plan& plan, const std::string& problem, const std::string& data) {
  ordered_json json = {{"problem", problem},
                       {"operation", problem.substr(0, problem.find(':'))},
                       {"data", data},
                       {"note", plan.resolution().note},
                       {"compiler", plan.resolution().compiler},
                       {"seconds_total", absl::ToDoubleSeconds(plan.resolution().tune)}};
  if (plan.tuning() == nullptr) return json;
  const TuningResult& tuning = *plan.tuning();
  ordered_json evidence =
      ordered_json::parse(EvidenceToJson(tuning, {}), nullptr, /*allow_exceptions=*/false);
  if (evidence.is_object()) json.update(evidence);
  // The plots need no single samples.
  for (ordered_json& variant : json["variants"]) variant.erase("samples_ns");
  if (!tuning.data_signature.empty()) {
    json["signature"] =
        ordered_json::parse(tuning.data_signature, nullptr, /*allow_exceptions=*/false);
  }
  return json;
}

// One line of the summary.
struct SummaryRow {
  std::string problem, winner, time, gain, outcome;
};

void PrintSummary(Console& console, const std::vector<SummaryRow>& rows) {
  console.Line(absl::StrFormat("\n%-10s %-7s %-10s %s", "time", "gain", "", "problem and winner"));
  for (const SummaryRow& row : rows) {
    console.Line(
        absl::StrFormat("%-10s %-7s %-10s %s", row.time, row.gain, row.outcome, row.problem));
    if (!row.winner.empty())
      console.Line(absl::StrFormat("%-10s %-7s %-10s   %s", "", "", "", row.winner));
  }
}

class TuneCommand final : public Command {
 public:
  void Declare(Verb app) override;
  Outcome Run(Session& session) override;

 private:
  absl::StatusOr<std::vector<ListedProblem>> Problems() const;
  Outcome TuneOne(Session& session, Runtime& runtime, const ListedProblem& listed,
                  ordered_json* json, ordered_json* page, SummaryRow* row);
  void Print(Console& console, const Plan& plan) const;

  absl::Status TakeShard(std::vector<ListedProblem>* problems) const;
  ProblemFlags FlagsOf(const ListedProblem& listed) const;
  absl::Status WriteReport(Session& session, Runtime& runtime, ordered_json problems) const;

  ProblemFlags flags_;
  DeviceFlags device_;
  std::string list_;
  std::string shard_;
  std::string report_;
  bool all_ = false;
};

void TuneCommand::Declare(Verb app) {
  verb_ = app.AddVerb("tune", "Find and keep the fastest variants of one or many problems");
  verb_.Footer(
      "A list holds one JSON object per line:\n"
      "  {\"operation\": \"rms_norm\", \"dtype\": \"bf16\", \"rows\": 512, \"columns\": 4096}\n"
      "  {\"problem\": \"attention_forward:dtype=bf16,batch=1,heads_q=8,seq_q=1024,dqk=128\"}\n"
      "  {\"problem\": \"rms_norm:...\", \"data\": \"sparse\", \"seed\": 3}\n"
      "  {\"operation\": \"attention_forward\", \"causal\": 1, \"data\": \"captured\", "
      "\"safetensors\": \"layer0.safetensors\"}\n"
      "Files are relative to the list. A problem that fails does not stop the list; the exit "
      "status "
      "is the first failure's.\n"
      "Several nodes or devices share a list by --shard; their caches are brought together by "
      "whet cache merge.");
  DeclareProblemFlags(verb_, &flags_);
  DeclareDeviceFlags(verb_, &device_);
  verb_.Option("--problems", &list_, "Tune every problem of this list").Type("FILE.jsonl");
  verb_.Option("--shard", &shard_, "Of the problems, only every N-th from the I-th on: 1/4")
      .Type("I/N");
  verb_.Option("--report", &report_, "Write a page with plots that needs nothing but itself")
      .Type("FILE.html");
  verb_.Flag("--all", &all_, "Show every variant, not only the fastest");
  DeclareTensorFlags(verb_, &flags_);
}

absl::StatusOr<std::vector<ListedProblem>> TuneCommand::Problems() const {
  std::vector<ListedProblem> problems;
  if (!list_.empty()) {
    absl::StatusOr<std::vector<ListedProblem>> listed = ReadProblemList(list_);
    if (!listed.ok()) return listed;
    problems = *std::move(listed);
  }
  if (!flags_.operation.empty()) {
    absl::StatusOr<std::vector<std::string>> texts = ProblemTexts(flags_);
    if (!texts.ok()) return texts.status();
    for (const std::string& text : *texts) {
      problems.push_back({.operation = OperationName(flags_), .text = text, .origin = ""});
    }
  }
  if (problems.empty()) {
    return absl::InvalidArgumentError(
        "there is nothing to tune; name an operation, or a list with --problems");
  }
  if (flags_.has_files() && problems.size() > 1) {
    return absl::InvalidArgumentError("tensors from files go with one problem, not with several");
  }
  if (absl::Status s = TakeShard(&problems); !s.ok()) return s;
  return problems;
}

absl::Status TuneCommand::TakeShard(std::vector<ListedProblem>* problems) const {
  if (shard_.empty()) return absl::OkStatus();
  const std::vector<std::string> parts = absl::StrSplit(shard_, '/');
  size_t index = 0, count = 0;
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &index) ||
      !absl::SimpleAtoi(parts[1], &count) || index < 1 || index > count) {
    return absl::InvalidArgumentError(
        absl::StrCat("--shard ", shard_, ": expected I/N with I from 1 to N, as in 2/4"));
  }
  // By turns: lists are often sorted by size, and every shard gets some of each.
  std::vector<ListedProblem> mine;
  for (size_t i = index - 1; i < problems->size(); i += count) {
    mine.push_back(std::move((*problems)[i]));
  }
  *problems = std::move(mine);
  return absl::OkStatus();
}

ProblemFlags TuneCommand::FlagsOf(const ListedProblem& listed) const {
  ProblemFlags flags = flags_;
  if (!listed.data.empty() && listed.data != "captured") flags.data.kind = listed.data;
  if (listed.seed.has_value()) flags.data.seed = *listed.seed;
  flags.inputs.insert(flags.inputs.end(), listed.inputs.begin(), listed.inputs.end());
  if (!listed.safetensors.empty()) flags.safetensors = listed.safetensors;
  if (!listed.layout.empty()) flags.layout = listed.layout;
  flags.convert |= listed.convert;
  return flags;
}

absl::Status TuneCommand::WriteReport(Session& session, Runtime& runtime,
                                      ordered_json problems) const {
  if (report_.empty()) return absl::OkStatus();
  const ordered_json page = {{"device", DeviceJson(runtime.device().identity())},
                             {"shard", shard_},
                             {"problems", std::move(problems)}};
  absl::Status written = WriteFileAtomically(report_, TunePage(DumpJson(page)));
  if (written.ok()) session.console.Row("report", report_);
  return written;
}

Outcome TuneCommand::Run(Session& session) {
  absl::StatusOr<std::vector<ListedProblem>> problems = Problems();
  if (!problems.ok()) return InputFailure(problems.status());
  absl::StatusOr<std::unique_ptr<Runtime>> runtime = OpenRuntime(session, device_);
  if (!runtime.ok()) return InputFailure(runtime.status());
  session.console.Row("device", DeviceText((*runtime)->device().identity()));

  ordered_json results = ordered_json::array();
  ordered_json pages = ordered_json::array();
  std::vector<SummaryRow> summary;
  Outcome first_failure;
  size_t failed = 0;
  for (const ListedProblem& listed : *problems) {
    ordered_json result = ordered_json::object();
    ordered_json page;
    SummaryRow row{.problem = listed.text.find(':') == std::string::npos
                                  ? absl::StrCat(listed.operation, ":", listed.text)
                                  : listed.text,
                   .winner = "",
                   .time = "",
                   .gain = "",
                   .outcome = ""};
    Outcome outcome = TuneOne(session, **runtime, listed, &result, &page, &row);
    session.console.EndProgress();
    if (outcome.code != ExitCode::kDone) {
      const std::string where = listed.origin.empty() ? "" : absl::StrCat(listed.origin, ": ");
      outcome.status =
          absl::Status(outcome.status.code(), absl::StrCat(where, outcome.status.message()));
      result["error"] = std::string(outcome.status.message());
      row.outcome = "failed";
      page = {{"problem", result.value("problem", row.problem)},
              {"error", std::string(outcome.status.message())}};
      if (failed++ == 0) first_failure = outcome;
      // The last line of all is the first failure's; the others must be seen too.
      if (problems->size() > 1) session.console.Error(outcome.status.message());
    }
    results.push_back(std::move(result));
    pages.push_back(std::move(page));
    summary.push_back(std::move(row));
  }
  if (absl::Status s = WriteReport(session, **runtime, std::move(pages)); !s.ok()) {
    if (failed++ == 0) first_failure = ExecutionFailure(s);
  }
  if (problems->size() > 1) {
    PrintSummary(session.console, summary);
    session.console.Line(
        absl::StrFormat("%d of %d problems tuned", problems->size() - failed, problems->size()));
    if (failed > 0) {
      first_failure.status = absl::Status(
          first_failure.status.code(),
          absl::StrFormat("%d of %d problems could not be tuned", failed, problems->size()));
    }
  }
  ordered_json json = {{"device", DeviceJson((*runtime)->device().identity())},
                       {"problems", std::move(results)}};
  if (failed > 0) json["error"] = ErrorJson(first_failure);
  session.console.Json(DumpJson(json));
  return first_failure;
}

Outcome TuneCommand::TuneOne(Session& session, Runtime& runtime, const ListedProblem& listed,
                             ordered_json* json, ordered_json* page, SummaryRow* row) {
  absl::StatusOr<const KernelTemplate*> kernel_template = runtime.FindTemplate(listed.operation);
  if (!kernel_template.ok()) return InputFailure(kernel_template.status());
  const ProblemFlags flags = FlagsOf(listed);
  absl::StatusOr<CallInput> input = MakeCallInput(**kernel_template, flags, listed.text);
  if (!input.ok()) return InputFailure(input.status());
  session.console.Row("problem", ProblemText(input->problem.text()));
  row->problem = ProblemText(input->problem.text());
  (*json)["problem"] = input->problem.text();
  absl::StatusOr<std::unique_ptr<DeviceCall>> call =
      DeviceCall::Make(runtime.device(), input->tensors);
  if (!call.ok()) return ExecutionFailure(call.status());
  absl::StatusOr<const Plan*> plan =
      runtime.Tune(**kernel_template, input->problem, (*call)->args(), nullptr);
  if (!plan.ok()) return ExecutionFailure(plan.status());
  session.console.EndProgress();
  Print(session.console, **plan);
  const std::string data =
      flags.has_files() ? "captured" : absl::StrCat(flags.data.kind, ", seed ", flags.data.seed);
  *page = PageProblem(**plan, row->problem, data);
  row->winner = (*plan)->resolution().variant;
  row->gain =
      (*plan)->resolution().gain > 0 ? absl::StrFormat("%.2fx", (*plan)->resolution().gain) : "";
  row->outcome = "tuned";
  if (const TuningResult* tuning = (*plan)->tuning(); tuning != nullptr) {
    for (const VariantEvidence& e : tuning->evidence) {
      if (e.variant == tuning->winner && e.median_ns > 0) row->time = DurationText(e.median_ns);
    }
  }
  (*json)["data"] = data;
  (*json)["resolution"] = ResolutionJson((*plan)->resolution());
  if ((*plan)->tuning() != nullptr) (*json)["tuning"] = TuningJson(*(*plan)->tuning());
  return {};
}

void TuneCommand::Print(Console& console, const Plan& plan) const {
  const Resolution& resolution = plan.resolution();
  const std::string gain = GainText(resolution.gain);
  console.Row("winner", absl::StrCat(resolution.variant, gain.empty() ? "" : "  ", gain));
  console.Row("tuned", ResolutionText(resolution));
  if (!resolution.note.empty()) console.Row("note", OneLine(resolution.note));
  if (const std::string text = BudgetText(plan); !text.empty()) console.Row("note", text);
  if (plan.tuning() == nullptr) return;
  std::vector<const VariantEvidence*> timed;
  std::vector<const VariantEvidence*> others;
  for (const VariantEvidence& e : plan.tuning()->evidence) {
    (e.median_ns > 0 ? timed : others).push_back(&e);
  }
  std::stable_sort(timed.begin(), timed.end(),
                   [](const VariantEvidence* a, const VariantEvidence* b) {
                     // Times of the finals and of the screening are not comparable.
                     if (a->final_round != b->final_round) return a->final_round;
                     return a->median_ns < b->median_ns;
                   });
  const size_t shown = all_ ? timed.size() : std::min(timed.size(), kShownVariants);
  for (size_t i = 0; i < shown; ++i) {
    console.Line(absl::StrFormat("  %10s %c  %s", DurationText(timed[i]->median_ns),
                                 timed[i]->final_round ? '*' : ' ', timed[i]->variant.id()));
  }
  if (shown < timed.size()) {
    console.Line(absl::StrFormat("  and %d slower ones (--all shows them)", timed.size() - shown));
  }
  for (const VariantEvidence* e : others) {
    if (!all_ && e->outcome == VariantOutcome::kUntried) continue;
    console.Line(absl::StrFormat("  %10s    %s  %s", VariantOutcomeName(e->outcome),
                                 e->variant.id(), OneLine(e->reason)));
  }
}

}  // namespace

std::unique_ptr<Command> MakeTuneCommand() { return std::make_unique<TuneCommand>(); }

}  // namespace whet
