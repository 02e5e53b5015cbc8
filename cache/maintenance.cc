#include "cache/maintenance.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/base/hash.h"
#include "src/base/record.h"

namespace whet {
namespace {

constexpr size_t kMaxKeyFields = 256;

EntrySummary Summarize(EntrySummary::Kind kind, const std::string& key, int64_t created_unix_s,
                       const EntryFacts& facts, const std::string& variant = "") {
  EntrySummary summary{.kind = kind,
                       .key_hash = HashBytes(key).ToHex(),
                       .fields = {},
                       .variant = variant,
                       .created_unix_s = created_unix_s,
                       .facts = facts};
  absl::StatusOr<Record> record = ParseRecord(key, kMaxKeyFields);
  if (!record.ok()) return summary;
  for (const auto& [name, value] : record->fields) {
    summary.fields.emplace_back(std::string(name), std::string(value));
  }
  return summary;
}

EntrySummary Summarize(const CodeEntry& entry) {
  return Summarize(EntrySummary::kCode, entry.key, entry.created_unix_s, entry.facts);
}

EntrySummary Summarize(const WinnerEntry& entry) {
  return Summarize(EntrySummary::kWinner, entry.key, entry.created_unix_s, entry.facts,
                   entry.variant);
}

// The rank of one difference among the fields of the wanted record; those it lacks come last.
struct Comparison {
  std::vector<FieldDifference> differences;
  std::vector<size_t> ranks;
};

Comparison Compare(const Record& wanted, const Record& found) {
  Comparison comparison;
  // Names may repeat (options in order): the n-th of a name answers the n-th of it.
  std::map<std::pair<absl::string_view, int>, absl::string_view> rest;
  std::map<absl::string_view, int> counts;
  for (const auto& [name, value] : found.fields) rest[{name, counts[name]++}] = value;
  counts.clear();
  for (size_t i = 0; i < wanted.fields.size(); ++i) {
    const auto& [name, value] = wanted.fields[i];
    const auto match = rest.find({name, counts[name]++});
    if (match == rest.end()) {
      comparison.differences.push_back({std::string(name), std::string(value), std::nullopt});
      comparison.ranks.push_back(i);
      continue;
    }
    if (match->second != value) {
      comparison.differences.push_back(
          {std::string(name), std::string(value), std::string(match->second)});
      comparison.ranks.push_back(i);
    }
    rest.erase(match);
  }
  for (const auto& [name, value] : rest) {
    comparison.differences.push_back({std::string(name.first), std::nullopt, std::string(value)});
    comparison.ranks.push_back(wanted.fields.size());
  }
  return comparison;
}

absl::StatusOr<std::vector<std::string>> AllKeys(Store& store) {
  std::vector<std::string> keys;
  absl::StatusOr<std::vector<CodeEntry>> code = store.ListCode();
  if (!code.ok()) return code.status();
  for (CodeEntry& entry : *code) keys.push_back(std::move(entry.key));
  absl::StatusOr<std::vector<WinnerEntry>> winners = store.ListWinners();
  if (!winners.ok()) return winners.status();
  for (WinnerEntry& entry : *winners) keys.push_back(std::move(entry.key));
  return keys;
}

}  // namespace

absl::StatusOr<std::vector<EntrySummary>> ListEntries(Store& store) {
  std::vector<EntrySummary> summaries;
  absl::StatusOr<std::vector<CodeEntry>> code = store.ListCode();
  if (!code.ok()) return code.status();
  for (const CodeEntry& entry : *code) summaries.push_back(Summarize(entry));
  absl::StatusOr<std::vector<WinnerEntry>> winners = store.ListWinners();
  if (!winners.ok()) return winners.status();
  for (const WinnerEntry& entry : *winners) summaries.push_back(Summarize(entry));
  return summaries;
}

absl::StatusOr<ShownEntries> Show(Store& store, absl::string_view hash_prefix) {
  const std::string prefix = absl::AsciiStrToLower(hash_prefix);
  if (prefix.size() < 4 || prefix.size() > 32 ||
      !std::all_of(prefix.begin(), prefix.end(), absl::ascii_isxdigit)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot show \"", hash_prefix,
                     "\": give 4 to 32 hexadecimal digits of an entry's key hash"));
  }
  absl::StatusOr<std::vector<std::string>> keys = AllKeys(store);
  if (!keys.ok()) return keys.status();
  ShownEntries shown;
  for (const std::string& key : *keys) {
    if (!absl::StartsWith(HashBytes(key).ToHex(), prefix)) continue;
    if (std::optional<CodeEntry> code = store.FindCode(key)) shown.code.push_back(*std::move(code));
    if (std::optional<WinnerEntry> winner = store.FindWinner(key)) {
      shown.winners.push_back(*std::move(winner));
    }
  }
  return shown;
}

absl::StatusOr<std::vector<NearMiss>> WhyMiss(Store& store, absl::string_view key, int count) {
  absl::StatusOr<Record> wanted = ParseRecord(key, kMaxKeyFields);
  if (!wanted.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot explain a miss: the key is no record: ", wanted.status().message()));
  }
  struct Candidate {
    std::string key_hash;
    Comparison comparison;
  };
  std::vector<Candidate> candidates;
  const auto consider = [&](const std::string& key_of_entry, const std::string& record_bytes) {
    absl::StatusOr<Record> record = ParseRecord(record_bytes, kMaxKeyFields);
    if (!record.ok() || record->kind != wanted->kind) return;
    candidates.push_back({HashBytes(key_of_entry).ToHex(), Compare(*wanted, *record)});
  };
  absl::StatusOr<std::vector<CodeEntry>> code = store.ListCode();
  if (!code.ok()) return code.status();
  for (const CodeEntry& entry : *code) {
    consider(entry.key, entry.key);
    consider(entry.key, entry.request);
  }
  absl::StatusOr<std::vector<WinnerEntry>> winners = store.ListWinners();
  if (!winners.ok()) return winners.status();
  for (const WinnerEntry& entry : *winners) consider(entry.key, entry.key);
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    if (a.comparison.ranks.size() != b.comparison.ranks.size()) {
      return a.comparison.ranks.size() < b.comparison.ranks.size();
    }
    // Where the later fields differ, the earlier and more important ones agree.
    if (a.comparison.ranks != b.comparison.ranks) return a.comparison.ranks > b.comparison.ranks;
    return a.key_hash < b.key_hash;
  });
  std::vector<NearMiss> nearest;
  for (Candidate& candidate : candidates) {
    if (static_cast<int>(nearest.size()) >= count) break;
    nearest.push_back({std::move(candidate.key_hash), std::move(candidate.comparison.differences)});
  }
  return nearest;
}

std::string DifferencesText(const std::vector<FieldDifference>& differences) {
  return absl::StrJoin(differences, "; ", [](std::string* out, const FieldDifference& d) {
    absl::StrAppend(out, d.name, ": ", d.wanted.value_or("(absent)"), " -> ",
                    d.found.value_or("(absent)"));
  });
}

absl::StatusOr<VerifySummary> Verify(Store& store) {
  absl::StatusOr<std::vector<CodeEntry>> code = store.ListCode();
  if (!code.ok()) return code.status();
  absl::StatusOr<std::vector<WinnerEntry>> winners = store.ListWinners();
  if (!winners.ok()) return winners.status();
  VerifySummary summary;
  absl::flat_hash_set<std::string> good_code;
  for (const CodeEntry& entry : *code) {
    if (store.FindCode(entry.key).has_value()) {
      ++summary.good;
      good_code.insert(entry.key);
    } else {
      ++summary.damaged;
    }
  }
  for (const WinnerEntry& entry : *winners) {
    std::optional<WinnerEntry> found = store.FindWinner(entry.key);
    ++(found.has_value() ? summary.good : summary.damaged);
    if (found.has_value() && !good_code.contains(found->code_key)) ++summary.dangling_winners;
  }
  return summary;
}

absl::StatusOr<PruneSummary> Prune(Store& store, const PruneOptions& options) {
  if (options.everything && !options.force && store.UsedByOthers()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cannot clear the cache ", store.path(),
        ": another process is using it; end it first, or force it (the other process only has to "
        "build again what it no longer finds)"));
  }
  auto goes = [&](const EntryFacts& facts) {
    return options.everything ||
           (options.unused_since_unix_s.has_value() &&
            facts.used_unix_s < *options.unused_since_unix_s) ||
           (options.generations_below.has_value() && facts.generation < *options.generations_below);
  };
  PruneSummary summary;
  absl::StatusOr<std::vector<CodeEntry>> code = store.ListCode();
  if (!code.ok()) return code.status();
  for (const CodeEntry& entry : *code) {
    if (!goes(entry.facts)) continue;
    if (absl::Status erased = store.EraseCode(entry.key); !erased.ok()) return erased;
    ++summary.code_entries;
  }
  absl::StatusOr<std::vector<WinnerEntry>> winners = store.ListWinners();
  if (!winners.ok()) return winners.status();
  for (const WinnerEntry& entry : *winners) {
    if (!goes(entry.facts)) continue;
    if (absl::Status erased = store.EraseWinner(entry.key); !erased.ok()) return erased;
    ++summary.winner_entries;
  }
  // Also without a byte limit: what was erased is given back to the file system.
  absl::StatusOr<int64_t> evicted =
      store.Shrink(options.max_bytes.value_or(std::numeric_limits<int64_t>::max()));
  if (!evicted.ok()) return evicted.status();
  summary.evicted_for_size = *evicted;
  return summary;
}

bool IsBetter(const WinnerEntry& a, const WinnerEntry& b) {
  return std::tie(a.protocol, a.evidence_count, a.created_unix_s, b.variant) >
         std::tie(b.protocol, b.evidence_count, b.created_unix_s, a.variant);
}

absl::StatusOr<MergeSummary> Merge(const std::vector<Store*>& sources, Store& into) {
  MergeSummary summary;
  for (Store* const source : sources) {
    absl::StatusOr<std::vector<CodeEntry>> code = source->ListCode();
    if (!code.ok()) {
      ++summary.unreadable;
      code = std::vector<CodeEntry>();
    }
    for (const CodeEntry& listed : *code) {
      if (into.FindCode(listed.key).has_value()) continue;
      std::optional<CodeEntry> entry = source->FindCode(listed.key);
      if (!entry.has_value()) {
        ++summary.unreadable;
        continue;
      }
      if (absl::Status put = into.PutCode(*entry); !put.ok()) return put;
      ++summary.code_added;
    }
    absl::StatusOr<std::vector<WinnerEntry>> winners = source->ListWinners();
    if (!winners.ok()) {
      ++summary.unreadable;
      winners = std::vector<WinnerEntry>();
    }
    for (const WinnerEntry& listed : *winners) {
      std::optional<WinnerEntry> theirs = source->FindWinner(listed.key);
      if (!theirs.has_value()) {
        ++summary.unreadable;
        continue;
      }
      std::optional<WinnerEntry> ours = into.FindWinner(listed.key);
      if (ours.has_value() && !IsBetter(*theirs, *ours)) continue;
      if (absl::Status put = into.PutWinner(*theirs); !put.ok()) return put;
      ++(ours.has_value() ? summary.winners_replaced : summary.winners_added);
    }
  }
  return summary;
}

absl::StatusOr<DiffSummary> Diff(Store& a, Store& b) {
  absl::StatusOr<std::vector<CodeEntry>> code_a = a.ListCode(), code_b = b.ListCode();
  if (!code_a.ok()) return code_a.status();
  if (!code_b.ok()) return code_b.status();
  absl::StatusOr<std::vector<WinnerEntry>> winners_a = a.ListWinners(), winners_b = b.ListWinners();
  if (!winners_a.ok()) return winners_a.status();
  if (!winners_b.ok()) return winners_b.status();
  DiffSummary diff;
  absl::flat_hash_map<std::string, const CodeEntry*> in_b;
  for (const CodeEntry& entry : *code_b) in_b[entry.key] = &entry;
  for (const CodeEntry& entry : *code_a) {
    if (in_b.erase(entry.key) == 0) {
      diff.only_in_a.push_back(Summarize(entry));
      continue;
    }
    std::optional<CodeEntry> left = a.FindCode(entry.key), right = b.FindCode(entry.key);
    if (!left.has_value() || !right.has_value() || left->object != right->object) {
      diff.different.push_back(Summarize(entry));
    }
  }
  for (const CodeEntry& entry : *code_b) {
    if (in_b.contains(entry.key)) diff.only_in_b.push_back(Summarize(entry));
  }
  absl::flat_hash_map<std::string, const WinnerEntry*> winner_in_b;
  for (const WinnerEntry& entry : *winners_b) winner_in_b[entry.key] = &entry;
  for (const WinnerEntry& entry : *winners_a) {
    const auto other = winner_in_b.find(entry.key);
    if (other == winner_in_b.end()) {
      diff.only_in_a.push_back(Summarize(entry));
      continue;
    }
    if (other->second->variant != entry.variant) diff.different.push_back(Summarize(entry));
    winner_in_b.erase(other);
  }
  for (const WinnerEntry& entry : *winners_b) {
    if (winner_in_b.contains(entry.key)) diff.only_in_b.push_back(Summarize(entry));
  }
  return diff;
}

absl::StatusOr<PackSummary> Export(Store& store, const std::string& path,
                                   const PackWriterOptions& options) {
  return WritePack(path, store, options);
}

absl::StatusOr<MergeSummary> Import(Store& from, Store& into) { return Merge({&from}, into); }

absl::StatusOr<CacheStats> Stats(Store& store) {
  CacheStats stats;
  absl::StatusOr<StoreUsage> usage = store.Usage();
  if (!usage.ok()) return usage.status();
  stats.usage = *usage;
  absl::StatusOr<std::vector<EntrySummary>> entries = ListEntries(store);
  if (!entries.ok()) return entries.status();
  std::map<int64_t, int64_t> generations;
  bool first = true;
  for (const EntrySummary& entry : *entries) {
    stats.object_bytes += entry.facts.object_bytes;
    stats.stored_bytes += entry.facts.stored_bytes;
    if (entry.kind == EntrySummary::kCode) ++generations[entry.facts.generation];
    if (std::exchange(first, false)) {
      stats.oldest_unix_s = stats.newest_unix_s = entry.created_unix_s;
      stats.least_recent_use_unix_s = entry.facts.used_unix_s;
    }
    stats.oldest_unix_s = std::min(stats.oldest_unix_s, entry.created_unix_s);
    stats.newest_unix_s = std::max(stats.newest_unix_s, entry.created_unix_s);
    stats.least_recent_use_unix_s =
        std::min(stats.least_recent_use_unix_s, entry.facts.used_unix_s);
  }
  stats.entries_per_generation.assign(generations.begin(), generations.end());
  absl::StatusOr<std::vector<QuarantineRecord>> quarantine = store.ListQuarantine();
  if (!quarantine.ok()) return quarantine.status();
  stats.quarantined_keys = static_cast<int64_t>(quarantine->size());
  for (const QuarantineRecord& record : *quarantine) stats.quarantine_events += record.count;
  return stats;
}

}  // namespace whet
