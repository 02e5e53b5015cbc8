// The whet tool. Every verb is a file of its own; docs/cli.md is the manual.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "src/cli/command.h"
#include "src/cli/report.h"
#include "src/cli/verb.h"

namespace whet {
namespace {

struct GlobalFlags {
  bool json = false;
  bool quiet = false;
  std::string cache;
  std::string cache_policy;
  std::string packs;
  std::string trusted_keys;
  std::string tuning;
  double budget_seconds = 0;
  int threads = 0;
};

void DeclareGlobalFlags(Verb app, GlobalFlags* flags) {
  const std::string group = "Everywhere";
  app.Flag("--json", &flags->json, "One JSON object on standard output, and nothing else")
      .Group(group);
  app.Flag("--quiet", &flags->quiet, "No progress").Group(group);
  app.Option("--cache", &flags->cache, "Directory of the cache (WHET_CACHE)")
      .Group(group)
      .Type("DIR");
  app.Option("--cache-policy", &flags->cache_policy,
             "off, read-only, read-write, offline or verify (WHET_CACHE_POLICY)")
      .Group(group)
      .Type("POLICY");
  app.Option("--packs", &flags->packs,
             "Packs to look into, or directories of them, with colons (WHET_PACKS)")
      .Group(group)
      .Type("LIST");
  app.Option("--trusted-keys", &flags->trusted_keys,
             "Public keys, or files of them, with commas: packs must be signed with one of them "
             "(WHET_TRUSTED_KEYS)")
      .Group(group)
      .Type("LIST");
  app.Option("--tuning", &flags->tuning,
             "blocking, online, never, offline or deterministic (WHET_TUNING)")
      .Group(group)
      .Type("MODE");
  app.Option("--budget", &flags->budget_seconds,
             "Seconds of tuning per problem (WHET_TUNING_BUDGET)")
      .Positive()
      .Group(group)
      .Type("SECONDS");
  app.Option("--threads", &flags->threads, "Threads of the CPU device (WHET_CPU_THREADS)")
      .Range(1, 4096)
      .Group(group)
      .Type("N");
}

// The environment's settings, overridden by the command line's.
absl::StatusOr<Options> MakeOptions(const Environment& environment, const GlobalFlags& flags) {
  absl::StatusOr<Options> options = OptionsFromEnvironment(environment);
  if (!options.ok()) return options;
  if (!flags.cache.empty()) options->cache_directory = flags.cache;
  if (!flags.cache_policy.empty()) {
    absl::StatusOr<CachePolicy> policy = ParseCachePolicy(flags.cache_policy);
    if (!policy.ok()) return policy.status();
    options->cache_policy = *policy;
  }
  if (!flags.packs.empty()) options->packs = absl::StrSplit(flags.packs, ':', absl::SkipEmpty());
  if (!flags.trusted_keys.empty()) {
    options->trusted_keys = absl::StrSplit(flags.trusted_keys, ',', absl::SkipWhitespace());
  }
  if (!flags.tuning.empty()) {
    absl::StatusOr<TuningMode> mode = ParseTuningMode(flags.tuning);
    if (!mode.ok()) return mode.status();
    options->tuning = *mode;
  }
  if (flags.budget_seconds > 0) options->tuning_policy.budget = absl::Seconds(flags.budget_seconds);
  if (flags.threads > 0) options->device.cpu_threads = flags.threads;
  return options;
}

bool StandardErrorIsTerminal(const Environment& environment) {
  return isatty(STDERR_FILENO) == 1 && environment("TERM").value_or("dumb") != "dumb";
}

ExitCode RunVerb(std::vector<std::unique_ptr<Command>>& commands, Console& console,
                 const Environment& environment, const GlobalFlags& flags) {
  Outcome outcome{ExitCode::kUsage, absl::InvalidArgumentError("no verb was given")};
  absl::StatusOr<Options> options = MakeOptions(environment, flags);
  if (!options.ok()) {
    outcome = InputFailure(options.status());
  } else {
    options->log = console.Log();
    Session session{*std::move(options), console, environment};
    for (const std::unique_ptr<Command>& command : commands) {
      if (command->chosen()) outcome = command->Run(session);
    }
  }
  console.EndProgress();
  if (outcome.code != ExitCode::kDone) {
    console.Json(DumpJson({{"error", ErrorJson(outcome)}}));
    console.Error(outcome.status.message());
  }
  if (!console.Flush()) {
    console.Error("cannot write to standard output: is the disk full?");
    return ExitCode::kFailed;
  }
  return outcome.code;
}

int Main(int argc, char** argv) {
  CommandLine line(
      "whet",
      "Whet sharpens kernels on the data they will run on: it specialises, compiles and tunes, "
      "and\n"
      "keeps what it found for the next process.",
      "whet 0.1.0");
  Verb root = line.root();
  root.RequireVerb();
  root.Footer(
      "Exit status: 0 done, 1 failed, 2 wrong command line, 3 wrong input, 4 a device or compiler "
      "is\n"
      "missing, 5 a compiler failed, 6 the result is wrong. `whet VERB --help` shows examples.");
  GlobalFlags flags;
  DeclareGlobalFlags(root, &flags);
  std::vector<std::unique_ptr<Command>> commands;
  commands.push_back(MakeRunCommand());
  commands.push_back(MakeTuneCommand());
  commands.push_back(MakeCompileCommand());
  commands.push_back(MakeCheckCommand());
  commands.push_back(MakePackCommand());
  commands.push_back(MakeCacheCommand());
  commands.push_back(MakeDoctorCommand());
  commands.push_back(MakeTemplatesCommand());
  for (const std::unique_ptr<Command>& command : commands) command->Declare(root);

  const Environment environment = SystemEnvironment();
  std::string error;
  if (const std::optional<int> exit = line.Parse(argc, argv, &error)) {
    if (*exit == 0) return 0;
    Console console(stdout, stderr, {.json = flags.json});
    const Outcome outcome{ExitCode::kUsage, absl::InvalidArgumentError(error)};
    console.Json(DumpJson({{"error", ErrorJson(outcome)}}));
    console.Error(outcome.status.message());
    return static_cast<int>(outcome.code);
  }
  Console console(
      stdout, stderr,
      {.json = flags.json, .quiet = flags.quiet, .terminal = StandardErrorIsTerminal(environment)});
  return static_cast<int>(RunVerb(commands, console, environment, flags));
}

}  // namespace
}  // namespace whet

int main(int argc, char** argv) { return whet::Main(argc, argv); }
