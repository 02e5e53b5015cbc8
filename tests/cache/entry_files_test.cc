// The cache on network file systems, played by processes that share a directory and nothing else:
// no locks, no shared memory, no common clock.
#include "cache/entry_files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>

#include "cache/entry_file_format.h"
#include "cache/file_system.h"
#include "src/base/clock.h"
#include "tests/cache/cache_fixture.h"

namespace whet {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class EntryFilesTest : public CacheTest {
 protected:
  StoreOptions NetworkOptions() const {
    StoreOptions options = CacheTest::options();
    options.file_system = FileSystemKind::kNetwork;
    return options;
  }
  std::unique_ptr<Store> OpenNode() { return Store::Open(NetworkOptions(), log_.logger()); }
  std::vector<std::string> FilesOf(const std::string& kind) {
    std::vector<std::string> files;
    const std::string root = JoinPath(path() + ".entries", kind);
    absl::StatusOr<std::vector<std::string>> folders = ListDirectory(root);
    if (!folders.ok()) return files;
    for (const std::string& folder : *folders) {
      const std::vector<std::string> names = *ListDirectory(JoinPath(root, folder));
      for (const std::string& name : names) {
        files.push_back(JoinPath(JoinPath(root, folder), name));
      }
    }
    return files;
  }
};

TEST_F(EntryFilesTest, WhatOneNodeStoresAnotherFinds) {
  std::unique_ptr<Store> a = OpenNode(), b = OpenNode();
  EXPECT_TRUE(a->persistent());
  ASSERT_TRUE(a->PutCode(MakeCode(1, 50'000)).ok());
  ASSERT_TRUE(a->PutWinner(MakeWinner(1)).ok());
  ExpectSame(*b->FindCode(MakeCode(1).key), MakeCode(1, 50'000));
  ExpectSame(*b->FindCodeByRequest(MakeCode(1).request), MakeCode(1, 50'000));
  ExpectSame(*b->FindWinner(MakeWinner(1).key), MakeWinner(1));
  EXPECT_FALSE(b->FindCode("another").has_value());
  EXPECT_FALSE(b->FindWinner("another").has_value());
  EXPECT_EQ(b->HaveWinners({"another", MakeWinner(1).key}), (std::vector<bool>{false, true}));
  EXPECT_THAT(*b->ListCode(), SizeIs(1));
  EXPECT_THAT(*b->ListWinners(), SizeIs(1));
  EXPECT_EQ(b->Usage()->code_entries, 1);
  EXPECT_FALSE(IsRegularFile(path())) << "no database on such a file system";
  EXPECT_THAT(FilesOf("code"), SizeIs(1));
  EXPECT_THAT(log_.warnings(), IsEmpty());
}

TEST_F(EntryFilesTest, RemovedEntriesAreGoneByBothNames) {
  std::unique_ptr<Store> store = OpenNode();
  ASSERT_TRUE(store->PutCode(MakeCode(1)).ok());
  ASSERT_TRUE(store->PutCode(MakeCode(2)).ok());
  store->RemoveCode(MakeCode(1).key, "does not load");
  EXPECT_FALSE(store->FindCode(MakeCode(1).key).has_value());
  EXPECT_FALSE(store->FindCodeByRequest(MakeCode(1).request).has_value());
  EXPECT_TRUE(store->FindCodeByRequest(MakeCode(2).request).has_value());
  ASSERT_EQ(store->ListQuarantine()->size(), 1u);
  EXPECT_EQ((*store->ListQuarantine())[0].reason, "does not load");
  EXPECT_TRUE(store->EraseCode(MakeCode(2).key).ok());
  EXPECT_TRUE(store->EraseCode(MakeCode(2).key).ok());
  EXPECT_THAT(FilesOf("code"), IsEmpty());
  EXPECT_THAT(FilesOf("request"), IsEmpty());
}

TEST_F(EntryFilesTest, A20_A21_DamagedFilesAreDroppedAndMadeAgain) {
  std::unique_ptr<Store> store = OpenNode();
  const uint64_t seed = 20260106;
  std::mt19937_64 random(seed);
  for (int round = 0; round < 150; ++round) {
    SCOPED_TRACE(absl::StrCat("seed ", seed, " round ", round));
    ASSERT_TRUE(store->PutCode(MakeCode(1)).ok());
    ASSERT_TRUE(store->PutWinner(MakeWinner(1)).ok());
    for (const char* const kind : {"code", "winner"}) {
      const std::string file = FilesOf(kind).at(0);
      std::string bytes = *ReadFile(file, 1 << 20);
      switch (round % 3) {
        case 0:
          bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
          break;
        case 1:
          bytes.resize(random() % bytes.size());
          break;
        default:
          bytes += "tail";
      }
      ASSERT_TRUE(WriteFileAtomically(file, bytes).ok());
    }
    EXPECT_FALSE(store->FindCode(MakeCode(1).key).has_value());
    EXPECT_FALSE(store->FindWinner(MakeWinner(1).key).has_value());
    EXPECT_THAT(FilesOf("code"), IsEmpty());
  }
  EXPECT_EQ(store->counters().damaged_entries, 300);
  EXPECT_EQ(log_.warnings().size(), 1u);
}

TEST_F(EntryFilesTest, ALinkOrAnothersFileIsNotRead) {
  std::unique_ptr<Store> store = OpenNode();
  ASSERT_TRUE(store->PutCode(MakeCode(1)).ok());
  const std::string file = FilesOf("code").at(0);
  ASSERT_EQ(chmod(file.c_str(), 0666), 0);
  EXPECT_FALSE(store->FindCode(MakeCode(1).key).has_value());
  ASSERT_EQ(chmod(file.c_str(), 0600), 0);
  EXPECT_TRUE(store->FindCode(MakeCode(1).key).has_value());
  const std::string elsewhere = JoinPath(directory_.path(), "elsewhere");
  ASSERT_EQ(rename(file.c_str(), elsewhere.c_str()), 0);
  ASSERT_EQ(symlink(elsewhere.c_str(), file.c_str()), 0);
  EXPECT_FALSE(store->FindCode(MakeCode(1).key).has_value());
  ASSERT_EQ(chmod((path() + ".entries").c_str(), 0777), 0);
  EXPECT_FALSE(OpenNode()->persistent());
}

TEST_F(EntryFilesTest, TheLeastRecentlyUsedGivesWay) {
  ManualClock clock(absl::FromUnixSeconds(1'000'000));
  StoreOptions options = NetworkOptions();
  options.clock = &clock;
  options.generation = 2;
  std::unique_ptr<Store> store = Store::Open(options, log_.logger());
  for (int n = 0; n < 10; ++n) {
    ASSERT_TRUE(store->PutCode(MakeCode(n, 10'000)).ok());
    clock.Advance(absl::Hours(1));
  }
  StoreOptions old = options;
  old.generation = 1;
  ASSERT_TRUE(Store::Open(old, log_.logger())->PutCode(MakeCode(99, 10'000)).ok());
  clock.Advance(absl::Hours(1));
  EXPECT_TRUE(store->FindCode(MakeCode(0).key).has_value());  // used again
  const int64_t used = store->Usage()->used_bytes;
  EXPECT_EQ(*store->Shrink(used / 2), 6);
  EXPECT_FALSE(store->FindCode(MakeCode(99).key).has_value()) << "an orphan goes first";
  EXPECT_TRUE(store->FindCode(MakeCode(0).key).has_value());
  for (int n = 1; n <= 5; ++n) EXPECT_FALSE(store->FindCode(MakeCode(n).key).has_value()) << n;
  for (int n = 6; n < 10; ++n) EXPECT_TRUE(store->FindCode(MakeCode(n).key).has_value()) << n;
}

TEST_F(EntryFilesTest, TheSizeLimitIsKept) {
  StoreOptions options = NetworkOptions();
  options.size_limit_bytes = 200'000;
  std::unique_ptr<Store> store = Store::Open(options, log_.logger());
  for (int n = 0; n < 60; ++n) ASSERT_TRUE(store->PutCode(MakeCode(n, 10'000)).ok());
  EXPECT_LE(store->Usage()->used_bytes, 200'000 + 20'000);
  EXPECT_GT(store->counters().evicted_entries, 10);
  EXPECT_TRUE(absl::IsResourceExhausted(store->PutCode(MakeCode(1, 1'000'000))));
}

TEST_F(EntryFilesTest, LeftoversOfDeadWritersGoAfterADay) {
  // Days ahead: its own clock must not decide.
  ManualClock clock(absl::FromUnixSeconds(5'000'000'000));
  StoreOptions options = NetworkOptions();
  options.clock = &clock;
  std::unique_ptr<Store> store = Store::Open(options, log_.logger());
  ASSERT_TRUE(store->PutCode(MakeCode(1)).ok());
  const std::string left = FilesOf("code").at(0) + ".tmp-left";
  WriteQuickly(left, "half");
  EXPECT_EQ(store->Usage()->code_entries, 1);
  EXPECT_TRUE(IsRegularFile(left));
  const int64_t yesterday_s = absl::ToUnixSeconds(Clock::Real()->Now()) - 25 * 3600;
  const timespec times[2] = {{yesterday_s, 0}, {yesterday_s, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, left.c_str(), times, 0), 0);
  EXPECT_EQ(store->Usage()->code_entries, 1);
  EXPECT_FALSE(IsRegularFile(left));
  EXPECT_TRUE(store->FindCode(MakeCode(1).key).has_value());
}

TEST_F(EntryFilesTest, FilesOfALaterVersionAreReadAsFarAsTheyAreKnown) {
  const std::string bytes = FormatCodeFile(MakeCode(1), 7);
  absl::StatusOr<CodeEntry> entry = ParseCodeFile(bytes, 1 << 20, /*with_object=*/true);
  ASSERT_TRUE(entry.ok());
  ExpectSame(*entry, MakeCode(1));
  EXPECT_EQ(entry->facts.generation, 7);
  EXPECT_FALSE(ParseWinnerFile(bytes).ok());
  EXPECT_FALSE(ParseQuarantineFile(bytes).ok());
  EXPECT_FALSE(ParseCodeFile(bytes, 100, true).ok()) << "larger than the limit";
  EXPECT_FALSE(ParseCodeFile("", 1 << 20, true).ok());
}

// Scenarios A08, A13: 32 processes on "nodes" that have nothing in common but the directory.
TEST(Scenario, A08_A13_ProcessesWithoutCommonLocksShareADirectory) {
  TemporaryDirectory directory = *TemporaryDirectory::Create("whet-nodes");
  StoreOptions options;
  options.path = JoinPath(directory.path(), "cache/cache.db");
  options.file_system = FileSystemKind::kNetwork;
  constexpr int kProcesses = 32, kKeys = 6;
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      LogCapture log;
      // Each node's clock is wrong in its own way.
      ManualClock clock(absl::FromUnixSeconds(1'000'000'000 + p * 86'400));
      StoreOptions own = options;
      own.clock = &clock;
      std::unique_ptr<Store> store = Store::Open(own, log.logger());
      bool good = store->persistent();
      for (int i = 0; i < 2 * kKeys; ++i) {
        const int n = (i + p) % kKeys;
        std::optional<CodeEntry> found = store->FindCode(MakeCode(n).key);
        if (found.has_value()) {
          good = good && found->object == MakeCode(n, 30'000).object;
        } else {
          const absl::Status put = store->PutCode(MakeCode(n, 30'000));
          if (!put.ok()) fprintf(stderr, "%s\n", put.ToString().c_str());
          good = good && put.ok();
        }
        if (p % 8 == 0 && i % 5 == 4) {
          good = good && store->EraseCode(MakeCode(n).key).ok();  // an evicting node
        }
        const absl::Status put = store->PutWinner(MakeWinner(n));
        if (!put.ok()) fprintf(stderr, "%s\n", put.ToString().c_str());
        good = good && put.ok();
      }
      good = good && log.warnings().empty() && store->counters().damaged_entries == 0;
      _exit(good ? 0 : log.warnings().empty() ? 1 : 2);
    }
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  LogCapture log;
  std::unique_ptr<Store> store = Store::Open(options, log.logger());
  for (int n = 0; n < kKeys; ++n) {
    std::optional<CodeEntry> found = store->FindCode(MakeCode(n).key);
    EXPECT_TRUE(!found.has_value() || found->object == MakeCode(n, 30'000).object);
    EXPECT_TRUE(store->FindWinner(MakeWinner(n).key).has_value());
  }
}

TEST_F(EntryFilesTest, KilledNodesLoseNothingThatWasAcknowledged) {
  const uint64_t seed = 20260107;
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937_64 random(seed);
  std::map<int, int> acknowledged;
  for (int cycle = 0; cycle < 15; ++cycle) {
    int pipe_fds[2];
    ASSERT_EQ(pipe(pipe_fds), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      std::unique_ptr<Store> store = OpenNode();
      for (int i = 0; i < 1000; ++i) {
        CodeEntry entry = MakeCode(i % 5, 20'000);
        entry.attributes = absl::StrCat(cycle * 1000 + i);
        if (!store->PutCode(entry).ok()) _exit(1);
        const int record[2] = {i % 5, cycle * 1000 + i};
        if (write(pipe_fds[1], record, sizeof record) != sizeof record) _exit(1);
      }
      _exit(0);
    }
    close(pipe_fds[1]);
    int record[2];
    for (uint64_t left = 1 + random() % 8; left > 0; --left) {
      ASSERT_EQ(read(pipe_fds[0], record, sizeof record), static_cast<ssize_t>(sizeof record));
      acknowledged[record[0]] = record[1];
    }
    kill(child, SIGKILL);
    while (read(pipe_fds[0], record, sizeof record) == sizeof record) {
      acknowledged[record[0]] = record[1];
    }
    close(pipe_fds[0]);
    int status = 0;
    waitpid(child, &status, 0);
    std::unique_ptr<Store> store = OpenNode();
    for (const auto& [key, version] : acknowledged) {
      std::optional<CodeEntry> found = store->FindCode(MakeCode(key).key);
      ASSERT_TRUE(found.has_value()) << key;
      EXPECT_GE(std::stoi(found->attributes), version);
    }
    EXPECT_EQ(store->counters().damaged_entries, 0);
  }
}

TEST(FileSystemTest, NetworkFileSystemsAreKnown) {
  for (const uint64_t magic : {0x6969ull, 0xff534d42ull, 0xfe534d42ull, 0x0bd00bd0ull,
                               0x47504653ull, 0x65735546ull, 0x01021997ull, 0x19830326ull}) {
    EXPECT_EQ(ClassifyFileSystem(magic).kind, FileSystemKind::kNetwork) << std::hex << magic;
    // f_type is signed on some systems, and so arrives with its sign extended.
    const uint64_t extended =
        static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(magic)));
    EXPECT_EQ(ClassifyFileSystem(extended).kind, FileSystemKind::kNetwork) << std::hex << magic;
  }
  for (const uint64_t magic :
       {0xef53ull, 0x58465342ull, 0x9123683eull, 0x01021994ull, 0x794c7630ull}) {
    EXPECT_EQ(ClassifyFileSystem(magic).kind, FileSystemKind::kLocal) << std::hex << magic;
  }
  EXPECT_EQ(DetectFileSystem("/dev/shm/not/there/at/all").kind, FileSystemKind::kLocal);
  EXPECT_EQ(DetectFileSystem("relative/and/missing").kind, DetectFileSystem(".").kind);
}

}  // namespace
}  // namespace whet
