// What users of other kernel caches reported, played against this one. The numbers are those of the
// table in docs/cache.md, which also names the tests of the scenarios that are not here.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "cache/host_flights.h"
#include "cache/layers.h"
#include "cache/maintenance.h"
#include "cache/pack_writer.h"
#include "cache/store.h"
#include "src/base/record.h"
#include "tests/cache/cache_fixture.h"

namespace whet {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class Scenario : public CacheTest {
 protected:
  // Runs `body` in that many processes at once; true when all of them say true.
  static bool InProcesses(int count, const std::function<bool(int)>& body) {
    std::vector<pid_t> children;
    for (int p = 0; p < count; ++p) {
      const pid_t child = fork();
      if (child == 0) _exit(body(p) ? 0 : 1);
      children.push_back(child);
    }
    bool good = true;
    for (pid_t child : children) {
      int status = 0;
      waitpid(child, &status, 0);
      good = good && status == 0;
    }
    return good;
  }
  StoreOptions NetworkOptions() const {
    StoreOptions network = options();
    network.file_system = FileSystemKind::kNetwork;
    return network;
  }
  std::string MakePack(const std::vector<int>& numbers) {
    std::unique_ptr<Store> store = Store::Open({}, log_.logger());
    for (int n : numbers) {
      EXPECT_TRUE(store->PutCode(MakeCode(n)).ok());
      EXPECT_TRUE(store->PutWinner(MakeWinner(n)).ok());
    }
    const std::string path = JoinPath(directory_.path(), "shipped.whetpack");
    EXPECT_TRUE(WritePack(path, *store, {}).ok());
    return path;
  }
};

TEST_F(Scenario, A01_A04_ReadersNeverSeeHalfOfWhatAnotherNodeReplaces) {
  EXPECT_TRUE(InProcesses(4, [&](int p) {
    std::unique_ptr<Store> store = Store::Open(NetworkOptions(), log_.logger());
    for (int i = 0; i < 150; ++i) {
      CodeEntry entry = MakeCode(1);
      entry.attributes = absl::StrCat(p, " ", i);
      entry.object = std::string(20'000, static_cast<char>('a' + (p + i) % 26)) + entry.attributes;
      if (p == 0 && !store->PutCode(entry).ok()) return false;
      if (p == 1 && i % 3 == 0 && !store->EraseCode(entry.key).ok()) return false;
      std::optional<CodeEntry> found = store->FindCode(entry.key);
      if (!found.has_value()) continue;
      // Object and attributes are of one and the same put.
      if (found->object.substr(20'000) != found->attributes) return false;
    }
    return log_.warnings().empty();
  }));
}

TEST_F(Scenario, A02_TheLoserOfARaceIsNoFailure) {
  for (const StoreOptions& kind : {options(), NetworkOptions()}) {
    EXPECT_TRUE(InProcesses(8, [&](int) {
      std::unique_ptr<Store> store = Store::Open(kind, log_.logger());
      return store->PutCode(MakeCode(1)).ok() && store->FindCode(MakeCode(1).key).has_value() &&
             log_.warnings().empty();
    }));
    EXPECT_THAT(*Store::Open(kind, log_.logger())->ListCode(), SizeIs(1));
  }
}

TEST_F(Scenario, A06_A69_OneDirectoryAndAFewFilesForAllProcesses) {
  EXPECT_TRUE(InProcesses(8, [&](int p) {
    std::unique_ptr<Store> store = Open();
    bool good = true;
    for (int i = 0; i < 20; ++i) good = good && store->PutCode(MakeCode(p * 20 + i)).ok();
    return good;
  }));
  EXPECT_THAT(*Open()->ListCode(), SizeIs(160));
  EXPECT_THAT(*ListDirectory(JoinPath(directory_.path(), "cache")),
              Each(AnyOf("cache.db", "cache.db-wal", "cache.db-shm", "cache.db.in-use")));
}

TEST_F(Scenario, A09_A11_ANetworkFileSystemGetsNoWalAndNoLocks) {
  {
    std::unique_ptr<Store> store = Store::Open(NetworkOptions(), log_.logger());
    EXPECT_TRUE(store->persistent());
    EXPECT_TRUE(store->PutCode(MakeCode(1)).ok());
  }
  EXPECT_THAT(*ListDirectory(JoinPath(directory_.path(), "cache")),
              ::testing::ElementsAre("cache.db.entries"));
  StoreOptions overridden = options();
  overridden.file_system = FileSystemKind::kLocal;
  EXPECT_TRUE(Store::Open(overridden, log_.logger())->PutCode(MakeCode(1)).ok());
  EXPECT_TRUE(IsRegularFile(path()));
}

TEST_F(Scenario, A10_CorruptDatabaseIsSetAsideOnceAndTheJobsGoOn) {
  ASSERT_TRUE(MakeDirectories(JoinPath(directory_.path(), "cache")).ok());
  const std::string garbage = std::string("SQLite format 3\0", 16) + ObjectBytes(1, 50'000);
  WriteQuickly(path(), garbage);
  EXPECT_TRUE(InProcesses(8, [&](int p) {
    std::unique_ptr<Store> store = Open();
    return store->persistent() && store->PutCode(MakeCode(p)).ok() &&
           store->FindCode(MakeCode(p).key).has_value();
  }));
  std::unique_ptr<Store> store = Open();
  for (int p = 0; p < 8; ++p) EXPECT_TRUE(store->FindCode(MakeCode(p).key).has_value()) << p;
  EXPECT_TRUE(*ReadFile(path() + ".corrupt-1", 1 << 20) == garbage);
  EXPECT_FALSE(IsRegularFile(path() + ".corrupt-2")) << "a good file was set aside";
}

TEST_F(Scenario, A14_ManyProcessesContendAndNoWriteFails) {
  EXPECT_TRUE(InProcesses(16, [&](int p) {
    std::unique_ptr<Store> store = Open();
    bool good = true;
    for (int i = 0; i < 5; ++i) {
      good = good && store->PutCode(MakeCode(p * 5 + i)).ok() &&
             store->PutWinner(MakeWinner(p * 5 + i)).ok();
    }
    return good && store->counters().failed_writes == 0;
  }));
  EXPECT_THAT(*Open()->ListWinners(), SizeIs(80));
}

TEST_F(Scenario, A15_WhatWasFoundOnceNeedsNoDiskAndABusyCacheNoPatience) {
  LayerOptions layers;
  layers.user = options();
  layers.user.busy_timeout = absl::Milliseconds(5);
  std::unique_ptr<LayeredCache> cache = LayeredCache::Open(layers, log_.logger());
  ASSERT_TRUE(cache->PutCode(MakeCode(1)).ok());
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path().c_str(), &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr), SQLITE_OK);
  EXPECT_TRUE(absl::IsUnavailable(cache->PutCode(MakeCode(2))));
  EXPECT_TRUE(cache->FindCode(MakeCode(2).key).has_value()) << "this process has it all the same";
  EXPECT_TRUE(Open()->FindCode(MakeCode(1).key).has_value()) << "readers do not wait for writers";
  EXPECT_GT(cache->counters().lock_waits, 0);
  sqlite3_close(db);
  ASSERT_TRUE(RemoveTree(JoinPath(directory_.path(), "cache")).ok());
  EXPECT_TRUE(cache->FindCode(MakeCode(1).key).has_value());
}

TEST_F(Scenario, A26_A32_A74_A75_A80_AShippedPackNeedsNothingElse) {
  LayerOptions layers;
  layers.policy = CachePolicy::kOffline;
  layers.user.path = "/nonexistent/home/.cache/whet/cache.db";
  layers.packs = {MakePack({1, 2, 3})};
  std::unique_ptr<LayeredCache> cache = LayeredCache::Open(layers, log_.logger());
  HostFlights flights({.directory = ""}, log_.logger());
  for (int n : {1, 2, 3}) {
    std::optional<WinnerEntry> winner = cache->FindWinner(MakeWinner(n).key);
    ASSERT_TRUE(winner.has_value());
    // The winner names its code, so the pack is closed: nothing is compiled.
    bool compiled = false;
    EXPECT_TRUE(flights
                    .Run(
                        winner->code_key, "",
                        [&] { return cache->RequireCode(winner->code_key).ok(); },
                        [&] { return compiled = true, absl::OkStatus(); })
                    .ok());
    EXPECT_FALSE(compiled);
  }
  EXPECT_THAT(log_.warnings(), IsEmpty());
}

TEST_F(Scenario, A33_A34_TheCacheIsPersistentByDefaultAndInspectable) {
  LayerOptions layers;
  EXPECT_EQ(layers.policy, CachePolicy::kReadWrite);
  layers.user = options();
  LayeredCache::Open(layers, log_.logger())->PutCode(MakeCode(1)).IgnoreError();
  std::unique_ptr<LayeredCache> next = LayeredCache::Open(layers, log_.logger());
  EXPECT_TRUE(next->persistent());
  EXPECT_EQ(next->path(), path());
  EXPECT_THAT(*ListEntries(*next), SizeIs(1));
  EXPECT_EQ(Stats(*next)->usage.code_entries, 1);
}

TEST_F(Scenario, A42_A71_TargetsLiveSideBySideInOneFile) {
  auto entry_for = [](const char* target) {
    RecordWriter record("code");
    record.Add("template", "rms_norm").Add("target", target);
    CodeEntry entry = MakeCode(1);
    entry.key = record.bytes();
    entry.object = target;
    return entry;
  };
  std::unique_ptr<Store> store = Open();
  ASSERT_TRUE(store->PutCode(entry_for("sm_75")).ok());
  ASSERT_TRUE(store->PutCode(entry_for("sm_70")).ok());
  EXPECT_EQ(store->FindCode(entry_for("sm_70").key)->object, "sm_70");
  EXPECT_EQ(store->FindCode(entry_for("sm_75").key)->object, "sm_75");
  EXPECT_FALSE(store->FindCode(entry_for("sm_90a").key).has_value());
  EXPECT_EQ(
      DifferencesText((*WhyMiss(*store, entry_for("sm_90a").key, 1))[0].differences).substr(0, 16),
      "target: sm_90a -");
}

TEST_F(Scenario, A53_A55_AWinnerStaysAndCanBeShown) {
  ASSERT_TRUE(Open()->PutWinner(MakeWinner(1)).ok());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Open()->FindWinner(MakeWinner(1).key)->variant, MakeWinner(1).variant);
  }
  std::unique_ptr<Store> store = Open();
  const std::string hash = (*ListEntries(*store))[0].key_hash;
  ASSERT_THAT(Show(*store, hash)->winners, SizeIs(1));
  EXPECT_EQ(Show(*store, hash)->winners[0].evidence, MakeWinner(1).evidence);
}

TEST_F(Scenario, A64_A65_WithoutAWritablePlaceItLivesInMemory) {
  for (const char* const place : {"", "/proc/nonexistent/cache.db", "/dev/null/cache.db"}) {
    LogCapture log;
    LayerOptions layers;
    layers.user.path = place;
    std::unique_ptr<LayeredCache> cache = LayeredCache::Open(layers, log.logger());
    EXPECT_FALSE(cache->persistent());
    EXPECT_TRUE(cache->PutCode(MakeCode(1)).ok());
    EXPECT_TRUE(cache->FindCode(MakeCode(1).key).has_value());
    EXPECT_LE(log.warnings().size(), 1u);
  }
}

TEST_F(Scenario, A67_APlantedFileIsNotLoaded) {
  // Someone else made the directory first, as anyone can in /tmp.
  const std::string directory = JoinPath(directory_.path(), "cache");
  ASSERT_TRUE(Open()->PutCode(MakeCode(1)).ok());
  ASSERT_EQ(chmod(directory.c_str(), 01777), 0);
  std::unique_ptr<Store> store = Open();
  EXPECT_FALSE(store->persistent());
  EXPECT_FALSE(store->FindCode(MakeCode(1).key).has_value());
  ASSERT_THAT(log_.warnings(), SizeIs(1));
  EXPECT_THAT(log_.warnings()[0], HasSubstr("chmod"));
}

// A directory on the way is swapped for a link while the cache is open.
TEST_F(Scenario, A67_WhatWasCheckedIsWhatIsUsed) {
  std::unique_ptr<Store> store = Open();
  ASSERT_TRUE(store->PutCode(MakeCode(1)).ok());
  const std::string directory = JoinPath(directory_.path(), "cache");
  ASSERT_EQ(rename(directory.c_str(), (directory + "-mine").c_str()), 0);
  ASSERT_TRUE(MakeDirectories(directory).ok());
  WriteQuickly(path(), "planted");
  WriteQuickly(path() + "-wal", "planted");
  EXPECT_TRUE(store->FindCode(MakeCode(1).key).has_value());
  EXPECT_TRUE(store->PutCode(MakeCode(2)).ok());
  EXPECT_EQ(*ReadFile(path(), 100), "planted");
}

TEST_F(Scenario, A68_TheSizeIsLimitedByDefault) {
  EXPECT_EQ(StoreOptions().size_limit_bytes, int64_t{2} << 30);
  StoreOptions small = options();
  small.size_limit_bytes = 600'000;
  std::unique_ptr<Store> store = Store::Open(small, log_.logger());
  for (int n = 0; n < 60; ++n) ASSERT_TRUE(store->PutCode(MakeCode(n, 20'000)).ok());
  struct stat info;
  ASSERT_EQ(stat(path().c_str(), &info), 0);
  EXPECT_LE(info.st_size, 900'000);
}

TEST_F(Scenario, A72_EveryLayerIsAskedWhateverTheOthersSay) {
  const std::string pack = MakePack({1});
  ASSERT_TRUE(MakeDirectories(path()).ok());  // the user's layer is broken beyond use
  LayerOptions layers;
  layers.user = options();
  layers.packs = {"/nonexistent", pack};
  EXPECT_TRUE(LayeredCache::Open(layers, log_.logger())->FindCode(MakeCode(1).key).has_value());
}

TEST_F(Scenario, A81_CountersSayWhatHappened) {
  LayerOptions layers;
  layers.user = options();
  int64_t bytes = 0;
  layers.user.on_event = [&](const CacheEvent& event) {
    if (event.kind == CacheEventKind::kStored) bytes += event.bytes;
  };
  std::unique_ptr<LayeredCache> cache = LayeredCache::Open(layers, log_.logger());
  EXPECT_FALSE(cache->FindCode(MakeCode(1).key).has_value());
  EXPECT_TRUE(cache->PutCode(MakeCode(1)).ok());
  EXPECT_TRUE(cache->FindCode(MakeCode(1).key).has_value());
  EXPECT_EQ(cache->counters().code_misses, 1);
  EXPECT_EQ(cache->counters().code_hits, 1);
  EXPECT_EQ(cache->counters().code_writes, 1);
  EXPECT_EQ(cache->counters().bytes_written, 2000);
  EXPECT_EQ(bytes, 2000);
}

}  // namespace
}  // namespace whet
