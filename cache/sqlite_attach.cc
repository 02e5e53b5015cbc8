// What the store stands on: its file, or memory; a fork and a damaged file are noticed here.
#include <unistd.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cache/sqlite_store.h"

namespace whet {

void SqliteStore::Attach() {
  if (options_.path.empty()) {
    AttachMemory("");
    return;
  }
  // Runs inside a use of the connection, so under mutex_; the analysis cannot see that.
  auto count_wait = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { ++counters_.lock_waits; };
  const CacheFileOptions options = {.store = options_, .on_wait = std::move(count_wait)};
  absl::StatusOr<CacheFile> file = OpenCacheFile(options, log_);
  if (!file.ok()) {
    AttachMemory(file.status().message());
    return;
  }
  counters_.set_aside_files += file->set_aside_files;
  file_ = *std::move(file);
  persistent_ = true;
}

void SqliteStore::AttachMemory(absl::string_view why) {
  persistent_ = false;
  if (!why.empty()) {
    Emit({.kind = CacheEventKind::kFallback, .detail = std::string(why)});
    log_.Warning(absl::StrCat("the cache ", options_.path, " is not used (", why,
                              "); kernels are kept in memory and made again by the next process"));
  }
  absl::StatusOr<CacheFile> file = OpenMemoryCache({.store = options_, .on_wait = nullptr});
  // Without even that memory every lookup misses and every put reports so.
  file_ = file.ok() ? *std::move(file) : CacheFile();
}

bool SqliteStore::Ready() {
  if (getpid() != pid_) {
    pid_ = getpid();
    if (persistent_) {
      // SQLite's locks belong to the parent; even closing would act on its files. What the
      // connection stands on is left open with it.
      file_.db->Abandon();
      static_cast<void>(file_.db.release());
      static_cast<void>(file_.vfs.release());
      AttachMemory("this process was forked after the cache was opened; open it after the fork");
    }
  }
  return file_.db != nullptr;
}

void SqliteStore::Recover(const absl::Status& failure) {
  if (!absl::IsDataLoss(failure) || !persistent_ || file_.read_only) return;
  // Opening anew looks at the file again, but a damaged inner page would pass that: so the damage
  // that was met is what decides.
  CacheFile old = std::exchange(file_, CacheFile());
  old.db.reset();
  old.vfs.reset();
  auto lock = old.directory->Lock(/*exclusive=*/true, options_.busy_timeout);
  absl::Status failed = lock.status();
  // Not in place any more: another process has done it.
  if (lock.ok() && old.StillInPlace()) {
    absl::StatusOr<std::string> aside = old.directory->SetAside(old.name);
    failed = aside.status();
    if (aside.ok()) {
      ++counters_.set_aside_files;
      Emit({.kind = CacheEventKind::kSetAside, .detail = *aside});
      log_.Warning(absl::StrCat("the cache ", options_.path, " was damaged (", failure.message(),
                                "); it was set aside as ", *aside, " and a new one is begun"));
    }
  }
  if (!failed.ok()) {
    AttachMemory(absl::StrCat(failure.message(), "; ", failed.message()));
    return;
  }
  lock = DirectoryLock();
  Attach();
}

}  // namespace whet
