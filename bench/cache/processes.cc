#include "bench/cache/processes.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cache/host_flights.h"
#include "cache/layers.h"
#include "src/base/clock.h"
#include "src/base/files.h"
#include "src/base/log.h"
#include "src/base/parallel.h"

namespace whet {
namespace {

Logger Silent() {
  return Logger([](LogLevel, absl::string_view) {});
}

void Burn(int milliseconds) {
  timespec start, now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
  do {
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  } while ((now.tv_sec - start.tv_sec) * 1'000'000'000L + now.tv_nsec - start.tv_nsec <
           milliseconds * 1'000'000L);
}

}  // namespace

std::string BenchObject(int seed, size_t bytes) {
  std::mt19937_64 random(static_cast<uint64_t>(seed));
  std::string object(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) {
    object[i] = (i / 16) % 2 == 0 ? static_cast<char>(random()) : static_cast<char>(i / 64);
  }
  return object;
}

CodeEntry BenchEntry(int n, size_t object_bytes) {
  CodeEntry entry;
  entry.key = absl::StrCat("code key ", n, std::string(400, 'k'));
  entry.request = absl::StrCat("request ", n, std::string(300, 'r'));
  entry.object = BenchObject(n, object_bytes);
  entry.attributes = absl::StrCat("{\"entry\":\"kernel_", n, "\",\"registers\":168}");
  return entry;
}

ColdStart RunColdStart(const std::string& directory, int processes, int kernels, int compile_ms,
                       bool locks) {
  const std::string built = JoinPath(directory, "built");
  // What the compiler gives.
  std::vector<CodeEntry> entries;
  for (int n = 0; n < kernels; ++n) entries.push_back(BenchEntry(n, 100'000));
  std::vector<pid_t> children;
  const int64_t start = Clock::Real()->MonotonicNanoseconds();
  for (int p = 0; p < processes; ++p) {
    const pid_t child = fork();
    if (child == 0) {
      LayerOptions layers;
      layers.user.path = JoinPath(directory, "cache/cache.db");
      std::unique_ptr<LayeredCache> cache = LayeredCache::Open(layers, Silent());
      HostFlights flights({.directory = locks ? JoinPath(directory, "run") : ""}, Silent());
      bool right = cache->persistent();
      for (int i = 0; i < kernels; ++i) {
        // Each starts elsewhere, as ranks that meet different layers do.
        const CodeEntry& entry = entries[static_cast<size_t>((i + p) % kernels)];
        absl::Status status = flights.Run(
            entry.key, "a kernel", [&] { return cache->FindCodeShared(entry.key) != nullptr; },
            [&] {
              Burn(compile_ms);
              const int fd = open(built.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
              const ssize_t wrote = write(fd, "x", 1);
              close(fd);
              right = right && wrote == 1;
              return cache->PutCode(entry);
            });
        std::shared_ptr<const CodeEntry> found = cache->FindCodeShared(entry.key);
        right = right && status.ok() && found != nullptr && found->object == entry.object;
      }
      cache.reset();
      _exit(right ? 0 : 1);
    }
    children.push_back(child);
  }
  ColdStart result;
  result.right = true;
  for (pid_t child : children) {
    int status = 0;
    rusage used = {};
    wait4(child, &status, 0, &used);
    result.right = result.right && status == 0;
    for (const timeval& part : {used.ru_utime, used.ru_stime}) {
      result.processor_s +=
          static_cast<double>(part.tv_sec) + 1e-6 * static_cast<double>(part.tv_usec);
    }
  }
  result.wall_s = static_cast<double>(Clock::Real()->MonotonicNanoseconds() - start) * 1e-9;
  absl::StatusOr<std::string> marks = ReadFile(built, 1 << 20);
  result.compiles = marks.ok() ? static_cast<int>(marks->size()) : 0;
  return result;
}

double ParallelCompileSeconds(int kernels, int compile_ms) {
  const int64_t start = Clock::Real()->MonotonicNanoseconds();
  ParallelFor(static_cast<size_t>(kernels), AvailableProcessors(),
              [&](size_t) { Burn(compile_ms); });
  return static_cast<double>(Clock::Real()->MonotonicNanoseconds() - start) * 1e-9;
}

KillCycles RunKillCycles(const std::string& directory, int cycles) {
  constexpr int kWriters = 2, kKeys = 8, kPutsPerCycle = 100'000;
  StoreOptions options;
  options.path = JoinPath(directory, "killed/cache.db");
  options.busy_timeout = absl::Seconds(60);
  KillCycles result;
  result.cycles = cycles;
  std::mt19937_64 random(1);
  std::map<int, int> acknowledged;
  auto entry_of = [](int key, int version) {
    CodeEntry entry = BenchEntry(key, 0);
    entry.object = BenchObject(version, 12'000);
    entry.attributes = absl::StrCat(version);
    return entry;
  };
  for (int cycle = 0; cycle < cycles; ++cycle) {
    struct Writer {
      pid_t pid;
      int fd;
    };
    std::vector<Writer> writers;
    for (int w = 0; w < kWriters; ++w) {
      int pipe_fds[2];
      if (pipe(pipe_fds) != 0) return result;
      const pid_t child = fork();
      if (child == 0) {
        for (const Writer& writer : writers) close(writer.fd);
        std::unique_ptr<Store> store = Store::Open(options, Silent());
        for (int i = 0; i < kPutsPerCycle; ++i) {
          // Later cycles must have higher versions, however far a writer got before it was killed.
          const int record[2] = {w * kKeys + i % kKeys, cycle * kPutsPerCycle + i};
          if (!store->PutCode(entry_of(record[0], record[1])).ok() || !store->persistent())
            _exit(1);
          if (write(pipe_fds[1], record, sizeof record) != sizeof record) _exit(1);
        }
        _exit(1);
      }
      close(pipe_fds[1]);
      writers.push_back({child, pipe_fds[0]});
    }
    for (const Writer& writer : writers) {
      int record[2];
      for (uint64_t left = random() % 5; left > 0; --left) {
        if (read(writer.fd, record, sizeof record) != sizeof record) break;
        acknowledged[record[0]] = record[1];
        ++result.acknowledged;
      }
      kill(writer.pid, SIGKILL);
      while (read(writer.fd, record, sizeof record) == sizeof record) {
        acknowledged[record[0]] = record[1];
        ++result.acknowledged;
      }
      close(writer.fd);
      int status = 0;
      waitpid(writer.pid, &status, 0);
      if (!WIFSIGNALED(status)) ++result.failures;
    }
    std::unique_ptr<Store> store = Store::Open(options, Silent());
    if (!store->persistent()) ++result.failures;
    for (const auto& [key, version] : acknowledged) {
      std::optional<CodeEntry> found = store->FindCode(BenchEntry(key, 0).key);
      if (!found.has_value() || std::stoi(found->attributes) < version) {
        ++result.lost;
      } else if (found->object != entry_of(key, std::stoi(found->attributes)).object) {
        ++result.failures;
      }
    }
    const StoreCounters counters = store->counters();
    result.failures += static_cast<int>(counters.damaged_entries + counters.set_aside_files);
  }
  return result;
}

}  // namespace whet
