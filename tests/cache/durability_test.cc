// What is reported stored is there afterwards, and nothing wrong is ever returned: through crashes
// at every input and output call, errors at every one of them, killed writers, files cut short and
// flipped bits, full and read-only disks.
#include <errno.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>

#include "cache/store.h"
#include "tests/cache/cache_fixture.h"
#include "tests/cache/fault_vfs.h"

namespace whet {
namespace {

constexpr int kBefore = 3;               // entries 0, 1, 2 are there before anything goes wrong
constexpr size_t kObjectBytes = 12'000;  // more than a page, so that entries span several

class DurabilityTest : public CacheTest {
 protected:
  DurabilityTest() : vfs_("whet-fault") {}

  StoreOptions FaultOptions() const {
    StoreOptions options = CacheTest::options();
    options.busy_timeout = absl::Milliseconds(1);  // nobody else is there
    options.sqlite_vfs = vfs_.name();
    return options;
  }
  std::unique_ptr<Store> OpenFaulty() { return Store::Open(FaultOptions(), log_.logger()); }

  void StartAfresh() {
    vfs_.Disarm();
    const std::string directory = JoinPath(directory_.path(), "cache");
    ASSERT_TRUE(RemoveTree(directory).ok());
    if (!start_.empty()) {
      ASSERT_TRUE(MakeDirectories(directory).ok());
      WriteQuickly(path(), start_);
      return;
    }
    {
      std::unique_ptr<Store> store = OpenFaulty();
      for (int n = 0; n < kBefore; ++n) {
        ASSERT_TRUE(store->PutCode(MakeCode(n, kObjectBytes)).ok());
        ASSERT_TRUE(store->PutWinner(MakeWinner(n)).ok());
      }
    }
    start_ = *ReadFile(path(), 1 << 30);
  }

  // What goes wrong goes wrong in here. Returns which of the new entries were reported stored.
  static std::vector<int> Work(Store& store) {
    std::vector<int> stored;
    for (int n = 0; n < kBefore; ++n) {
      std::optional<CodeEntry> code = store.FindCode(MakeCode(n).key);
      EXPECT_TRUE(!code.has_value() || code->object == MakeCode(n, kObjectBytes).object);
    }
    for (int n = kBefore; n < kBefore + 3; ++n) {
      const bool code = store.PutCode(MakeCode(n, kObjectBytes)).ok();
      const bool winner = store.PutWinner(MakeWinner(n)).ok();
      if (code && winner && store.persistent()) stored.push_back(n);
    }
    CodeEntry replaced = MakeCode(0, kObjectBytes);
    store.PutCode(replaced).IgnoreError();
    return stored;
  }

  void ExpectAll(const std::vector<int>& stored) {
    vfs_.Disarm();
    std::unique_ptr<Store> store = OpenFaulty();
    ASSERT_TRUE(store->persistent());
    auto expect = [&](int n) {
      std::optional<CodeEntry> code = store->FindCode(MakeCode(n).key);
      ASSERT_TRUE(code.has_value()) << "entry " << n << " was lost";
      ExpectSame(*code, MakeCode(n, kObjectBytes));
      std::optional<WinnerEntry> winner = store->FindWinner(MakeWinner(n).key);
      ASSERT_TRUE(winner.has_value()) << "winner " << n << " was lost";
      ExpectSame(*winner, MakeWinner(n));
    };
    for (int n = 0; n < kBefore; ++n) expect(n);
    for (int n : stored) expect(n);
    EXPECT_EQ(store->counters().set_aside_files, 0);
    EXPECT_FALSE(IsRegularFile(path() + ".corrupt-1"));
  }

  void PrintWarnings() {
    for (const std::string& line : log_.warnings()) printf("%s\n", line.c_str());
  }

  FaultVfs vfs_;
  std::string start_;  // the file with what is there before
};

TEST_F(DurabilityTest, AnErrorInEveryCallLosesNothing) {
  const struct {
    const char* name;
    bool persistent;
    int code;
  } cases[] = {{"transient I/O error", false, SQLITE_IOERR_WRITE},
               {"persistent I/O error", true, SQLITE_IOERR_WRITE},
               {"transiently full", false, SQLITE_FULL},
               {"full for good", true, SQLITE_FULL}};
  for (const auto& c : cases) {
    int n = 0;
    for (bool fired = true; fired;) {
      ++n;
      SCOPED_TRACE(absl::StrCat(c.name, " in call ", n));
      StartAfresh();
      vfs_.FailAt(n, c.persistent, c.code);
      std::vector<int> stored;
      {
        std::unique_ptr<Store> store = OpenFaulty();
        stored = Work(*store);
      }
      fired = vfs_.fired();
      ExpectAll(stored);
      if (HasFailure()) return;
    }
    EXPECT_GT(n, 30) << "hardly any call was counted";
  }
}

TEST_F(DurabilityTest, ACrashInEveryCallLosesNothing) {
  int n = 0;
  for (bool died = true; died;) {
    ++n;
    SCOPED_TRACE(absl::StrCat("dies in call ", n));
    StartAfresh();
    int pipe_fds[2];
    ASSERT_EQ(pipe(pipe_fds), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      close(pipe_fds[0]);
      vfs_.DieAt(n);
      std::unique_ptr<Store> store = OpenFaulty();
      for (int k = kBefore; k < kBefore + 3; ++k) {
        if (!store->PutCode(MakeCode(k, kObjectBytes)).ok()) _exit(2);
        if (!store->PutWinner(MakeWinner(k)).ok()) _exit(2);
        const char acknowledged = static_cast<char>(k);
        if (write(pipe_fds[1], &acknowledged, 1) != 1) _exit(2);
      }
      store.reset();
      _exit(0);
    }
    close(pipe_fds[1]);
    std::vector<int> stored;
    for (char k; read(pipe_fds[0], &k, 1) == 1;) stored.push_back(k);
    close(pipe_fds[0]);
    int status = 0;
    waitpid(child, &status, 0);
    died = WIFSIGNALED(status);
    ASSERT_TRUE(died || WEXITSTATUS(status) == 0);
    ExpectAll(stored);
    if (HasFailure()) return;
  }
  EXPECT_GT(n, 30) << "hardly any call was counted";
}

TEST_F(DurabilityTest, ACrashWhileTheFileIsMadeLeavesNoTrap) {
  int n = 0;
  for (bool died = true; died;) {
    ++n;
    SCOPED_TRACE(absl::StrCat("dies in call ", n));
    ASSERT_TRUE(RemoveTree(JoinPath(directory_.path(), "cache")).ok());
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      vfs_.DieAt(n);
      std::unique_ptr<Store> store = OpenFaulty();
      store.reset();
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    died = WIFSIGNALED(status);
    vfs_.Disarm();
    std::unique_ptr<Store> store = OpenFaulty();
    EXPECT_TRUE(store->persistent());
    EXPECT_EQ(store->counters().set_aside_files, 0);
    EXPECT_TRUE(store->PutCode(MakeCode(1)).ok());
    EXPECT_TRUE(store->FindCode(MakeCode(1).key).has_value());
    if (HasFailure()) return PrintWarnings();
  }
  EXPECT_GT(n, 10);
}

// A short form of bench/cache: kill_cycles, which runs 10,000.
TEST_F(DurabilityTest, KilledWritersLoseNothingThatWasAcknowledged) {
  constexpr int kCycles = 25, kWriters = 2, kKeys = 6;
  const uint64_t seed = 20260103;
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937_64 random(seed);
  std::map<int, int> acknowledged;  // key -> version
  auto entry_of = [](int key, int version) {
    CodeEntry entry = MakeCode(key);
    entry.attributes = absl::StrCat(version);
    entry.object = ObjectBytes(static_cast<uint64_t>(version), kObjectBytes);
    return entry;
  };
  for (int cycle = 0; cycle < kCycles; ++cycle) {
    struct Writer {
      pid_t pid;
      int fd;
    };
    std::vector<Writer> writers;
    for (int w = 0; w < kWriters; ++w) {
      int pipe_fds[2];
      ASSERT_EQ(pipe(pipe_fds), 0);
      const pid_t child = fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        for (const Writer& writer : writers) close(writer.fd);
        std::unique_ptr<Store> store = Open();  // the real VFS, with its syncs
        for (int i = 0; i < 10'000; ++i) {
          const int key = w * kKeys + i % kKeys, version = cycle * 10'000 + i;
          if (!store->PutCode(entry_of(key, version)).ok()) _exit(1);
          const int record[2] = {key, version};
          if (write(pipe_fds[1], record, sizeof record) != sizeof record) _exit(1);
        }
        _exit(0);
      }
      close(pipe_fds[1]);
      writers.push_back({child, pipe_fds[0]});
    }
    for (const Writer& writer : writers) {
      int record[2];
      for (uint64_t left = 1 + random() % 6; left > 0; --left) {
        ASSERT_EQ(read(writer.fd, record, sizeof record), static_cast<ssize_t>(sizeof record));
        acknowledged[record[0]] = record[1];
      }
      kill(writer.pid, SIGKILL);
      while (read(writer.fd, record, sizeof record) == sizeof record) {
        acknowledged[record[0]] = record[1];
      }
      close(writer.fd);
      int status = 0;
      waitpid(writer.pid, &status, 0);
      ASSERT_TRUE(WIFSIGNALED(status));
    }
    std::unique_ptr<Store> store = Open();
    ASSERT_TRUE(store->persistent());
    ASSERT_EQ(store->counters().set_aside_files, 0);
    for (const auto& [key, version] : acknowledged) {
      std::optional<CodeEntry> found = store->FindCode(MakeCode(key).key);
      ASSERT_TRUE(found.has_value()) << "key " << key << " in cycle " << cycle;
      const int got = std::stoi(found->attributes);
      ASSERT_GE(got, version);
      ASSERT_TRUE(found->object == entry_of(key, got).object);
    }
    ASSERT_EQ(store->counters().damaged_entries, 0);
  }
}

class DamageTest : public DurabilityTest {
 protected:
  static constexpr int kEntries = 12;

  // A database and the log of a writer that was killed.
  void MakeFiles() {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      {
        std::unique_ptr<Store> store = OpenFaulty();
        for (int n = 0; n < kEntries / 2; ++n) {
          if (!store->PutCode(MakeCode(n, kObjectBytes)).ok()) _exit(1);
        }
      }
      std::unique_ptr<Store> store = OpenFaulty();
      for (int n = kEntries / 2; n < kEntries; ++n) {
        if (!store->PutCode(MakeCode(n, kObjectBytes)).ok()) _exit(1);
      }
      kill(getpid(), SIGKILL);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
    database_ = *ReadFile(path(), 1 << 30);
    log_bytes_ = *ReadFile(path() + "-wal", 1 << 30);
    ASSERT_GT(log_bytes_.size(), 10'000u);
  }

  // Whatever the files are, everything returned is right and the cache goes on.
  void ExpectNothingWrong(const std::string& database, const std::string& log) {
    ASSERT_TRUE(RemoveTree(JoinPath(directory_.path(), "cache")).ok());
    ASSERT_TRUE(MakeDirectories(JoinPath(directory_.path(), "cache")).ok());
    WriteQuickly(path(), database);
    WriteQuickly(path() + "-wal", log);
    std::unique_ptr<Store> store = OpenFaulty();
    EXPECT_TRUE(store->persistent());
    for (int n = 0; n < kEntries; ++n) {
      std::optional<CodeEntry> code = store->FindCode(MakeCode(n).key);
      if (code.has_value()) ExpectSame(*code, MakeCode(n, kObjectBytes));
      code = store->FindCodeByRequest(MakeCode(n).request);
      if (code.has_value()) ExpectSame(*code, MakeCode(n, kObjectBytes));
    }
    store->ListCode().status().IgnoreError();
    for (int n : {3, 100}) {
      const absl::Status put = store->PutCode(MakeCode(n, kObjectBytes));
      EXPECT_TRUE(put.ok()) << put;
      EXPECT_TRUE(store->FindCode(MakeCode(n).key).has_value());
    }
    if (HasFailure()) PrintWarnings();
  }

  std::string database_, log_bytes_;
};

TEST_F(DamageTest, FilesCutShortAnywhere) {
  MakeFiles();
  for (size_t length = 0; length < database_.size(); length += 1 + length / 9) {
    SCOPED_TRACE(absl::StrCat("database cut to ", length));
    ExpectNothingWrong(database_.substr(0, length), length % 2 == 0 ? log_bytes_ : "");
    if (HasFailure()) return;
  }
  for (size_t length = 0; length < log_bytes_.size(); length += 1 + length / 5) {
    SCOPED_TRACE(absl::StrCat("log cut to ", length));
    ExpectNothingWrong(database_, log_bytes_.substr(0, length));
    if (HasFailure()) return;
  }
}

TEST_F(DamageTest, FlippedBitsAnywhere) {
  MakeFiles();
  const uint64_t seed = 20260104;
  std::mt19937_64 random(seed);
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(absl::StrCat("seed ", seed, " round ", round));
    std::string database = database_, log = log_bytes_;
    const int flips = 1 << random() % 6;
    for (int i = 0; i < flips; ++i) {
      std::string& victim = random() % 3 == 0 ? log : database;
      // Headers and the first pages matter most.
      const size_t range = random() % 4 == 0 ? 200 : victim.size();
      victim[random() % range] ^= static_cast<char>(1 << random() % 8);
    }
    ExpectNothingWrong(database, round % 3 == 0 ? "" : log);
    if (HasFailure()) return;
  }
}

TEST_F(DamageTest, PagesOfGarbageAndSwappedPages) {
  MakeFiles();
  const uint64_t seed = 20260105;
  std::mt19937_64 random(seed);
  const size_t pages = database_.size() / 8192;
  for (int round = 0; round < 40; ++round) {
    SCOPED_TRACE(absl::StrCat("seed ", seed, " round ", round));
    std::string database = database_;
    const size_t a = random() % pages, b = random() % pages;
    if (round % 2 == 0) {
      for (size_t i = 0; i < 8192; ++i) database[a * 8192 + i] = static_cast<char>(random());
    } else {
      std::swap_ranges(database.begin() + a * 8192, database.begin() + (a + 1) * 8192,
                       database.begin() + b * 8192);
    }
    ExpectNothingWrong(database, "");
    if (HasFailure()) return;
  }
}

// Runs `body` in a child with a file system of its own mounted at `directory_`; false when this
// machine does not let us mount.
class MountTest : public CacheTest {
 protected:
  enum Result { kGood, kBad, kNotAllowed };

  template <typename Body>
  Result WithSmallDisk(Body&& body) {
    const pid_t child = fork();
    if (child == 0) {
      if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
        _exit(kNotAllowed);
      mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
      if (mount("tmpfs", directory_.path().c_str(), "tmpfs", 0, "size=1m,mode=0700") != 0) {
        _exit(kNotAllowed);
      }
      body();
      _exit(HasFailure() ? kBad : kGood);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? static_cast<Result>(WEXITSTATUS(status)) : kBad;
  }
};

TEST_F(MountTest, AFullDiskStopsStoringAndNothingElse) {
  const Result result = WithSmallDisk([&] {
    std::unique_ptr<Store> store = Open();
    std::vector<int> stored;
    bool full = false;
    for (int n = 0; n < 100 && !full; ++n) {
      absl::Status put = store->PutCode(MakeCode(n, 40'000));
      if (put.ok()) stored.push_back(n);
      full = !put.ok();
      EXPECT_TRUE(put.ok() || absl::IsResourceExhausted(put)) << put;
    }
    EXPECT_TRUE(full);
    EXPECT_GT(stored.size(), 3u);
    EXPECT_GT(store->counters().failed_writes, 0);
    for (int n : stored) EXPECT_TRUE(store->FindCode(MakeCode(n).key).has_value()) << n;
    store.reset();
    store = Open();
    for (int n : stored) EXPECT_TRUE(store->FindCode(MakeCode(n).key).has_value()) << n;
    EXPECT_EQ(store->counters().set_aside_files, 0);
  });
  if (result == kNotAllowed) GTEST_SKIP() << "needs the right to mount a small disk";
  EXPECT_EQ(result, kGood);
}

TEST_F(MountTest, AReadOnlyRemountIsRead) {
  const Result result = WithSmallDisk([&] {
    EXPECT_TRUE(Open()->PutCode(MakeCode(1)).ok());
    std::unique_ptr<Store> open_before = Open();
    EXPECT_TRUE(open_before->FindCode(MakeCode(1).key).has_value());
    open_before.reset();
    if (mount("none", directory_.path().c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) != 0) {
      _exit(kNotAllowed);
    }
    std::unique_ptr<Store> store = Open();
    EXPECT_TRUE(store->FindCode(MakeCode(1).key).has_value());
    EXPECT_TRUE(absl::IsUnavailable(store->PutCode(MakeCode(2))));
    EXPECT_EQ(log_.warnings().size(), 1u);
    StoreOptions elsewhere = options();
    elsewhere.path = JoinPath(directory_.path(), "none/cache.db");
    std::unique_ptr<Store> memory = Store::Open(elsewhere, log_.logger());
    EXPECT_FALSE(memory->persistent());
    EXPECT_TRUE(memory->PutCode(MakeCode(2)).ok());
  });
  if (result == kNotAllowed) GTEST_SKIP() << "needs the right to mount a small disk";
  EXPECT_EQ(result, kGood);
}

TEST_F(MountTest, ARemountBelowAnOpenCacheStopsStoringAndNothingElse) {
  const Result result = WithSmallDisk([&] {
    // The log is open for writing, which forbids the remount; a full disk is as good as one.
    std::unique_ptr<Store> store = Open();
    EXPECT_TRUE(store->PutCode(MakeCode(1)).ok());
    WriteQuickly(JoinPath(directory_.path(), "filler"), std::string(400'000, 'f'));
    int stored = 0;
    while (store->PutCode(MakeCode(100 + stored, 30'000)).ok()) ++stored;
    EXPECT_TRUE(store->FindCode(MakeCode(1).key).has_value());
    unlink(JoinPath(directory_.path(), "filler").c_str());
    EXPECT_TRUE(store->PutCode(MakeCode(2)).ok());  // and it recovers by itself
  });
  if (result == kNotAllowed) GTEST_SKIP() << "needs the right to mount a small disk";
  EXPECT_EQ(result, kGood);
}

}  // namespace
}  // namespace whet
