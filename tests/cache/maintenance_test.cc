#include "cache/maintenance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/pack.h"
#include "src/base/clock.h"
#include "src/base/record.h"
#include "tests/cache/cache_fixture.h"

namespace whet {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string KeyOf(const std::string& name, const std::string& problem, const std::string& target,
                  const std::vector<std::string>& options) {
  RecordWriter record("code");
  record.Add("template", name).Add("problem", problem).Add("target", target);
  for (const std::string& option : options) record.Add("option", option);
  return record.bytes();
}

CodeEntry CodeWith(const std::string& key) {
  CodeEntry entry = MakeCode(1);
  entry.key = key;
  entry.request = "request of " + key;
  return entry;
}

class MaintenanceTest : public CacheTest {
 protected:
  std::unique_ptr<Store> Memory() { return Store::Open({}, log_.logger()); }
};

TEST_F(MaintenanceTest, WhyMissNamesTheFieldsOfTheNearestEntries) {
  std::unique_ptr<Store> store = Memory();
  ASSERT_TRUE(store->PutCode(CodeWith(KeyOf("rms_norm", "rows=8", "gfx942", {"-O3"}))).ok());
  ASSERT_TRUE(store->PutCode(CodeWith(KeyOf("rms_norm", "rows=8", "gfx950", {"-O2", "-g"}))).ok());
  ASSERT_TRUE(store->PutCode(CodeWith(KeyOf("attention", "rows=8", "gfx950", {"-O3"}))).ok());
  RecordWriter other_kind("tuning");
  other_kind.Add("template", "rms_norm");
  WinnerEntry winner = MakeWinner(1);
  winner.key = other_kind.bytes();
  ASSERT_TRUE(store->PutWinner(winner).ok());
  ASSERT_TRUE(store->PutCode(MakeCode(7)).ok());  // its key is no record

  absl::StatusOr<std::vector<NearMiss>> near =
      WhyMiss(*store, KeyOf("rms_norm", "rows=8", "gfx950", {"-O3"}), 5);
  ASSERT_TRUE(near.ok()) << near.status();
  ASSERT_THAT(*near, SizeIs(3));
  // One field each: the later and lesser one is nearer than the template.
  EXPECT_EQ(DifferencesText((*near)[0].differences), "target: gfx950 -> gfx942");
  EXPECT_EQ(DifferencesText((*near)[1].differences), "template: rms_norm -> attention");
  EXPECT_EQ(DifferencesText((*near)[2].differences), "option: -O3 -> -O2; option: (absent) -> -g");
  near = WhyMiss(*store, KeyOf("rms_norm", "rows=8", "gfx942", {"-O3"}), 1);
  ASSERT_THAT(*near, SizeIs(1));
  EXPECT_THAT((*near)[0].differences, IsEmpty());
  EXPECT_FALSE(WhyMiss(*store, "no record", 1).ok());
  EXPECT_THAT(*WhyMiss(*Memory(), KeyOf("a", "b", "c", {}), 3), IsEmpty());
}

TEST_F(MaintenanceTest, ListAndShow) {
  std::unique_ptr<Store> store = Memory();
  const std::string key = KeyOf("rms_norm", "rows=8", "gfx942", {});
  ASSERT_TRUE(store->PutCode(CodeWith(key)).ok());
  WinnerEntry winner = MakeWinner(1);
  ASSERT_TRUE(store->PutWinner(winner).ok());
  std::vector<EntrySummary> entries = *ListEntries(*store);
  ASSERT_THAT(entries, SizeIs(2));
  EXPECT_EQ(entries[0].fields[2], std::make_pair(std::string("target"), std::string("gfx942")));
  EXPECT_EQ(entries[0].facts.object_bytes, 2000);
  EXPECT_EQ(entries[1].variant, winner.variant);
  absl::StatusOr<ShownEntries> shown = Show(*store, entries[0].key_hash.substr(0, 8));
  ASSERT_TRUE(shown.ok());
  ASSERT_THAT(shown->code, SizeIs(1));
  EXPECT_EQ(shown->code[0].object, CodeWith(key).object);
  EXPECT_THAT(Show(*store, entries[1].key_hash)->winners, SizeIs(1));
  for (const char* const bad : {"", "abc", "xyzw", "../../etc"}) {
    EXPECT_FALSE(Show(*store, bad).ok()) << bad;
  }
}

TEST_F(MaintenanceTest, MergeGivesTheSameInEveryOrder) {
  auto winner = [](int64_t protocol, int64_t evidence, int64_t created, const char* variant) {
    WinnerEntry entry = MakeWinner(1);
    entry.protocol = protocol;
    entry.evidence_count = evidence;
    entry.created_unix_s = created;
    entry.variant = variant;
    return entry;
  };
  const std::vector<WinnerEntry> ascending = {
      winner(1, 90, 900, "old protocol"), winner(2, 10, 100, "little evidence"),
      winner(2, 50, 100, "older"), winner(2, 50, 200, "z"), winner(2, 50, 200, "a")};
  for (size_t i = 0; i < ascending.size(); ++i) {
    for (size_t j = 0; j < ascending.size(); ++j) {
      EXPECT_EQ(IsBetter(ascending[i], ascending[j]), i > j) << i << " " << j;
    }
  }
  std::vector<size_t> order = {0, 1, 2, 3, 4};
  do {
    std::unique_ptr<Store> into = Memory();
    for (size_t i : order) {
      std::unique_ptr<Store> node = Memory();
      ASSERT_TRUE(node->PutWinner(ascending[i]).ok());
      ASSERT_TRUE(node->PutCode(MakeCode(static_cast<int>(i))).ok());
      ASSERT_TRUE(node->PutCode(MakeCode(77)).ok());
      ASSERT_TRUE(Merge({node.get()}, *into).ok());
    }
    EXPECT_EQ(into->FindWinner(MakeWinner(1).key)->variant, "a");
    EXPECT_THAT(*into->ListCode(), SizeIs(6));
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(MaintenanceTest, WhatIsLeftOfASetAsideFileIsSaved) {
  constexpr int kEntries = 300;
  {
    std::unique_ptr<Store> store = Open();
    for (int n = 0; n < kEntries; ++n) ASSERT_TRUE(store->PutCode(MakeCode(n, 500)).ok());
    ASSERT_TRUE(store->PutWinner(MakeWinner(1)).ok());
  }
  std::string bytes = *ReadFile(path(), 1 << 30);
  const size_t middle = bytes.size() / 8192 / 2 * 8192;
  for (size_t i = 0; i < 3 * 8192; ++i) bytes[middle + i] = '\x5a';
  WriteQuickly(path() + ".corrupt-1", bytes);
  ASSERT_TRUE(RemoveTree(path()).ok());
  StoreOptions damaged = options();
  damaged.path += ".corrupt-1";
  damaged.read_only = true;
  std::unique_ptr<Store> from = Store::Open(damaged, log_.logger()), into = Memory();
  absl::StatusOr<MergeSummary> saved = Merge({from.get()}, *into);
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_GT(saved->code_added, kEntries / 2);
  EXPECT_LT(saved->code_added, kEntries);
  for (int n = 0; n < kEntries; ++n) {
    std::optional<CodeEntry> entry = into->FindCode(MakeCode(n).key);
    if (entry.has_value()) ExpectSame(*entry, MakeCode(n, 500));
  }
  from.reset();
  EXPECT_TRUE(*ReadFile(path() + ".corrupt-1", 1 << 30) == bytes) << "the source is only read";
}

TEST_F(MaintenanceTest, DiffSaysWhatDiffers) {
  std::unique_ptr<Store> a = Memory(), b = Memory();
  for (int n : {1, 2, 3}) ASSERT_TRUE(a->PutCode(MakeCode(n)).ok());
  for (int n : {2, 3, 4}) ASSERT_TRUE(b->PutCode(MakeCode(n)).ok());
  CodeEntry other = MakeCode(3);
  other.object = "other";
  ASSERT_TRUE(b->PutCode(other).ok());
  for (int n : {1, 2}) ASSERT_TRUE(a->PutWinner(MakeWinner(n)).ok());
  WinnerEntry winner = MakeWinner(2);
  winner.variant = "other";
  ASSERT_TRUE(b->PutWinner(winner).ok());
  absl::StatusOr<DiffSummary> diff = Diff(*a, *b);
  ASSERT_TRUE(diff.ok());
  EXPECT_THAT(diff->only_in_a, SizeIs(2));
  EXPECT_THAT(diff->only_in_b, SizeIs(1));
  EXPECT_THAT(diff->different, SizeIs(2));
  EXPECT_THAT(Diff(*a, *a)->different, IsEmpty());
}

TEST_F(MaintenanceTest, ExportAndImportAreInverse) {
  const std::string pack_path = JoinPath(directory_.path(), "x.whetpack");
  std::unique_ptr<Store> from = Memory(), into = Memory();
  for (int n : {1, 2, 3}) {
    ASSERT_TRUE(from->PutCode(MakeCode(n)).ok());
    ASSERT_TRUE(from->PutWinner(MakeWinner(n)).ok());
  }
  ASSERT_TRUE(Export(*from, pack_path, {}).ok());
  absl::StatusOr<std::unique_ptr<Pack>> pack = Pack::Open(pack_path, {}, log_.logger());
  ASSERT_TRUE(pack.ok());
  absl::StatusOr<MergeSummary> imported = Import(**pack, *into);
  ASSERT_TRUE(imported.ok());
  EXPECT_EQ(imported->code_added, 3);
  EXPECT_EQ(imported->winners_added, 3);
  EXPECT_THAT(Diff(*from, *into)->only_in_a, IsEmpty());
  EXPECT_THAT(Diff(*from, *into)->different, IsEmpty());
}

TEST_F(MaintenanceTest, VerifyCountsAndStatsAddUp) {
  std::unique_ptr<Store> store = Open();
  for (int n : {1, 2, 3}) ASSERT_TRUE(store->PutCode(MakeCode(n)).ok());
  ASSERT_TRUE(store->PutWinner(MakeWinner(1)).ok());
  ASSERT_TRUE(store->PutWinner(MakeWinner(9)).ok());  // its code is not there
  absl::StatusOr<VerifySummary> verified = Verify(*store);
  ASSERT_TRUE(verified.ok());
  EXPECT_EQ(verified->good, 5);
  EXPECT_EQ(verified->damaged, 0);
  EXPECT_EQ(verified->dangling_winners, 1);
  store->RemoveCode(MakeCode(3).key, "bad");
  absl::StatusOr<CacheStats> stats = Stats(*store);
  ASSERT_TRUE(stats.ok());
  EXPECT_EQ(stats->usage.code_entries, 2);
  EXPECT_EQ(stats->usage.winner_entries, 2);
  EXPECT_GE(stats->object_bytes, 4000);
  EXPECT_EQ(stats->quarantined_keys, 1);
  EXPECT_EQ(stats->oldest_unix_s, 1'700'000'001);
  EXPECT_THAT(stats->entries_per_generation, ElementsAre(std::make_pair(1, 2)));
}

TEST_F(MaintenanceTest, PruneByUseGenerationAndSize) {
  ManualClock clock(absl::FromUnixSeconds(1'000'000));
  StoreOptions old = options();
  old.clock = &clock;
  Store::Open(old, log_.logger())->PutCode(MakeCode(1, 300'000)).IgnoreError();
  clock.Advance(absl::Hours(100));
  StoreOptions current = old;
  current.generation = 2;
  std::unique_ptr<Store> store = Store::Open(current, log_.logger());
  for (int n : {2, 3, 4, 5}) ASSERT_TRUE(store->PutCode(MakeCode(n, 300'000)).ok());
  ASSERT_TRUE(store->PutWinner(MakeWinner(2)).ok());
  EXPECT_EQ(Prune(*store, {.generations_below = 2})->code_entries, 1);
  clock.Advance(absl::Hours(10));
  EXPECT_TRUE(store->FindCode(MakeCode(4).key).has_value());
  const int64_t before = store->Usage()->file_bytes;
  EXPECT_EQ(Prune(*store, {.unused_since_unix_s = 1'000'000 + 105 * 3600})->code_entries, 3);
  EXPECT_LT(store->Usage()->file_bytes, before / 2) << "room is given back";
  EXPECT_TRUE(store->FindCode(MakeCode(4).key).has_value());
  EXPECT_EQ(Prune(*store, {.max_bytes = 0})->evicted_for_size, 1);
  EXPECT_EQ(store->Usage()->code_entries, 0);
}

// Scenario A23: clearing does not take the cache from under another job.
TEST_F(MaintenanceTest, A23_ClearingHonoursOtherUsers) {
  std::unique_ptr<Store> store = Open();
  ASSERT_TRUE(store->PutCode(MakeCode(1)).ok());
  int ready[2], release[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(release), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    close(release[1]);
    std::unique_ptr<Store> other = Open();
    bool good = other->FindCode(MakeCode(1).key).has_value();
    char c = 'x';
    good = good && write(ready[1], &c, 1) == 1;
    good = good && read(release[0], &c, 1) == 1;
    // Cleared by force meanwhile: it builds again and goes on.
    good = good && !other->FindCode(MakeCode(1).key).has_value();
    good = good && other->PutCode(MakeCode(2)).ok();
    other.reset();
    _exit(good ? 0 : 1);
  }
  char c;
  ASSERT_EQ(read(ready[0], &c, 1), 1);
  EXPECT_TRUE(absl::IsFailedPrecondition(Prune(*store, {.everything = true}).status()));
  EXPECT_TRUE(store->FindCode(MakeCode(1).key).has_value());
  EXPECT_TRUE(Prune(*store, {.everything = true, .force = true}).ok());
  ASSERT_EQ(write(release[1], &c, 1), 1);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(store->FindCode(MakeCode(2).key).has_value());
  EXPECT_TRUE(Prune(*store, {.everything = true}).ok());
  EXPECT_EQ(store->Usage()->code_entries, 0);
}

TEST(RecordTest, EveryByteCounts) {
  RecordWriter writer("kind");
  writer.Add("a", "1").Add("", "").Add("long", std::string(300, 'x')).Add("n", int64_t{-5});
  absl::StatusOr<Record> record = ParseRecord(writer.bytes(), 10);
  ASSERT_TRUE(record.ok());
  EXPECT_EQ(record->kind, "kind");
  ASSERT_EQ(record->fields.size(), 4u);
  EXPECT_EQ(record->Find("long").size(), 300u);
  EXPECT_EQ(record->FindInt("n"), -5);
  EXPECT_EQ(record->FindInt("long"), 0);
  EXPECT_EQ(record->Find("absent"), "");
  EXPECT_FALSE(ParseRecord(writer.bytes(), 3).ok());
  int whole = 0;
  for (size_t length = 0; length < writer.bytes().size(); ++length) {
    whole += ParseRecord(absl::string_view(writer.bytes()).substr(0, length), 10).ok();
  }
  EXPECT_EQ(whole, 4) << "only at the ends of fields";
  EXPECT_FALSE(ParseRecord(std::string("\xff\xff\xff\xff", 4), 10).ok());
}

}  // namespace
}  // namespace whet
