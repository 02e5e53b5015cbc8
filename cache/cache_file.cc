#include "cache/cache_file.h"

#include <sqlite3.h>
#include <zstd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "cache/entry_codec.h"
#include "cache/schema.h"
#include "src/base/files.h"

namespace whet {
namespace {

struct SplitPath {
  std::string directory;
  std::string name;
};

SplitPath Split(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {".", path};
  return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

DatabaseOptions ConnectionOptions(const CacheFileOptions& options) {
  return {.busy_timeout = options.store.busy_timeout,
          .value_limit_bytes =
              static_cast<int64_t>(ZSTD_compressBound(options.store.object_limit_bytes)) +
              kDocumentLimitBytes + 4 * kRecordLimitBytes,
          .on_wait = options.on_wait};
}

// What came of one try under one lock.
enum class Outcome { kOpen, kNeedsExclusive, kDamaged };

class Opener {
 public:
  Opener(const CacheFileOptions& options, const Logger& log) : options_(options), log_(log) {}

  absl::StatusOr<CacheFile> Run() {
    const SplitPath split = Split(options_.store.path);
    file_.name = split.name;
    file_.read_only = options_.store.read_only;
    auto directory = PinnedDirectory::Open(split.directory, /*create=*/!file_.read_only);
    if (!directory.ok()) return directory.status();
    file_.directory = *std::move(directory);
    bool exclusive = false;
    // Each turn either ends or has a new reason; the bound is for files that others keep breaking.
    for (int attempt = 0; attempt < 6; ++attempt) {
      auto lock = file_.directory->Lock(exclusive, options_.store.busy_timeout);
      if (!lock.ok()) return lock.status();
      absl::StatusOr<Outcome> outcome = Try(exclusive);
      if (!outcome.ok()) return outcome.status();
      if (*outcome == Outcome::kOpen) return std::move(file_);
      Close();
      if (*outcome == Outcome::kDamaged && exclusive) {
        if (absl::Status aside = SetAside(); !aside.ok()) return aside;
      }
      exclusive = true;
    }
    return absl::UnavailableError(
        absl::StrCat("cannot open ", options_.store.path, ": it is damaged again and again"));
  }

 private:
  absl::StatusOr<Outcome> Try(bool exclusive) {
    absl::StatusOr<FileIdentity> identity = file_.directory->CheckFile(file_.name);
    if (absl::IsNotFound(identity.status())) {
      if (file_.read_only) return identity.status();
      if (!exclusive) return Outcome::kNeedsExclusive;
      if (absl::Status made = file_.directory->CreateEmptyFile(file_.name); !made.ok()) return made;
      if (absl::Status synced = file_.directory->Sync(); !synced.ok()) return synced;
      identity = file_.directory->CheckFile(file_.name);
    }
    if (!identity.ok()) return identity.status();
    for (const char* const suffix : {"-journal", "-wal", "-shm"}) {
      absl::Status beside = file_.directory->CheckFile(file_.name + suffix).status();
      if (!beside.ok() && !absl::IsNotFound(beside)) return beside;
    }
    file_.identity = *identity;
    absl::Status connected = Connect();
    if (connected.ok()) {
      absl::StatusOr<SchemaState> state = InspectSchema(*file_.db);
      connected = state.status();
      if (state.ok() && *state == SchemaState::kEmpty && HasBytes()) {
        // A few bytes that are no database look empty to SQLite; they are someone's all the same.
        state = SchemaState::kForeign;
      }
      if (state.ok() && *state == SchemaState::kForeign) {
        connected = absl::DataLossError("it is no cache of this library");
      } else if (state.ok() && *state == SchemaState::kEmpty) {
        if (file_.read_only)
          return absl::NotFoundError(absl::StrCat(options_.store.path, " is empty"));
        if (!exclusive) return Outcome::kNeedsExclusive;
        connected = CreateSchema(*file_.db);
      }
      if (connected.ok()) connected = Configure();
    }
    if (connected.ok()) return Outcome::kOpen;
    if (!absl::IsDataLoss(connected)) return connected;
    damage_ = std::string(connected.message());
    if (file_.read_only) {
      return absl::DataLossError(absl::StrCat(options_.store.path, " is damaged: ", damage_));
    }
    return Outcome::kDamaged;
  }

  absl::Status Connect() {
    file_.vfs = std::make_unique<PinnedVfs>(options_.store.sqlite_vfs);
    DatabaseOptions options = ConnectionOptions(options_);
    options.name = file_.directory->PathOf(file_.name);
    options.flags = file_.read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE;
    options.vfs = file_.vfs->name();
    absl::StatusOr<std::unique_ptr<Database>> db = Database::Open(std::move(options));
    if (!db.ok()) return db.status();
    file_.db = *std::move(db);
    return file_.db->Execute(sql::kConfigureConnection);
  }

  // Asked again after the connection has rolled back what a killed creation left.
  bool HasBytes() const {
    absl::StatusOr<FileIdentity> now = file_.directory->CheckFile(file_.name);
    return now.ok() && now->size_bytes > 0;
  }

  absl::Status Configure() {
    if (file_.read_only) return absl::OkStatus();
    return file_.db->Execute(sql::kConfigureWriter);
  }

  void Close() {
    file_.db.reset();
    file_.vfs.reset();
  }

  absl::Status SetAside() {
    // Another process may have set it aside and begun a new one while no lock was held.
    absl::StatusOr<FileIdentity> now = file_.directory->CheckFile(file_.name);
    if (!now.ok() || !now->SameFile(file_.identity)) return absl::OkStatus();
    absl::StatusOr<std::string> aside = file_.directory->SetAside(file_.name);
    if (!aside.ok()) return aside.status();
    ++file_.set_aside_files;
    log_.Warning(absl::StrCat("the cache ", options_.store.path, " was unusable (", damage_,
                              "); it was set aside as ", *aside, " and a new one is begun"));
    return absl::OkStatus();
  }

  const CacheFileOptions& options_;
  const Logger& log_;
  CacheFile file_;
  std::string damage_;
};

}  // namespace

bool CacheFile::StillInPlace() const {
  if (directory == nullptr) return true;
  absl::StatusOr<FileIdentity> now = directory->CheckFile(name);
  return now.ok() && now->SameFile(identity);
}

absl::StatusOr<CacheFile> OpenCacheFile(const CacheFileOptions& options, const Logger& log) {
  return Opener(options, log).Run();
}

absl::StatusOr<CacheFile> OpenMemoryCache(const CacheFileOptions& options) {
  CacheFile file;
  DatabaseOptions connection = ConnectionOptions(options);
  connection.name = ":memory:";
  connection.flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_MEMORY;
  absl::StatusOr<std::unique_ptr<Database>> db = Database::Open(std::move(connection));
  if (!db.ok()) return db.status();
  file.db = *std::move(db);
  if (absl::Status made = CreateSchema(*file.db); !made.ok()) return made;
  return file;
}

}  // namespace whet
