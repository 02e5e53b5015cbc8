// What the tools do with a cache: list, explain, verify, prune, merge, compare, ship.
//
//   absl::StatusOr<CacheStats> stats = Stats(*store);
//   absl::StatusOr<std::vector<NearMiss>> near = WhyMiss(*store, record, /*count=*/3);
//   absl::StatusOr<MergeSummary> merged = Merge({node1.get(), node2.get()}, *into);
//
// Over any store: the user's, a pack, or all layers. None needs a GPU or a compiler. Thread-safe as
// the stores are; a store that others write meanwhile is seen at some moment of it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cache/pack_writer.h"
#include "cache/store.h"

namespace whet {

// One entry as `ls` shows it.
struct EntrySummary {
  enum Kind { kCode, kWinner };
  Kind kind = kCode;
  std::string key_hash;  // 32 hexadecimal digits
  // The key's fields in order; empty when the key is no record.
  std::vector<std::pair<std::string, std::string>> fields;
  std::string variant;  // of a winner
  int64_t created_unix_s = 0;
  EntryFacts facts;
};
absl::StatusOr<std::vector<EntrySummary>> ListEntries(Store& store);

// The whole entries whose key's hash begins with `hash_prefix` (at least 4 digits), objects
// included. InvalidArgument for a prefix that is none.
struct ShownEntries {
  std::vector<CodeEntry> code;
  std::vector<WinnerEntry> winners;
};
absl::StatusOr<ShownEntries> Show(Store& store, absl::string_view hash_prefix);

// Of one field: what was asked for and what the entry has; nullopt where it is absent.
struct FieldDifference {
  std::string name;
  std::optional<std::string> wanted;
  std::optional<std::string> found;
};
struct NearMiss {
  std::string key_hash;
  std::vector<FieldDifference> differences;  // empty: the entry is there after all
};
// The `count` entries of the same kind of key that differ from `key` in the fewest fields, nearest
// first. A difference in an earlier field counts more among equals, since keys begin with what
// matters most. Of code, `key` may be a whole key or a request. InvalidArgument when `key` is no
// record.
absl::StatusOr<std::vector<NearMiss>> WhyMiss(Store& store, absl::string_view key, int count);
// "target: gfx942 -> gfx950; options: (absent) -> -O3"
std::string DifferencesText(const std::vector<FieldDifference>& differences);

// Reads every entry; damaged ones are dropped by a store that may be written.
struct VerifySummary {
  int64_t good = 0;
  int64_t damaged = 0;
  int64_t dangling_winners = 0;  // whose code object is not there; the code is built when asked for
};
absl::StatusOr<VerifySummary> Verify(Store& store);

struct PruneOptions {
  std::optional<int64_t> max_bytes = {};
  std::optional<int64_t> unused_since_unix_s = {};  // drops what was not used since
  std::optional<int64_t> generations_below = {};    // drops keys of older generations
  bool everything = false;
  // `everything` is refused while another process has the cache open, unless this is set. The other
  // process would go on unharmed, but would have to build again what it finds no more.
  bool force = false;
};
struct PruneSummary {
  int64_t code_entries = 0;
  int64_t winner_entries = 0;
  int64_t evicted_for_size = 0;
};
// FailedPrecondition when the cache is in use; Unavailable when it is read-only.
absl::StatusOr<PruneSummary> Prune(Store& store, const PruneOptions& options);

// Whether `a` is the better winner for one key: by protocol version, then evidence count, then
// time, then by variant, so that every order of merging gives the same.
bool IsBetter(const WinnerEntry& a, const WinnerEntry& b);

struct MergeSummary {
  int64_t code_added = 0;
  int64_t winners_added = 0;
  int64_t winners_replaced = 0;
  int64_t unreadable = 0;  // entries of a damaged source that could not be saved
};
// Copies into `into` what it lacks, and winners that are better than its own. Each source is read
// as far as it can be, so this also saves what is left in a file that was set aside (opened
// read-only).
absl::StatusOr<MergeSummary> Merge(const std::vector<Store*>& sources, Store& into);

struct DiffSummary {
  std::vector<EntrySummary> only_in_a, only_in_b;
  std::vector<EntrySummary> different;  // same key, other object or other variant; as in `a`
};
absl::StatusOr<DiffSummary> Diff(Store& a, Store& b);

// Into a pack (see pack_writer.h), and from a pack or any other cache file.
absl::StatusOr<PackSummary> Export(Store& store, const std::string& path,
                                   const PackWriterOptions& options);
absl::StatusOr<MergeSummary> Import(Store& from, Store& into);

struct CacheStats {
  StoreUsage usage;
  int64_t object_bytes = 0;  // before compression
  int64_t stored_bytes = 0;  // after
  int64_t oldest_unix_s = 0, newest_unix_s = 0;
  int64_t least_recent_use_unix_s = 0;
  int64_t quarantined_keys = 0, quarantine_events = 0;
  std::vector<std::pair<int64_t, int64_t>> entries_per_generation;  // code, ascending
};
absl::StatusOr<CacheStats> Stats(Store& store);

}  // namespace whet
