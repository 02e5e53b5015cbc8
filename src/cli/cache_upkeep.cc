// whet cache verify, prune: whether everything can be read, and making room.
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cache/maintenance.h"
#include "src/cli/cache_source.h"
#include "src/cli/cache_verbs.h"
#include "src/cli/report.h"

namespace whet {
namespace {

class VerifyCommand final : public Command {
 public:
  void Declare(Verb app) override {
    verb_ = app.AddVerb("verify",
                        "Read every entry; damaged ones are dropped and made again when they "
                        "are next asked for");
    verb_.Option("--in", &in_, "Only look into this cache directory, cache.db or pack")
        .Type("SOURCE");
    verb_.Footer("Ends with status 1 when anything is damaged.");
  }

  Outcome Run(Session& session) override {
    absl::StatusOr<std::unique_ptr<Store>> store =
        in_.empty() ? OpenUserCache(session) : OpenCachePath(session, in_);
    if (!store.ok()) return InputFailure(store.status());
    absl::StatusOr<VerifySummary> summary = Verify(**store);
    if (!summary.ok()) return {ExitCode::kFailed, summary.status()};
    // A pack has bytes outside of its entries, which must be right as well.
    if (auto* pack = dynamic_cast<Pack*>(store->get())) {
      if (absl::Status intact = pack->Verify(); !intact.ok()) return {ExitCode::kFailed, intact};
    }
    const int64_t set_aside = (*store)->counters().set_aside_files;
    session.console.Row("intact", absl::StrFormat("%d entries", summary->good));
    session.console.Row("damaged", absl::StrFormat("%d entries", summary->damaged));
    if (summary->dangling_winners > 0) {
      session.console.Row("note", absl::StrFormat("the code of %d winners is not here; it is "
                                                  "compiled when it is asked for",
                                                  summary->dangling_winners));
    }
    nlohmann::ordered_json json = {{"path", (*store)->path()},
                                   {"intact", summary->good},
                                   {"damaged", summary->damaged},
                                   {"set_aside_files", set_aside},
                                   {"winners_without_code", summary->dangling_winners}};
    Outcome outcome;
    if (summary->damaged > 0 || set_aside > 0) {
      outcome = {ExitCode::kFailed,
                 absl::DataLossError(
                     set_aside > 0
                         ? absl::StrCat("the file ", (*store)->path(),
                                        " was damaged and set aside; `whet cache merge` saves what "
                                        "can still be read in it")
                         : absl::StrCat(summary->damaged, " entries of ", (*store)->path(),
                                        " are damaged; they are made again when they are asked "
                                        "for"))};
      json["error"] = ErrorJson(outcome);
    }
    session.console.Json(DumpJson(json));
    return outcome;
  }

 private:
  std::string in_;
};

// "30d", "12h", "90m"
absl::StatusOr<absl::Duration> ParseAge(const std::string& text) {
  absl::Duration age;
  double days = 0;
  if (!text.empty() && text.back() == 'd' &&
      absl::SimpleAtod(absl::string_view(text).substr(0, text.size() - 1), &days) && days >= 0) {
    return absl::Hours(24) * days;
  }
  if (absl::ParseDuration(text, &age) && age >= absl::ZeroDuration()) return age;
  return absl::InvalidArgumentError(
      absl::StrCat("--unused-for ", text, " is not a time; write 30d, 12h or 90m"));
}

class PruneCommand final : public Command {
 public:
  void Declare(Verb app) override {
    verb_ = app.AddVerb("prune", "Remove entries from the user cache");
    verb_
        .Option("--max-size", &max_size_,
                "Until at most this much is used, the longest unused first")
        .Type("BYTES");
    verb_.Option("--unused-for", &unused_for_, "What was not used for so long: 30d, 12h")
        .Type("TIME");
    verb_.Flag("--older-generations", &older_generations_,
               "What only older versions of the library could find");
    verb_.Flag("--all", &all_, "Everything; refused while another process uses the cache");
    verb_.Flag("--force", &force_, "Even then: the other process compiles again, nothing worse");
  }

  Outcome Run(Session& session) override {
    PruneOptions options;
    options.everything = all_;
    options.force = force_;
    if (!max_size_.empty()) {
      absl::StatusOr<int64_t> bytes = ParseByteCount(max_size_);
      if (!bytes.ok()) return InputFailure(bytes.status());
      options.max_bytes = *bytes;
    }
    if (!unused_for_.empty()) {
      absl::StatusOr<absl::Duration> age = ParseAge(unused_for_);
      if (!age.ok()) return InputFailure(age.status());
      options.unused_since_unix_s = absl::ToUnixSeconds(absl::Now() - *age);
    }
    if (older_generations_) options.generations_below = LayersOf(session.options).user.generation;
    if (!all_ && !older_generations_ && max_size_.empty() && unused_for_.empty()) {
      return {ExitCode::kUsage,
              absl::InvalidArgumentError("say what to remove: --max-size, --unused-for, "
                                         "--older-generations or --all; see whet cache prune "
                                         "--help")};
    }
    absl::StatusOr<std::unique_ptr<Store>> store = OpenUserCache(session);
    if (!store.ok()) return InputFailure(store.status());
    absl::StatusOr<PruneSummary> pruned = Prune(**store, options);
    if (!pruned.ok()) return InputFailure(pruned.status());
    absl::StatusOr<StoreUsage> usage = (*store)->Usage();
    if (!usage.ok()) return {ExitCode::kFailed, usage.status()};
    session.console.Row(
        "removed",
        absl::StrFormat("%d code objects, %d winners, and %d entries for size",
                        pruned->code_entries, pruned->winner_entries, pruned->evicted_for_size));
    session.console.Row(
        "left", absl::StrFormat("%d code objects, %d winners, %s used of a file of %s",
                                usage->code_entries, usage->winner_entries,
                                BytesText(usage->used_bytes), BytesText(usage->file_bytes)));
    session.console.Json(DumpJson({{"removed_code", pruned->code_entries},
                                   {"removed_winners", pruned->winner_entries},
                                   {"removed_for_size", pruned->evicted_for_size},
                                   {"code", usage->code_entries},
                                   {"winners", usage->winner_entries},
                                   {"used_bytes", usage->used_bytes},
                                   {"file_bytes", usage->file_bytes}}));
    return {};
  }

 private:
  std::string max_size_;
  std::string unused_for_;
  bool older_generations_ = false;
  bool all_ = false;
  bool force_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeCacheVerify() { return std::make_unique<VerifyCommand>(); }
std::unique_ptr<Command> MakeCachePrune() { return std::make_unique<PruneCommand>(); }

}  // namespace whet
