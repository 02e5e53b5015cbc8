// whet cache merge, import, export: from caches into the user's, and from the user's into a pack.
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cache/maintenance.h"
#include "cache/pack_seal.h"
#include "src/cli/cache_entry.h"
#include "src/cli/cache_source.h"
#include "src/cli/cache_verbs.h"
#include "src/cli/report.h"
#include "src/model/target.h"

namespace whet {
namespace {

using nlohmann::ordered_json;

// `merge` and `import` do the same; people look for both names.
class MergeCommand final : public Command {
 public:
  MergeCommand(const char* name, const char* what) : name_(name), what_(what) {}

  void Declare(Verb app) override {
    verb_ = app.AddVerb(name_, what_);
    verb_.Option("sources", &sources_, "Cache directories, cache.db files, packs").Required();
    verb_.Footer(
        "Of two winners for one key the one with the newer measuring protocol stays, then the one\n"
        "with more samples, then the newer: the order of the sources does not matter. What can\n"
        "still be read in a damaged file is taken; the rest is counted, and the status is then 1.");
  }

  Outcome Run(Session& session) override {
    std::vector<std::unique_ptr<Store>> sources;
    std::vector<Store*> pointers;
    for (const std::string& path : sources_) {
      absl::StatusOr<std::unique_ptr<Store>> source = OpenCachePath(session, path);
      if (!source.ok()) return InputFailure(source.status());
      pointers.push_back(source->get());
      sources.push_back(*std::move(source));
    }
    absl::StatusOr<std::unique_ptr<Store>> into = OpenUserCache(session);
    if (!into.ok()) return InputFailure(into.status());
    absl::StatusOr<MergeSummary> merged = Merge(pointers, **into);
    if (!merged.ok()) return {ExitCode::kFailed, merged.status()};
    session.console.Row("added", absl::StrFormat("%d code objects, %d winners", merged->code_added,
                                                 merged->winners_added));
    session.console.Row("replaced",
                        absl::StrFormat("%d winners by better ones", merged->winners_replaced));
    ordered_json json = {{"into", (*into)->path()},
                         {"code_added", merged->code_added},
                         {"winners_added", merged->winners_added},
                         {"winners_replaced", merged->winners_replaced},
                         {"unreadable", merged->unreadable}};
    Outcome outcome;
    if (merged->unreadable > 0) {
      outcome = {ExitCode::kFailed, absl::DataLossError(absl::StrCat(
                                        merged->unreadable,
                                        " entries of the sources could not be read; all others "
                                        "were taken"))};
      json["error"] = ErrorJson(outcome);
    }
    session.console.Json(DumpJson(json));
    return outcome;
  }

 private:
  const char* const name_;
  const char* const what_;
  std::vector<std::string> sources_;
};

class ExportCommand final : public Command {
 public:
  void Declare(Verb app) override {
    verb_ = app.AddVerb("export", "Write a pack from a cache: tuned winners and their code");
    verb_.Option("-o,--output", &output_, "The pack to write; replaced only by a whole one")
        .Required()
        .Type("PACK");
    verb_.Option("--in", &in_, "From this cache directory, cache.db or pack (the user cache)")
        .Type("SOURCE");
    verb_.Option("--sign", &secret_key_, "Sign it with the secret key in this file").Type("FILE");
    verb_.Option("--operation", &operation_, "Only entries of this operation");
    verb_.Option("--target", &target_, "Only entries for targets of this form, * for anything")
        .Type("GLOB");
    verb_.Flag("--winning", &winning_, "Of the code only what a winner refers to");
  }

  Outcome Run(Session& session) override {
    PackWriterOptions options;
    if (!secret_key_.empty()) {
      absl::StatusOr<std::string> secret = LoadPackSecretKey(secret_key_);
      if (!secret.ok()) return InputFailure(secret.status());
      options.secret_key = *std::move(secret);
    }
    absl::StatusOr<std::unique_ptr<Store>> store =
        OpenCachePath(session, in_.empty() ? session.options.cache_directory : in_);
    if (!store.ok()) return InputFailure(store.status());
    absl::StatusOr<std::vector<CodeEntry>> code = (*store)->ListCode();
    if (!code.ok()) return {ExitCode::kFailed, code.status()};
    absl::StatusOr<std::vector<WinnerEntry>> winners = (*store)->ListWinners();
    if (!winners.ok()) return {ExitCode::kFailed, winners.status()};

    // What goes in, and what the manifest says of it, both read off the keys.
    std::set<std::string> wanted_winners, wanted_code, winning_code, targets, toolchains;
    for (const WinnerEntry& entry : *winners) {
      const KeyFieldList fields = KeyFieldsOf(entry.key);
      if (!Wanted(fields)) continue;
      wanted_winners.insert(entry.key);
      winning_code.insert(entry.code_key);
      if (absl::StatusOr<Target> target = Target::Parse(KeyFieldOf(fields, "target"));
          target.ok()) {
        options.manifest.templates[absl::StrCat(KeyFieldOf(fields, "template"), "/",
                                                PlatformName(target->platform))] =
            KeyFieldOf(fields, "variant_set");
      }
    }
    for (const CodeEntry& entry : *code) {
      const KeyFieldList fields = KeyFieldsOf(entry.key);
      if (!Wanted(fields) || (winning_ && !winning_code.contains(entry.key))) continue;
      wanted_code.insert(entry.key);
      targets.insert(KeyFieldOf(fields, "target"));
      toolchains.insert(absl::StrCat(KeyFieldOf(fields, "compiler"), " ",
                                     KeyFieldOf(fields, "compiler_version"), ", build ",
                                     KeyFieldOf(fields, "compiler_build")));
    }
    options.manifest.targets.assign(targets.begin(), targets.end());
    options.manifest.toolchains.assign(toolchains.begin(), toolchains.end());
    options.want_code = [&](const CodeEntry& entry) { return wanted_code.contains(entry.key); };
    options.want_winner = [&](const WinnerEntry& entry) {
      return wanted_winners.contains(entry.key);
    };
    absl::StatusOr<PackSummary> written = Export(**store, output_, options);
    if (!written.ok()) return InputFailure(written.status());
    session.console.Row("pack", absl::StrFormat("%s: %d code objects, %d winners, %s", output_,
                                                written->code_entries, written->winner_entries,
                                                BytesText(written->file_bytes)));
    session.console.Json(DumpJson({{"pack", output_},
                                   {"code", written->code_entries},
                                   {"winners", written->winner_entries},
                                   {"file_bytes", written->file_bytes}}));
    return {};
  }

 private:
  bool Wanted(const KeyFieldList& fields) const {
    return (operation_.empty() || KeyFieldOf(fields, "template") == operation_) &&
           (target_.empty() || MatchesGlob(target_, KeyFieldOf(fields, "target")));
  }

  std::string output_;
  std::string in_;
  std::string secret_key_;
  std::string operation_;
  std::string target_;
  bool winning_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeCacheMerge() {
  return std::make_unique<MergeCommand>("merge", "Take the caches of other nodes into the user's");
}
std::unique_ptr<Command> MakeCacheImport() {
  return std::make_unique<MergeCommand>("import", "Take packs or caches into the user's");
}
std::unique_ptr<Command> MakeCacheExport() { return std::make_unique<ExportCommand>(); }

}  // namespace whet
