#include "cache/host_flights.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "cache/file_system.h"

namespace whet {
namespace {

constexpr char kLockFile[] = "flights.lock";
// Where the places' bytes begin, behind all those of keys.
constexpr int64_t kPlaces = int64_t{1} << 62;
// Doubled from one look to the next: with 64 processes waiting, looking every 1 to 20 ms took a quarter of
// the processor time that was not spent compiling (bench/cache, cold start). A compile takes seconds.
constexpr absl::Duration kShortestPause = absl::Milliseconds(2);
constexpr absl::Duration kLongestPause = absl::Milliseconds(32);

enum class LockResult { kHeld, kBusy, kImpossible };

// Open file description locks: they belong to the descriptor, so threads exclude each other too,
// and closing another descriptor of the file releases nothing.
LockResult TryLock(int fd, int64_t offset, short type) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = offset;
  lock.l_len = 1;
  if (fcntl(fd, F_OFD_SETLK, &lock) == 0) return LockResult::kHeld;
  return errno == EAGAIN || errno == EACCES || errno == EINTR ? LockResult::kBusy
                                                              : LockResult::kImpossible;
}

void Sleep(absl::Duration duration) {
  const timespec pause = absl::ToTimespec(duration);
  nanosleep(&pause, nullptr);
}

}  // namespace

HostFlights::HostFlights(const HostFlightOptions& options, const Logger& log)
    : options_(options), log_(log) {
  if (options_.directory.empty()) return;
  auto directory = PinnedDirectory::Open(options_.directory, /*create=*/true);
  if (!directory.ok()) {
    log_.Info(absl::StrCat("kernels are built without waiting for other processes: ",
                           directory.status().message()));
    return;
  }
  if (DetectFileSystem(options_.directory).kind == FileSystemKind::kNetwork) {
    log_.Info(absl::StrCat("kernels are built without waiting for other processes: ",
                           options_.directory, " is on a network file system"));
    return;
  }
  directory_ = *std::move(directory);
}

HostFlights::~HostFlights() = default;

std::string HostFlights::DefaultDirectory(absl::string_view xdg_runtime_dir) {
  if (!xdg_runtime_dir.empty()) return absl::StrCat(xdg_runtime_dir, "/whet");
  return absl::StrCat("/tmp/whet-", geteuid());
}

int HostFlights::OpenLockFile() const {
  if (directory_ == nullptr) return -1;
  const int fd = openat(directory_->fd(), kLockFile,
                        O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
  struct stat info;
  if (fd >= 0 && (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != geteuid())) {
    close(fd);
    return -1;
  }
  return fd;
}

void HostFlights::Pause(absl::Duration duration) const {
  if (options_.pause) {
    options_.pause(duration);
  } else {
    Sleep(duration);
  }
}

void HostFlights::AwaitPlace(int fd) const {
  const int64_t places =
      options_.builds_at_once > 0 ? options_.builds_at_once : sysconf(_SC_NPROCESSORS_ONLN) + 1;
  const int64_t started_ns = options_.clock->MonotonicNanoseconds();
  absl::Duration pause = kShortestPause;
  while (true) {
    for (int64_t place = 0; place < places; ++place) {
      if (TryLock(fd, kPlaces + place, F_WRLCK) != LockResult::kBusy) return;
    }
    if (options_.clock->MonotonicNanoseconds() - started_ns >=
        absl::ToInt64Nanoseconds(options_.place_patience)) {
      return;
    }
    Pause(pause);
    pause = std::min(pause * 2, kLongestPause);
  }
}

absl::Status HostFlights::Run(absl::string_view key, absl::string_view label,
                              const std::function<bool()>& find,
                              const std::function<absl::Status()>& make) {
  if (find()) return absl::OkStatus();
  const int fd = OpenLockFile();
  absl::Cleanup close_fd = [fd] {
    if (fd >= 0) close(fd);  // and so gives up whatever is held
  };
  // Two keys on one byte only wait for each other in vain.
  const int64_t offset = static_cast<int64_t>(HashBytes(key).low >> 2);
  const int64_t started_ns = options_.clock->MonotonicNanoseconds();
  const int64_t limit_ns = absl::ToInt64Nanoseconds(options_.max_wait);
  int64_t waited_ns = 0;
  bool waited = false, reported = false, held = false, possible = fd >= 0;
  absl::Duration pause = kShortestPause;
  while (possible && !held && waited_ns <= limit_ns) {
    LockResult result = TryLock(fd, offset, F_WRLCK);
    if (result == LockResult::kHeld) {
      held = true;
      break;
    }
    if (!std::exchange(waited, true)) ++waits_;
    // Shared: when the builder is done all waiters go on at once.
    while (result == LockResult::kBusy && waited_ns <= limit_ns) {
      Pause(pause);
      pause = std::min(pause * 2, kLongestPause);
      waited_ns = options_.clock->MonotonicNanoseconds() - started_ns;
      if (!reported && waited_ns >= absl::ToInt64Nanoseconds(options_.report_after)) {
        reported = true;
        log_.Warning(absl::StrCat("waiting for another process that builds ", label, "; after ",
                                  absl::FormatDuration(options_.max_wait),
                                  " it is built here as well"));
      }
      result = TryLock(fd, offset, F_RDLCK);
    }
    if (result == LockResult::kHeld) {
      TryLock(fd, offset, F_UNLCK);
      if (find()) {
        ++made_by_others_;
        wait_ns_ += waited_ns;
        if (options_.on_event) {
          options_.on_event({.kind = CacheEventKind::kLockWait,
                             .key_hash = HashBytes(key).ToHex(),
                             .detail = std::string(label),
                             .nanoseconds = waited_ns});
        }
        return absl::OkStatus();
      }
    }
    possible = result != LockResult::kImpossible;
  }
  wait_ns_ += waited_ns;
  if (!held) ++without_lock_;
  // Whoever held it before may have published meanwhile.
  if (held && find()) {
    ++made_by_others_;
    return absl::OkStatus();
  }
  ++made_;
  if (held) AwaitPlace(fd);
  return make();
}

HostFlightCounters HostFlights::counters() const {
  return {.made = made_,
          .made_by_others = made_by_others_,
          .waits = waits_,
          .wait_ns = wait_ns_,
          .without_lock = without_lock_};
}

}  // namespace whet
