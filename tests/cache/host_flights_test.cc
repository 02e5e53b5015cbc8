#include "cache/host_flights.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "cache/layers.h"
#include "src/base/clock.h"
#include "tests/cache/cache_fixture.h"

namespace whet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class HostFlightsTest : public CacheTest {
 protected:
  std::string runtime() const { return JoinPath(directory_.path(), "run"); }

  // A child that holds the lock of `key` until the pipe that is returned is closed, or until it is
  // killed.
  struct Holder {
    pid_t pid = -1;
    int release_fd = -1;
    void Release() {
      close(release_fd);
      int status = 0;
      waitpid(pid, &status, 0);
    }
  };
  Holder Hold(const std::string& key) {
    int ready[2], release[2];
    EXPECT_EQ(pipe(ready), 0);
    EXPECT_EQ(pipe(release), 0);
    const pid_t child = fork();
    if (child == 0) {
      close(release[1]);
      HostFlights flights({.directory = runtime()}, log_.logger());
      flights
          .Run(
              key, "held", [] { return false; },
              [&] {
                char c = 'x';
                if (write(ready[1], &c, 1) != 1) _exit(1);
                while (read(release[0], &c, 1) > 0) {
                }
                return absl::OkStatus();
              })
          .IgnoreError();
      _exit(0);
    }
    close(ready[1]);
    close(release[0]);
    char c;
    EXPECT_EQ(read(ready[0], &c, 1), 1);
    close(ready[0]);
    return {child, release[1]};
  }
};

TEST_F(HostFlightsTest, WhatIsThereIsNotMadeAndWhatIsNotIsMadeOnce) {
  HostFlights flights({.directory = runtime()}, log_.logger());
  EXPECT_TRUE(flights.has_locks());
  int made = 0;
  EXPECT_TRUE(flights
                  .Run(
                      "k", "k", [] { return true; }, [&] { return ++made, absl::OkStatus(); })
                  .ok());
  EXPECT_EQ(made, 0);
  EXPECT_TRUE(flights
                  .Run(
                      "k", "k", [] { return false; }, [&] { return ++made, absl::OkStatus(); })
                  .ok());
  EXPECT_EQ(made, 1);
  EXPECT_TRUE(absl::IsAborted(flights.Run(
      "k", "k", [] { return false; }, [] { return absl::AbortedError("no"); })));
  EXPECT_EQ(flights.counters().made, 2);
  EXPECT_EQ(flights.counters().without_lock, 0);
  EXPECT_THAT(*ListDirectory(runtime()), ElementsAre("flights.lock"));
}

// Scenarios A05, A17, A18, A20: a cold cache and many processes; each kernel is built by one.
TEST(Scenario, A05_A17_A18_A20_OfManyProcessesOneBuildsEachKernel) {
  TemporaryDirectory directory = *TemporaryDirectory::Create("whet-flights");
  constexpr int kProcesses = 16, kKernels = 5;
  const std::string built = JoinPath(directory.path(), "built");
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      LogCapture log;
      LayerOptions layers;
      layers.user.path = JoinPath(directory.path(), "cache/cache.db");
      layers.user.busy_timeout = absl::Seconds(60);
      std::unique_ptr<LayeredCache> cache = LayeredCache::Open(layers, log.logger());
      HostFlights flights({.directory = JoinPath(directory.path(), "run")}, log.logger());
      bool good = cache->persistent();
      for (int i = 0; i < kKernels; ++i) {
        const int n = (i + p) % kKernels;
        const std::string key = MakeCode(n).key;
        absl::Status status = flights.Run(
            key, "a kernel", [&] { return cache->FindCodeShared(key) != nullptr; },
            [&] {
              const int fd = open(built.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
              const char name = static_cast<char>('0' + n);
              good = good && write(fd, &name, 1) == 1;
              close(fd);
              return cache->PutCode(MakeCode(n, 30'000));
            });
        good =
            good && status.ok() && cache->FindCodeShared(key)->object == MakeCode(n, 30'000).object;
      }
      cache.reset();
      _exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  std::string names = *ReadFile(built, 1000);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, "01234");
}

// Scenarios A24, A25: whoever is killed leaves nothing behind that anyone would wait for.
TEST_F(HostFlightsTest, A24_A25_AKilledHolderStopsNobody) {
  Holder holder = Hold("k");
  kill(holder.pid, SIGKILL);
  holder.Release();
  HostFlights flights({.directory = runtime(), .max_wait = absl::InfiniteDuration()},
                      log_.logger());
  bool made = false;
  EXPECT_TRUE(flights
                  .Run(
                      "k", "k", [] { return false; }, [&] { return made = true, absl::OkStatus(); })
                  .ok());
  EXPECT_TRUE(made);
  EXPECT_EQ(flights.counters().waits, 0);
}

TEST_F(HostFlightsTest, AWaitIsReportedAndBounded) {
  Holder holder = Hold("k");
  ManualClock clock(absl::UnixEpoch());
  HostFlights flights({.directory = runtime(),
                       .max_wait = absl::Minutes(10),
                       .clock = &clock,
                       .pause = [&](absl::Duration) { clock.Advance(absl::Seconds(1)); }},
                      log_.logger());
  bool made = false;
  EXPECT_TRUE(flights
                  .Run(
                      "k", "rms_norm for sm_90a", [] { return false; },
                      [&] { return made = true, absl::OkStatus(); })
                  .ok());
  EXPECT_TRUE(made) << "built privately after the wait";
  EXPECT_THAT(log_.warnings(), ElementsAre(HasSubstr("rms_norm for sm_90a")));
  EXPECT_EQ(flights.counters().without_lock, 1);
  EXPECT_EQ(flights.counters().wait_ns, 601'000'000'000);
  // Another key is not held up.
  EXPECT_TRUE(flights
                  .Run(
                      "other", "", [] { return false; }, [] { return absl::OkStatus(); })
                  .ok());
  EXPECT_EQ(flights.counters().without_lock, 1);
  holder.Release();
}

TEST_F(HostFlightsTest, WaitersFindWhatTheHolderMade) {
  Holder holder = Hold("k");
  std::atomic<bool> there{false};
  std::vector<CacheEvent> events;
  HostFlights flights({.directory = runtime(),
                       .pause =
                           [&](absl::Duration) {
                             if (!there.exchange(true)) holder.Release();
                           },
                       .on_event = [&](const CacheEvent& event) { events.push_back(event); }},
                      log_.logger());
  EXPECT_TRUE(flights
                  .Run(
                      "k", "k", [&] { return there.load(); },
                      [] { return absl::InternalError("it was made by the other"); })
                  .ok());
  EXPECT_EQ(flights.counters().made_by_others, 1);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, CacheEventKind::kLockWait);
}

TEST_F(HostFlightsTest, WhenTheHolderFailsAWaiterTakesOver) {
  Holder holder = Hold("k");
  bool released = false, made = false;
  HostFlights flights({.directory = runtime(),
                       .pause =
                           [&](absl::Duration) {
                             if (!std::exchange(released, true)) holder.Release();
                           }},
                      log_.logger());
  EXPECT_TRUE(flights
                  .Run(
                      "k", "k", [] { return false; }, [&] { return made = true, absl::OkStatus(); })
                  .ok());
  EXPECT_TRUE(made);
  EXPECT_EQ(flights.counters().without_lock, 0);
}

// Scenarios A12, A16: a lock that cannot be had is never an error.
TEST_F(HostFlightsTest, A12_A16_WithoutLocksEveryoneBuilds) {
  const std::string file = JoinPath(directory_.path(), "file");
  ASSERT_TRUE(WriteFileAtomically(file, "x").ok());
  const std::string open_to_all = JoinPath(directory_.path(), "open");
  ASSERT_TRUE(MakeDirectories(open_to_all).ok());
  ASSERT_EQ(chmod(open_to_all.c_str(), 0777), 0);
  const std::string trap = JoinPath(directory_.path(), "trap");
  ASSERT_TRUE(MakeDirectories(trap).ok());
  ASSERT_EQ(symlink(file.c_str(), (trap + "/flights.lock").c_str()), 0);
  for (const std::string& directory : {std::string(), file, file + "/below", open_to_all, trap}) {
    SCOPED_TRACE(directory);
    HostFlights flights({.directory = directory}, log_.logger());
    bool made = false;
    EXPECT_TRUE(
        flights
            .Run(
                "k", "k", [] { return false; }, [&] { return made = true, absl::OkStatus(); })
            .ok());
    EXPECT_TRUE(made);
    EXPECT_EQ(flights.counters().without_lock, 1);
  }
  EXPECT_EQ(*ReadFile(file, 10), "x");
  EXPECT_THAT(log_.warnings(), IsEmpty());
}

TEST_F(HostFlightsTest, ThreadsOfOneProcessExcludeEachOtherToo) {
  HostFlights flights({.directory = runtime()}, log_.logger());
  std::atomic<int> made{0}, inside{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&] {
      EXPECT_TRUE(flights
                      .Run(
                          "k", "k", [&] { return made > 0; },
                          [&] {
                            EXPECT_EQ(++inside, 1);
                            ++made;
                            --inside;
                            return absl::OkStatus();
                          })
                      .ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(made, 1);
}

TEST_F(HostFlightsTest, NoMoreAreMadeAtOnceThanThereArePlaces) {
  constexpr int kPlaces = 2;
  HostFlights flights({.directory = runtime(), .builds_at_once = kPlaces}, log_.logger());
  std::atomic<int> made{0}, inside{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      EXPECT_TRUE(flights
                      .Run(
                          absl::StrCat("key ", t), "k", [] { return false; },
                          [&] {
                            EXPECT_LE(++inside, kPlaces);
                            std::this_thread::yield();
                            ++made;
                            --inside;
                            return absl::OkStatus();
                          })
                      .ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(made, 6);
}

TEST_F(HostFlightsTest, APlaceIsWaitedForAndNotForEver) {
  Holder holder = Hold("k");
  ManualClock clock(absl::UnixEpoch());
  int pauses = 0;
  HostFlights flights({.directory = runtime(),
                       .builds_at_once = 1,
                       .clock = &clock,
                       .pause = [&](absl::Duration) { ++pauses, clock.Advance(absl::Seconds(1)); }},
                      log_.logger());
  const auto make = [&](const char* key) {
    bool made = false;
    EXPECT_TRUE(
        flights
            .Run(
                key, "", [] { return false; }, [&] { return made = true, absl::OkStatus(); })
            .ok());
    return made;
  };
  // The other process has the only place, and keeps it.
  EXPECT_TRUE(make("another key"));
  EXPECT_EQ(pauses, 10);
  EXPECT_EQ(flights.counters().without_lock, 0);
  // Killed, it gives the place back.
  kill(holder.pid, SIGKILL);
  holder.Release();
  EXPECT_TRUE(make("another key"));
  EXPECT_EQ(pauses, 10);
}

TEST(HostFlightsDirectoryTest, IsPerUser) {
  EXPECT_EQ(HostFlights::DefaultDirectory("/run/user/1000"), "/run/user/1000/whet");
  EXPECT_EQ(HostFlights::DefaultDirectory(""), absl::StrCat("/tmp/whet-", geteuid()));
}

}  // namespace
}  // namespace whet
