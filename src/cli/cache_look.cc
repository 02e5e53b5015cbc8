// whet cache ls, show, stats: what caches hold. Nothing is changed by looking.
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cache/maintenance.h"
#include "src/base/files.h"
#include "src/cli/cache_entry.h"
#include "src/cli/cache_source.h"
#include "src/cli/cache_verbs.h"
#include "src/cli/report.h"

namespace whet {
namespace {

using nlohmann::ordered_json;

void DeclareIn(Verb verb, std::string* in) {
  verb.Option("--in", in, "Look into this cache directory, cache.db or pack alone").Type("SOURCE");
}

class LsCommand final : public Command {
 public:
  void Declare(Verb app) override {
    verb_ = app.AddVerb("ls", "List code objects and winners, oldest first");
    DeclareIn(verb_, &in_);
    verb_.Option("--match", &match_, "Only entries with this text in a field of their key")
        .Type("TEXT");
  }

  Outcome Run(Session& session) override {
    absl::StatusOr<std::unique_ptr<Store>> store = OpenForLooking(session, in_);
    if (!store.ok()) return InputFailure(store.status());
    absl::StatusOr<std::vector<CodeEntry>> code = (*store)->ListCode();
    if (!code.ok()) return {ExitCode::kFailed, code.status()};
    absl::StatusOr<std::vector<WinnerEntry>> winners = (*store)->ListWinners();
    if (!winners.ok()) return {ExitCode::kFailed, winners.status()};
    std::erase_if(*code, [&](const CodeEntry& entry) { return !Matches(entry.key); });
    std::erase_if(*winners, [&](const WinnerEntry& entry) { return !Matches(entry.key); });

    Console& console = session.console;
    const std::string path = (*store)->persistent() ? (*store)->path() : "";
    ordered_json json = {
        {"path", path}, {"code", ordered_json::array()}, {"winners", ordered_json::array()}};
    if (!code->empty()) console.Line("code objects");
    int64_t bytes = 0;
    for (const CodeEntry& entry : *code) {
      bytes += entry.facts.stored_bytes;
      json["code"].push_back(CodeEntryJson(entry));
      console.Line(CodeEntryText(entry));
    }
    if (!winners->empty()) console.Line("winners");
    for (const WinnerEntry& entry : *winners) {
      json["winners"].push_back(WinnerEntryJson(entry));
      console.Line(WinnerEntryText(entry));
    }
    json["stored_bytes"] = bytes;
    const std::string none = code->empty() && winners->empty() ? "no file" : "packs alone";
    console.Line(absl::StrFormat("%d code objects (%s), %d winner%s in %s", code->size(),
                                 BytesText(bytes), winners->size(), winners->size() == 1 ? "" : "s",
                                 path.empty() ? none : path));
    console.Json(DumpJson(json));
    return {};
  }

 private:
  bool Matches(const std::string& key) const {
    return match_.empty() || absl::StrContains(key, match_);
  }

  std::string in_;
  std::string match_;
};

class ShowCommand final : public Command {
 public:
  void Declare(Verb app) override {
    verb_ = app.AddVerb("show", "Show everything about entries by their key's hash");
    verb_.Option("hash", &hash_, "The first digits, 4 at least, as `ls` shows them").Required();
    DeclareIn(verb_, &in_);
    verb_.Option("--object", &object_, "Write the code object there (one must match)").Type("FILE");
  }

  Outcome Run(Session& session) override {
    absl::StatusOr<std::unique_ptr<Store>> store = OpenForLooking(session, in_);
    if (!store.ok()) return InputFailure(store.status());
    absl::StatusOr<ShownEntries> shown = Show(**store, hash_);
    if (!shown.ok()) return InputFailure(shown.status());
    if (shown->code.empty() && shown->winners.empty()) {
      return InputFailure(absl::NotFoundError(
          absl::StrCat("there is no entry whose key's hash begins with ", hash_)));
    }
    if (!object_.empty()) {
      if (shown->code.size() != 1) {
        return InputFailure(absl::InvalidArgumentError(absl::StrCat(
            shown->code.size(), " code objects match ", hash_, ", --object takes one")));
      }
      absl::Status written = WriteFileAtomically(object_, shown->code[0].object);
      if (!written.ok()) return InputFailure(written);
    }
    ordered_json json = {{"code", ordered_json::array()}, {"winners", ordered_json::array()}};
    for (const CodeEntry& entry : shown->code) {
      ordered_json item = CodeEntryJson(entry);
      item["object_bytes"] = entry.object.size();
      item["key"] = KeyFieldsJson(KeyFieldsOf(entry.key));
      item["layer"] = entry.facts.layer;
      session.console.Row("code", item["key_hash"].get<std::string>());
      PrintFields(session.console, entry.key);
      session.console.Row("  object", BytesText(static_cast<int64_t>(entry.object.size())));
      PrintTimes(session.console, entry.created_unix_s, entry.facts);
      session.console.Row("  attributes", OneLine(entry.attributes));
      json["code"].push_back(std::move(item));
    }
    for (const WinnerEntry& entry : shown->winners) {
      ordered_json item = WinnerEntryJson(entry);
      item["protocol"] = entry.protocol;
      item["code_key"] = KeyFieldsJson(KeyFieldsOf(entry.code_key));
      ordered_json evidence = ordered_json::parse(entry.evidence, nullptr, false);
      item["evidence"] = evidence.is_discarded() ? ordered_json(nullptr) : std::move(evidence);
      session.console.Row("winner", item["key_hash"].get<std::string>());
      PrintFields(session.console, entry.key);
      session.console.Row("  variant", entry.variant);
      session.console.Row("  samples", absl::StrCat(entry.evidence_count));
      PrintTimes(session.console, entry.created_unix_s, entry.facts);
      session.console.Row("  evidence", OneLine(entry.evidence));
      json["winners"].push_back(std::move(item));
    }
    session.console.Json(DumpJson(json));
    return {};
  }

 private:
  static void PrintFields(Console& console, const std::string& key) {
    for (const auto& [name, value] : KeyFieldsOf(key)) {
      console.Line(absl::StrFormat("  %-18s%s", name, OneLine(value)));
    }
  }

  static void PrintTimes(Console& console, int64_t created_unix_s, const EntryFacts& facts) {
    console.Row("  made", TimeText(created_unix_s));
    console.Row("  last used", TimeText(facts.used_unix_s));
  }

  std::string hash_;
  std::string in_;
  std::string object_;
};

class StatsCommand final : public Command {
 public:
  void Declare(Verb app) override {
    verb_ = app.AddVerb("stats", "Sizes, ages and damage, of every layer");
    DeclareIn(verb_, &in_);
  }

  Outcome Run(Session& session) override {
    ordered_json json = {{"layers", ordered_json::array()}};
    absl::Status status;
    if (!in_.empty()) {
      absl::StatusOr<std::unique_ptr<Store>> store = OpenCachePath(session, in_);
      if (!store.ok()) return InputFailure(store.status());
      status = Report(session, in_, **store, &json);
    } else {
      const std::unique_ptr<LayeredCache> layers = OpenAllLayers(session);
      if (layers->user() != nullptr && layers->user()->persistent()) {
        status = Report(session, layers->user()->path(), *layers->user(), &json);
        session.console.Row("limit", session.options.cache_size_bytes == 0
                                         ? "none"
                                         : BytesText(session.options.cache_size_bytes));
      } else {
        session.console.Row("user cache", "empty, or not on disk");
      }
      for (const std::unique_ptr<Pack>& pack : layers->packs()) {
        if (status.ok()) status = Report(session, pack->path(), *pack, &json);
      }
      json["limit_bytes"] = session.options.cache_size_bytes;
    }
    if (!status.ok()) return {ExitCode::kFailed, status};
    session.console.Json(DumpJson(json));
    return {};
  }

 private:
  static absl::Status Report(Session& session, const std::string& path, Store& store,
                             ordered_json* json) {
    absl::StatusOr<CacheStats> stats = Stats(store);
    if (!stats.ok()) return stats.status();
    absl::StatusOr<std::vector<QuarantineRecord>> quarantine = store.ListQuarantine();
    if (!quarantine.ok()) return quarantine.status();
    Console& console = session.console;
    const StoreUsage& usage = stats->usage;
    console.Row("cache", path);
    console.Row("  entries", absl::StrFormat("%d code objects, %d winners", usage.code_entries,
                                             usage.winner_entries));
    console.Row("  size",
                absl::StrFormat("%s used of a file of %s; objects %s, stored as %s",
                                BytesText(usage.used_bytes), BytesText(usage.file_bytes),
                                BytesText(stats->object_bytes), BytesText(stats->stored_bytes)));
    console.Row("  made", absl::StrCat(TimeText(stats->oldest_unix_s), " to ",
                                       TimeText(stats->newest_unix_s)));
    console.Row("  longest unused", TimeText(stats->least_recent_use_unix_s));
    ordered_json damage = ordered_json::array();
    for (const QuarantineRecord& record : *quarantine) {
      console.Row("  dropped",
                  absl::StrFormat("%s, %d times, last %s: %s", record.key_hash, record.count,
                                  TimeText(record.last_unix_s), OneLine(record.reason)));
      damage.push_back({{"key_hash", record.key_hash},
                        {"count", record.count},
                        {"last_unix_s", record.last_unix_s},
                        {"reason", record.reason}});
    }
    ordered_json generations = ordered_json::object();
    for (const auto& [generation, count] : stats->entries_per_generation) {
      generations[absl::StrCat(generation)] = count;
    }
    (*json)["layers"].push_back({{"path", path},
                                 {"code", usage.code_entries},
                                 {"winners", usage.winner_entries},
                                 {"used_bytes", usage.used_bytes},
                                 {"file_bytes", usage.file_bytes},
                                 {"object_bytes", stats->object_bytes},
                                 {"stored_bytes", stats->stored_bytes},
                                 {"oldest_unix_s", stats->oldest_unix_s},
                                 {"newest_unix_s", stats->newest_unix_s},
                                 {"least_recent_use_unix_s", stats->least_recent_use_unix_s},
                                 {"code_per_generation", std::move(generations)},
                                 {"dropped", std::move(damage)}});
    return absl::OkStatus();
  }

  std::string in_;
};

}  // namespace

std::unique_ptr<Command> MakeCacheLs() { return std::make_unique<LsCommand>(); }
std::unique_ptr<Command> MakeCacheShow() { return std::make_unique<ShowCommand>(); }
std::unique_ptr<Command> MakeCacheStats() { return std::make_unique<StatsCommand>(); }

}  // namespace whet
