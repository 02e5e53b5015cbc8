#include "cache/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "absl/strings/match.h"
#include "src/base/clock.h"
#include "tests/cache/cache_fixture.h"

namespace whet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class StoreTest : public CacheTest {
 protected:
  // Runs SQL on the file behind the store's back. No store may have it open.
  void Sql(const std::string& sql) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(path().c_str(), &db), SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(db);
    sqlite3_close(db);
  }
};

TEST_F(StoreTest, WhatIsPutIsFoundByTheNextProcessToo) {
  {
    std::unique_ptr<Store> store = Open();
    EXPECT_TRUE(store->persistent());
    ASSERT_TRUE(store->PutCode(MakeCode(1, 100'000)).ok());
    ASSERT_TRUE(store->PutWinner(MakeWinner(1)).ok());
  }
  std::unique_ptr<Store> store = Open();
  std::optional<CodeEntry> code = store->FindCode(MakeCode(1).key);
  ASSERT_TRUE(code.has_value());
  ExpectSame(*code, MakeCode(1, 100'000));
  std::optional<WinnerEntry> winner = store->FindWinner(MakeWinner(1).key);
  ASSERT_TRUE(winner.has_value());
  ExpectSame(*winner, MakeWinner(1));
  EXPECT_FALSE(store->FindCode("another key").has_value());
  EXPECT_FALSE(store->FindWinner("another key").has_value());
  const StoreCounters counters = store->counters();
  EXPECT_EQ(counters.code_hits, 1);
  EXPECT_EQ(counters.code_misses, 1);
  EXPECT_EQ(counters.winner_hits, 1);
  EXPECT_EQ(counters.winner_misses, 1);
  EXPECT_THAT(log_.warnings(), IsEmpty());
}

TEST_F(StoreTest, ObjectsOfEveryKindComeBackAsTheyWere) {
  std::unique_ptr<Store> store = Open();
  const std::string cases[] = {"",
                               std::string(1, '\0'),
                               std::string(300'000, 'a'),
                               ObjectBytes(7, 1),
                               ObjectBytes(7, 8192),
                               ObjectBytes(7, 1'000'003)};
  for (const std::string& object : cases) {
    CodeEntry entry = MakeCode(3);
    entry.object = object;
    entry.attributes = "";
    ASSERT_TRUE(store->PutCode(entry).ok());
    std::optional<CodeEntry> found = store->FindCode(entry.key);
    ASSERT_TRUE(found.has_value()) << object.size();
    ExpectSame(*found, entry);
  }
}

TEST_F(StoreTest, ByRequestTheNewestEntryIsFound) {
  std::unique_ptr<Store> store = Open();
  CodeEntry old_build = MakeCode(1), new_build = MakeCode(2);
  old_build.request = new_build.request = "the same request";
  ASSERT_TRUE(store->PutCode(new_build).ok());
  ASSERT_TRUE(store->PutCode(old_build).ok());
  std::optional<CodeEntry> found = store->FindCodeByRequest("the same request");
  ASSERT_TRUE(found.has_value());
  ExpectSame(*found, new_build);
  EXPECT_FALSE(store->FindCodeByRequest("another request").has_value());
}

TEST_F(StoreTest, APutReplacesAndARemovedEntryIsGone) {
  std::unique_ptr<Store> store = Open();
  CodeEntry entry = MakeCode(1);
  ASSERT_TRUE(store->PutCode(entry).ok());
  entry.object = "rebuilt";
  ASSERT_TRUE(store->PutCode(entry).ok());
  ExpectSame(*store->FindCode(entry.key), entry);
  EXPECT_EQ(store->ListCode()->size(), 1u);
  store->RemoveCode(entry.key, "the driver refused it");
  EXPECT_FALSE(store->FindCode(entry.key).has_value());
  EXPECT_FALSE(store->FindCodeByRequest(entry.request).has_value());
  EXPECT_THAT(log_.warnings(), ElementsAre(HasSubstr("the driver refused it")));
}

TEST_F(StoreTest, ListsAreInOrderOfAgeAndWithoutObjects) {
  std::unique_ptr<Store> store = Open();
  for (int n : {3, 1, 2}) {
    ASSERT_TRUE(store->PutCode(MakeCode(n)).ok());
    ASSERT_TRUE(store->PutWinner(MakeWinner(n)).ok());
  }
  std::vector<CodeEntry> code = *store->ListCode();
  std::vector<WinnerEntry> winners = *store->ListWinners();
  ASSERT_EQ(code.size(), 3u);
  ASSERT_EQ(winners.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(code[i].key, MakeCode(i + 1).key);
    EXPECT_EQ(code[i].object, "");
    ExpectSame(winners[i], MakeWinner(i + 1));
  }
}

TEST_F(StoreTest, EntriesBeyondTheLimitsAreRefused) {
  StoreOptions small = options();
  small.object_limit_bytes = 1000;
  std::unique_ptr<Store> store = Store::Open(small, log_.logger());
  EXPECT_TRUE(absl::IsResourceExhausted(store->PutCode(MakeCode(1, 1001))));
  EXPECT_TRUE(store->PutCode(MakeCode(1, 1000)).ok());
  WinnerEntry winner = MakeWinner(1);
  winner.evidence = std::string((16 << 20) + 1, ' ');
  EXPECT_TRUE(absl::IsResourceExhausted(store->PutWinner(winner)));
}

TEST_F(StoreTest, AnObjectLargerThanTheReadersLimitIsAMissAndNotAllocated) {
  Open()->PutCode(MakeCode(1, 5000)).IgnoreError();
  StoreOptions small = options();
  small.object_limit_bytes = 1000;
  EXPECT_FALSE(Store::Open(small, log_.logger())->FindCode(MakeCode(1).key).has_value());
}

// A bit that flipped anywhere in a row: the entry is dropped, its neighbours live.
TEST_F(StoreTest, DamagedEntriesAreDroppedAndCanBeMadeAgain) {
  const struct {
    const char* damage;
    bool code;
  } cases[] = {
      {"UPDATE object SET bytes = substr(bytes, 1, 100) || x'ff' || substr(bytes, 102)", true},
      {"UPDATE object SET bytes = substr(bytes, 1, 100)", true},
      {"UPDATE object SET bytes = x''", true},
      {"UPDATE object SET attributes = x'7b7d'", true},
      {"UPDATE code SET object_bytes = object_bytes + 1", true},
      {"UPDATE code SET object_bytes = 9000000000000000000", true},
      {"UPDATE code SET object_bytes = -1", true},
      {"UPDATE code SET codec = 0", true},
      {"UPDATE code SET codec = 77", true},
      {"UPDATE code SET checksum = x'00'", true},
      {"UPDATE code SET checksum = 17", true},
      {"UPDATE code SET request = x'00'", true},
      {"UPDATE code SET created_unix_s = 5", true},
      {"UPDATE winner SET evidence = x'7b7d'", false},
      {"UPDATE winner SET variant = x'00'", false},
      {"UPDATE winner SET checksum = x'00'", false},
  };
  int expected_warnings = 0;
  for (const auto& c : cases) {
    SCOPED_TRACE(c.damage);
    {
      std::unique_ptr<Store> store = Open();
      ASSERT_TRUE(store->PutCode(MakeCode(1)).ok());
      ASSERT_TRUE(store->PutWinner(MakeWinner(1)).ok());
    }
    Sql(c.damage);
    std::unique_ptr<Store> store = Open();
    ASSERT_TRUE(store->PutCode(MakeCode(2)).ok());
    EXPECT_EQ(store->FindCode(MakeCode(1).key).has_value(), !c.code);
    EXPECT_EQ(store->FindWinner(MakeWinner(1).key).has_value(), c.code);
    EXPECT_EQ(store->counters().damaged_entries, 1);
    // Dropped, so the second lookup is a plain miss, and the neighbour is there.
    EXPECT_EQ(store->FindCode(MakeCode(1).key).has_value(), !c.code);
    EXPECT_EQ(store->counters().damaged_entries, 1);
    EXPECT_TRUE(store->FindCode(MakeCode(2).key).has_value());
    EXPECT_EQ(log_.warnings().size(), static_cast<size_t>(++expected_warnings));
  }
}

TEST_F(StoreTest, AHashCollisionIsAMiss) {
  Open()->PutCode(MakeCode(1)).IgnoreError();
  Sql("UPDATE code SET key = x'00', request = x'00'");
  std::unique_ptr<Store> store = Open();
  EXPECT_FALSE(store->FindCode(MakeCode(1).key).has_value());
  EXPECT_FALSE(store->FindCodeByRequest(MakeCode(1).request).has_value());
  EXPECT_EQ(store->counters().damaged_entries, 0);
}

TEST_F(StoreTest, FilesThatAreNoCacheAreSetAsideAndNeverLost) {
  MakeDirectories(JoinPath(directory_.path(), "cache")).IgnoreError();
  std::string sqlite_of_another;
  {
    sqlite3* db = nullptr;
    const std::string other = JoinPath(directory_.path(), "other.db");
    ASSERT_EQ(sqlite3_open(other.c_str(), &db), SQLITE_OK);
    sqlite3_exec(db, "CREATE TABLE precious(x); INSERT INTO precious VALUES (1)", nullptr, nullptr,
                 nullptr);
    sqlite3_close(db);
    sqlite_of_another = *ReadFile(other, 1 << 20);
  }
  const std::string garbage[] = {"x", std::string(100'000, 'g'), "SQLite format 3",
                                 std::string("SQLite format 3\0", 16) + std::string(9000, '\xff'),
                                 sqlite_of_another};
  int n = 0;
  for (const std::string& bytes : garbage) {
    ++n;
    ASSERT_TRUE(WriteFileAtomically(path(), bytes).ok());
    std::unique_ptr<Store> store = Open();
    EXPECT_TRUE(store->persistent()) << n;
    EXPECT_EQ(store->counters().set_aside_files, 1) << n;
    EXPECT_EQ(*ReadFile(absl::StrCat(path(), ".corrupt-", n), 1 << 20), bytes) << n;
    EXPECT_TRUE(store->PutCode(MakeCode(n)).ok());
    EXPECT_EQ(log_.warnings().size(), static_cast<size_t>(n));
    EXPECT_THAT(log_.warnings().back(), HasSubstr(absl::StrCat("corrupt-", n)));
  }
}

TEST_F(StoreTest, DamageInsideTheFileMetLaterIsSetAsideToo) {
  {
    std::unique_ptr<Store> store = Open();
    for (int n = 0; n < 200; ++n) ASSERT_TRUE(store->PutCode(MakeCode(n)).ok());
  }
  // The first page stays, so that the file opens.
  std::string bytes = *ReadFile(path(), 1 << 30);
  for (size_t i = 8192; i < bytes.size(); ++i) bytes[i] = '\x5a';
  ASSERT_TRUE(WriteFileAtomically(path(), bytes).ok());
  std::unique_ptr<Store> store = Open();
  EXPECT_FALSE(store->FindCode(MakeCode(7).key).has_value());
  EXPECT_TRUE(store->persistent());
  EXPECT_EQ(store->counters().set_aside_files, 1);
  EXPECT_TRUE(store->PutCode(MakeCode(7)).ok());
  EXPECT_TRUE(store->FindCode(MakeCode(7).key).has_value());
  EXPECT_TRUE(IsRegularFile(path() + ".corrupt-1"));
}

TEST_F(StoreTest, ARemovedOrReplacedFileDoesNotSwallowWhatIsReportedStored) {
  std::unique_ptr<Store> store = Open();
  ASSERT_TRUE(store->PutCode(MakeCode(1)).ok());
  ASSERT_TRUE(RemoveTree(JoinPath(directory_.path(), "cache")).ok());
  ASSERT_TRUE(store->PutCode(MakeCode(2)).ok());
  EXPECT_TRUE(store->persistent());
  EXPECT_TRUE(Open()->FindCode(MakeCode(2).key).has_value());
}

TEST_F(StoreTest, UntrustedPlacesAreNotUsed) {
  const std::string directory = JoinPath(directory_.path(), "cache");
  const std::string elsewhere = JoinPath(directory_.path(), "elsewhere");
  ASSERT_TRUE(MakeDirectories(elsewhere).ok());
  const struct {
    const char* name;
    std::function<void()> arrange;
  } cases[] = {
      {"directory writable by others", [&] { chmod(directory.c_str(), 0777); }},
      {"directory writable by the group", [&] { chmod(directory.c_str(), 0770); }},
      {"file writable by others", [&] { chmod(path().c_str(), 0666); }},
      {"log writable by others",
       [&] {
         mknod((path() + "-wal").c_str(), S_IFREG | 0666, 0);
         chmod((path() + "-wal").c_str(), 0666);
       }},
      {"file is a symbolic link",
       [&] {
         rename(path().c_str(), (elsewhere + "/x").c_str());
         ASSERT_EQ(symlink((elsewhere + "/x").c_str(), path().c_str()), 0);
       }},
      {"log is a symbolic link",
       [&] { ASSERT_EQ(symlink((elsewhere + "/y").c_str(), (path() + "-wal").c_str()), 0); }},
      {"directory is a symbolic link",
       [&] {
         rename(directory.c_str(), (elsewhere + "/d").c_str());
         ASSERT_EQ(symlink((elsewhere + "/d").c_str(), directory.c_str()), 0);
       }},
      {"file is a directory",
       [&] {
         unlink(path().c_str());
         ASSERT_TRUE(MakeDirectories(path()).ok());
       }},
      {"path is below a file",
       [&] {
         ASSERT_TRUE(RemoveTree(directory).ok());
         ASSERT_TRUE(WriteFileAtomically(directory, "x").ok());
       }},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    ASSERT_TRUE(RemoveTree(directory).ok());
    ASSERT_TRUE(Open()->PutCode(MakeCode(1)).ok());
    c.arrange();
    LogCapture log;
    std::unique_ptr<Store> store = Store::Open(options(), log.logger());
    EXPECT_FALSE(store->persistent());
    EXPECT_FALSE(store->FindCode(MakeCode(1).key).has_value());
    EXPECT_TRUE(store->PutCode(MakeCode(2)).ok());
    EXPECT_TRUE(store->FindCode(MakeCode(2).key).has_value());
    EXPECT_EQ(log.warnings().size(), 1u);
  }
  ASSERT_TRUE(RemoveTree(directory).ok());
  RemoveTree(elsewhere).IgnoreError();
}

TEST_F(StoreTest, AnotherUsersDirectoryIsNotUsed) {
  const std::string directory = JoinPath(directory_.path(), "cache");
  ASSERT_TRUE(MakeDirectories(directory).ok());
  if (chown(directory.c_str(), 65534, 65534) != 0) {
    GTEST_SKIP() << "needs the right to give a directory away (root, and no user namespace)";
  }
  EXPECT_FALSE(Open()->persistent());
  ASSERT_EQ(log_.warnings().size(), 1u);
  EXPECT_THAT(log_.warnings()[0], HasSubstr("belongs to user 65534"));
}

TEST_F(StoreTest, FilesAreForTheirOwnerAlone) {
  umask(0);
  std::unique_ptr<Store> store = Open();
  ASSERT_TRUE(store->PutCode(MakeCode(1)).ok());
  umask(022);
  for (const char* const suffix : {"", "-wal", "-shm"}) {
    struct stat info;
    ASSERT_EQ(stat((path() + suffix).c_str(), &info), 0) << suffix;
    EXPECT_EQ(info.st_mode & 07777, 0600u) << suffix;
  }
  struct stat info;
  ASSERT_EQ(stat(JoinPath(directory_.path(), "cache").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700u);
}

TEST_F(StoreTest, ReadOnlyFindsAndNeverWrites) {
  Open()->PutCode(MakeCode(1)).IgnoreError();
  const std::string before = *ReadFile(path(), 1 << 30);
  StoreOptions read_only = options();
  read_only.read_only = true;
  {
    std::unique_ptr<Store> store = Store::Open(read_only, log_.logger());
    EXPECT_TRUE(store->FindCode(MakeCode(1).key).has_value());
    EXPECT_TRUE(absl::IsUnavailable(store->PutCode(MakeCode(2))));
    EXPECT_EQ(store->counters().failed_writes, 1);
  }
  EXPECT_TRUE(*ReadFile(path(), 1 << 30) == before);
}

TEST_F(StoreTest, WithoutAPathItLivesInMemory) {
  std::unique_ptr<Store> store = Store::Open({}, log_.logger());
  EXPECT_FALSE(store->persistent());
  ASSERT_TRUE(store->PutCode(MakeCode(1)).ok());
  EXPECT_TRUE(store->FindCode(MakeCode(1).key).has_value());
  EXPECT_THAT(log_.warnings(), IsEmpty());
}

TEST_F(StoreTest, UseIsStampedAtMostOnceAnHour) {
  ManualClock clock(absl::FromUnixSeconds(1'000'000));
  StoreOptions with_clock = options();
  with_clock.clock = &clock;
  auto stamp = [&] {
    sqlite3* db = nullptr;
    EXPECT_EQ(sqlite3_open(path().c_str(), &db), SQLITE_OK);
    int64_t used = -1;
    sqlite3_exec(
        db, "SELECT used_unix_s FROM code",
        [](void* out, int, char** values, char**) {
          *static_cast<int64_t*>(out) = atoll(values[0]);
          return 0;
        },
        &used, nullptr);
    sqlite3_close(db);
    return used;
  };
  auto use = [&] {
    std::unique_ptr<Store> store = Store::Open(with_clock, log_.logger());
    EXPECT_TRUE(store->FindCode(MakeCode(1).key).has_value());
  };
  Store::Open(with_clock, log_.logger())->PutCode(MakeCode(1)).IgnoreError();
  EXPECT_EQ(stamp(), 1'000'000);
  clock.Advance(absl::Minutes(59));
  use();
  EXPECT_EQ(stamp(), 1'000'000);
  clock.Advance(absl::Minutes(1));
  use();
  EXPECT_EQ(stamp(), 1'003'600);
  clock.JumpTo(absl::FromUnixSeconds(500));  // back by days: the stamp would outlive everything
  use();
  EXPECT_EQ(stamp(), 500);
}

TEST_F(StoreTest, ManyThreadsShareOneStore) {
  std::unique_ptr<Store> store = Open();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        const int n = (t * 20 + i) % 40;
        EXPECT_TRUE(store->PutCode(MakeCode(n)).ok());
        std::optional<CodeEntry> found = store->FindCode(MakeCode(n).key);
        ASSERT_TRUE(found.has_value());
        ExpectSame(*found, MakeCode(n));
        EXPECT_TRUE(store->PutWinner(MakeWinner(n)).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store->ListCode()->size(), 40u);
  EXPECT_THAT(log_.warnings(), IsEmpty());
}

TEST_F(StoreTest, ProcessesStartingAtOnceShareOneFile) {
  constexpr int kProcesses = 8;
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      std::unique_ptr<Store> store = Open();
      bool good = store->persistent();
      for (int i = 0; i < 10; ++i) {
        good = good && store->PutCode(MakeCode(p * 10 + i)).ok();
        good = good && store->FindCode(MakeCode(p * 10 + i).key).has_value();
      }
      // On a busy machine a write may well take a second, which is said and is no fault.
      for (const std::string& warning : log_.warnings()) {
        good = good && absl::StrContains(warning, "writing to the cache");
      }
      store.reset();
      _exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  std::unique_ptr<Store> store = Open();
  EXPECT_EQ(store->ListCode()->size(), static_cast<size_t>(kProcesses * 10));
  for (int n = 0; n < kProcesses * 10; ++n) {
    std::optional<CodeEntry> found = store->FindCode(MakeCode(n).key);
    ASSERT_TRUE(found.has_value()) << n;
    ExpectSame(*found, MakeCode(n));
  }
  EXPECT_EQ(store->counters().set_aside_files, 0);
}

TEST_F(StoreTest, AForkedChildLeavesTheParentsFileAlone) {
  std::unique_ptr<Store> store = Open();
  ASSERT_TRUE(store->PutCode(MakeCode(1)).ok());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool good = !store->FindCode(MakeCode(1).key).has_value() && !store->persistent() &&
                      store->PutCode(MakeCode(2)).ok() &&
                      store->FindCode(MakeCode(2).key).has_value() && log_.warnings().size() == 1;
    store.reset();
    _exit(good ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(store->FindCode(MakeCode(1).key).has_value());
  EXPECT_TRUE(store->PutCode(MakeCode(3)).ok());
  EXPECT_FALSE(store->FindCode(MakeCode(2).key).has_value());
  EXPECT_TRUE(Open()->FindCode(MakeCode(3).key).has_value());
}

}  // namespace
}  // namespace whet
