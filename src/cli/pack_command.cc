// whet pack: compiles a list of problems for a list of targets into one file that is shipped.
#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "cache/pack.h"
#include "cache/pack_seal.h"
#include "cache/pack_writer.h"
#include "src/base/files.h"
#include "src/cli/command.h"
#include "src/cli/device_flags.h"
#include "src/cli/pack_keys.h"
#include "src/cli/problem_input.h"
#include "src/cli/problem_list.h"
#include "src/cli/report.h"
#include "src/cli/target_list.h"
#include "src/runtime/build_code.h"

namespace whet {
namespace {

using nlohmann::ordered_json;

// One thing that could not be had, and why.
struct Failure {
  std::string what;
  absl::Status status;
};

// What is to be compiled, and what cannot be.
struct Work {
  std::vector<CodeRequest> requests;
  std::vector<Failure> failures;
  size_t problems = 0;
};

// What came out for one target.
struct TargetSummary {
  int64_t objects = 0, cached = 0, object_bytes = 0;
  std::set<std::string> toolchains;
};

class PackCommand final : public Command {
 public:
  void Declare(Verb app) override;
  Outcome Run(Session& session) override;

 private:
  absl::StatusOr<std::vector<std::pair<const KernelTemplate*, Problem>>> Problems(
      Runtime& runtime) const;
  absl::StatusOr<Work> PlanWork(Runtime& runtime, const std::vector<Target>& targets) const;
  absl::StatusOr<std::vector<Variant>> Wanted(const KernelTemplate& kernel_template,
                                              const Problem& problem, const Target& target) const;
  Outcome Write(Session& session);

  PackTools tools_;
  std::vector<std::string> lists_;
  std::vector<std::string> problems_;
  std::vector<std::string> targets_;
  std::string output_;
  std::string variants_ = "default";
  std::string secret_key_;
  int level_ = PackWriterOptions().compression_level;
  bool keep_going_ = false;
};

void PackCommand::Declare(Verb app) {
  verb_ = app.AddVerb(
      "pack",
      "Compile problems for targets into one file to ship, without a GPU; handle such files");
  verb_.AllowOneVerb();
  verb_.Footer(
      "Examples:\n"
      "  whet pack --problems list.jsonl --target gfx950,gfx942,gfx90a -o amd.whetpack\n"
      "  whet pack keygen release.key\n"
      "  whet pack --problems list.jsonl --target sm_90a -o h100.whetpack --sign release.key\n"
      "  whet pack verify h100.whetpack --trusted-keys release.key.pub\n"
      "  WHET_PACKS=h100.whetpack whet run attention_forward --cache-policy offline --device cuda\n"
      "The same problems, targets and compilers give the same bytes. What was compiled stays in "
      "the\n"
      "cache, so a build that was interrupted goes on where it was. A list holds one problem per\n"
      "line, as for `whet tune`. When something cannot be compiled no pack is written, unless\n"
      "--keep-going is given; the exit status says so in either case.");
  verb_.Option("--problems", &lists_, "List of problems; may be given several times")
      .Type("FILE.jsonl")
      .OneValueEach();
  verb_
      .Option("-p,--problem", &problems_,
              "One whole problem, operation:field=value,...; may be given several times")
      .Type("PROBLEM")
      .OneValueEach();
  verb_
      .Option("-t,--target", &targets_,
              "Targets: gfx942, gfx950:sramecc+:xnack-, sm_90a, x86-64:avx2,fma or host; "
              "several with commas")
      .Type("TARGETS")
      .OneValueEach();
  verb_.Option("-o,--output", &output_, "The pack to write; replaced only by a whole one")
      .Type("PACK");
  verb_
      .Option("--variants", &variants_,
              "Of each problem: default, all, or the first N in the template's order "
              "(its preferred kernels first, then the estimated cost)")
      .Type("default|all|N")
      .ShowDefault();
  verb_.Option("--sign", &secret_key_, "Sign it with the secret key in this file").Type("FILE");
  verb_.Option("--level", &level_, "zstd level, 1 (fast) to 19 (small)").Range(1, 19).ShowDefault();
  verb_.Flag("--keep-going", &keep_going_, "Write the pack even when something is missing");
  tools_.Declare(verb_);
}

absl::StatusOr<std::vector<std::pair<const KernelTemplate*, Problem>>> PackCommand::Problems(
    Runtime& runtime) const {
  std::vector<ListedProblem> listed;
  for (const std::string& list : lists_) {
    absl::StatusOr<std::vector<ListedProblem>> read = ReadProblemList(list);
    if (!read.ok()) return read.status();
    for (ListedProblem& problem : *read) listed.push_back(std::move(problem));
  }
  for (const std::string& text : problems_) {
    listed.push_back({.operation = text.substr(0, text.find(':')), .text = text, .origin = ""});
  }
  std::vector<std::pair<const KernelTemplate*, Problem>> problems;
  std::set<std::string> seen;
  for (const ListedProblem& one : listed) {
    const std::string where = one.origin.empty() ? "" : absl::StrCat(one.origin, ": ");
    absl::StatusOr<const KernelTemplate*> kernel_template = runtime.FindTemplate(one.operation);
    absl::StatusOr<Problem> problem = kernel_template.ok()
                                          ? MakeProblemFromText(**kernel_template, one.text)
                                          : absl::StatusOr<Problem>(kernel_template.status());
    if (!problem.ok()) {
      return absl::Status(problem.status().code(), absl::StrCat(where, problem.status().message()));
    }
    if (seen.insert(problem->text()).second) {
      problems.emplace_back(*kernel_template, *std::move(problem));
    }
  }
  return problems;
}

absl::StatusOr<std::vector<Variant>> PackCommand::Wanted(const KernelTemplate& kernel_template,
                                                         const Problem& problem,
                                                         const Target& target) const {
  if (variants_ == "default") {
    absl::StatusOr<Variant> variant =
        kernel_template.DefaultVariant(problem, target, DeviceLimits{});
    if (!variant.ok()) return variant.status();
    return std::vector<Variant>{*std::move(variant)};
  }
  absl::StatusOr<std::vector<Variant>> variants =
      kernel_template.Variants(problem, target, DeviceLimits{});
  size_t count = 0;
  if (variants.ok() && absl::SimpleAtoi(variants_, &count) && variants->size() > count) {
    variants->resize(count);
  }
  return variants;
}

absl::StatusOr<Work> PackCommand::PlanWork(Runtime& runtime,
                                           const std::vector<Target>& targets) const {
  auto problems = Problems(runtime);
  if (!problems.ok()) return problems.status();
  Work work;
  work.problems = problems->size();
  for (const Target& target : targets) {
    // One clear answer instead of the same one per problem.
    if (absl::StatusOr<Compiler*> compiler = runtime.toolchains().For(target); !compiler.ok()) {
      work.failures.push_back({target.ToString(), compiler.status()});
      continue;
    }
    for (const auto& [kernel_template, problem] : *problems) {
      absl::StatusOr<std::vector<Variant>> variants = Wanted(*kernel_template, problem, target);
      if (!variants.ok()) {
        work.failures.push_back(
            {absl::StrCat(target.ToString(), " ", ProblemText(problem.text())), variants.status()});
        continue;
      }
      for (Variant& variant : *variants) {
        work.requests.push_back({kernel_template, problem, std::move(variant), target});
      }
    }
  }
  return work;
}

// Said before hours of compiling rather than after.
absl::Status CheckOutput(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string directory =
      slash == std::string::npos ? "." : path.substr(0, std::max<size_t>(slash, 1));
  if (IsDirectory(path)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot write the pack ", path, ": it is a directory"));
  }
  if (access(directory.c_str(), W_OK | X_OK) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, "write the pack", path);
}

ordered_json FailuresJson(const std::vector<Failure>& failures) {
  ordered_json list = ordered_json::array();
  for (const Failure& failure : failures) {
    list.push_back({{"what", failure.what}, {"reason", std::string(failure.status.message())}});
  }
  return list;
}

// "attention_forward/hip" -> digest of what decides that template's kernels on that platform.
std::map<std::string, std::string> TemplateDigests(const std::vector<CodeRequest>& requests) {
  std::map<std::string, std::string> digests;
  for (const CodeRequest& request : requests) {
    const Platform platform = request.target.platform;
    std::string& digest =
        digests[absl::StrCat(request.kernel_template->name(), "/", PlatformName(platform))];
    if (digest.empty()) digest = request.kernel_template->VariantSetDigest(platform).ToHex();
  }
  return digests;
}

absl::Status Incomplete(const std::vector<Failure>& failures, bool written) {
  const Failure& first = failures.front();
  return absl::Status(
      first.status.code(),
      absl::StrFormat(
          "%s%d part%s could not be had%s; the first: %s: %s",
          written ? "the pack is not complete: " : "no pack was written: ", failures.size(),
          failures.size() == 1 ? "" : "s", written ? "" : " (--keep-going writes one without)",
          first.what, first.status.message()));
}

Outcome PackCommand::Run(Session& session) {
  if (tools_.chosen()) return tools_.Run(session);
  return Write(session);
}

Outcome PackCommand::Write(Session& session) {
  const auto usage = [](absl::string_view why) {
    return Outcome{ExitCode::kUsage,
                   absl::InvalidArgumentError(absl::StrCat(why, "; see whet pack --help"))};
  };
  if (lists_.empty() && problems_.empty()) return usage("--problems or --problem is required");
  if (targets_.empty()) return usage("--target is required");
  if (output_.empty()) return usage("--output is required");
  int count = 0;
  if (variants_ != "default" && variants_ != "all" &&
      (!absl::SimpleAtoi(variants_, &count) || count < 1)) {
    return usage(absl::StrCat("--variants ", variants_, ": give default, all or a number from 1"));
  }
  const absl::Time begin = absl::Now();
  PackWriterOptions options;
  options.compression_level = level_;
  std::string signer;
  if (!secret_key_.empty()) {
    absl::StatusOr<std::string> secret = LoadPackSecretKey(secret_key_);
    if (!secret.ok()) return InputFailure(secret.status());
    options.secret_key = *std::move(secret);
  }
  if (absl::Status writable = CheckOutput(output_); !writable.ok()) return InputFailure(writable);
  absl::StatusOr<std::vector<Target>> targets = ParseTargetList(targets_);
  if (!targets.ok()) return InputFailure(targets.status());
  // The CPU device is always there; it brings the templates, the compilers and the cache.
  absl::StatusOr<std::unique_ptr<Runtime>> runtime = OpenRuntime(session, {});
  if (!runtime.ok()) return InputFailure(runtime.status());
  absl::StatusOr<Work> work = PlanWork(**runtime, *targets);
  if (!work.ok()) return InputFailure(work.status());

  Console& console = session.console;
  const std::unique_ptr<Store> content =
      Store::Open({.path = "", .size_limit_bytes = 0}, Logger(console.Log()));
  const std::vector<BuiltCode> built =
      BuildCode(**runtime, work->requests, *content, console.Progress());
  console.EndProgress();
  std::map<std::string, TargetSummary> summaries;
  std::set<std::string> toolchains;
  for (const Target& target : *targets) summaries[target.ToString()];
  for (size_t i = 0; i < built.size(); ++i) {
    const CodeRequest& request = work->requests[i];
    if (!built[i].status.ok()) {
      work->failures.push_back(
          {absl::StrCat(request.target.ToString(), " ", request.variant.id()), built[i].status});
      continue;
    }
    TargetSummary& summary = summaries[request.target.ToString()];
    ++summary.objects;
    summary.cached += built[i].was_cached ? 1 : 0;
    summary.object_bytes += built[i].object_bytes;
    summary.toolchains.insert(built[i].toolchain);
    toolchains.insert(built[i].toolchain);
  }
  ordered_json target_list = ordered_json::array();
  for (const Target& target : *targets) {
    const TargetSummary& summary = summaries[target.ToString()];
    console.Row(
        "target",
        absl::StrFormat("%s: %d code objects, %s, %d from the cache, by %s", target.ToString(),
                        summary.objects, BytesText(summary.object_bytes), summary.cached,
                        summary.toolchains.empty() ? "no compiler"
                                                   : absl::StrJoin(summary.toolchains, " and ")));
    target_list.push_back({{"target", target.ToString()},
                           {"objects", summary.objects},
                           {"was_cached", summary.cached},
                           {"object_bytes", summary.object_bytes},
                           {"toolchains", summary.toolchains}});
    if (summary.objects > 0) options.manifest.targets.push_back(target.ToString());
  }
  for (const Failure& failure : work->failures) {
    console.Row("missing", absl::StrCat(failure.what, ": ", OneLine(failure.status.message())));
  }
  options.manifest.toolchains.assign(toolchains.begin(), toolchains.end());
  options.manifest.templates = TemplateDigests(work->requests);

  ordered_json json = {{"pack", ""}, {"problems", work->problems}, {"targets", target_list}};
  Outcome outcome;
  const bool complete = work->failures.empty();
  if (!complete) {
    outcome = ExecutionFailure(work->failures.front().status);
    outcome.status = Incomplete(work->failures, keep_going_);
    json["missing"] = FailuresJson(work->failures);
  }
  if (complete || keep_going_) {
    absl::StatusOr<PackSummary> written = WritePack(output_, *content, options);
    if (!written.ok()) return InputFailure(written.status());
    if (!options.secret_key.empty()) {
      absl::StatusOr<std::unique_ptr<Pack>> pack = Pack::Open(output_, {}, Logger(console.Log()));
      if (!pack.ok()) return {ExitCode::kFailed, pack.status()};
      signer = FormatPackPublicKey((*pack)->signer());
    }
    const absl::Duration took = absl::Now() - begin;
    console.Row("pack", absl::StrFormat("%s: %d code objects of %d problems, %s, in %s", output_,
                                        written->code_entries, work->problems,
                                        BytesText(written->file_bytes),
                                        DurationText(absl::ToDoubleNanoseconds(took))));
    console.Row("signer", signer.empty() ? "not signed" : signer);
    json["pack"] = output_;
    json["code"] = written->code_entries;
    json["file_bytes"] = written->file_bytes;
    json["signer"] = signer;
    json["seconds"] = absl::ToDoubleSeconds(took);
  }
  if (outcome.code != ExitCode::kDone) json["error"] = ErrorJson(outcome);
  console.Json(DumpJson(json));
  return outcome;
}

}  // namespace

std::unique_ptr<Command> MakePackCommand() { return std::make_unique<PackCommand>(); }

}  // namespace whet
