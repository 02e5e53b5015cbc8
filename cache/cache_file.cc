#include "cache/cache_file.h"

#include <sqlite3.h>
#include <unistd.h>
#include <zstd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
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

// For SQLite's URI form: everything but the plainest characters as %xx.
std::string UriPath(const std::string& path) {
  std::string uri = "file:";
  for (const unsigned char c : path) {
    if (isalnum(c) != 0 || c == '/' || c == '.' || c == '-' || c == '_') {
      uri.push_back(static_cast<char>(c));
    } else {
      absl::StrAppendFormat(&uri, "%%%02x", c);
    }
  }
  return uri;
}

// What came of one try under one lock.
enum class Outcome { kOpen, kNeedsExclusive, kDamaged };

class Opener {
 public:
  Opener(const CacheFileOptions& options, bool read_only, const Logger& log)
      : options_(options), log_(log) {
    file_.read_only = read_only;
  }

  absl::StatusOr<CacheFile> Run() {
    const SplitPath split = Split(options_.store.path);
    file_.name = split.name;
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
    file_.identity = *identity;
    bool pending = false;  // SQLite has something to replay or roll back
    for (const char* const suffix : {"-journal", "-wal", "-shm"}) {
      absl::StatusOr<FileIdentity> beside = file_.directory->CheckFile(file_.name + suffix);
      if (!beside.ok() && !absl::IsNotFound(beside.status())) return beside.status();
      pending = pending || (beside.ok() && beside->size_bytes > 0);
    }
    absl::StatusOr<Outcome> outcome = Connect(exclusive, /*immutable=*/false);
    if (absl::IsFailedPrecondition(outcome.status()) && file_.read_only && !pending) {
      // On read-only media SQLite cannot make its shared memory; with nothing pending it needs none.
      Close();
      outcome = Connect(exclusive, /*immutable=*/true);
    }
    if (!absl::IsDataLoss(outcome.status())) return outcome;
    damage_ = std::string(outcome.status().message());
    if (file_.read_only) {
      return absl::DataLossError(absl::StrCat(options_.store.path, " is damaged: ", damage_));
    }
    return Outcome::kDamaged;
  }

  absl::StatusOr<Outcome> Connect(bool exclusive, bool immutable) {
    file_.vfs = std::make_unique<PinnedVfs>(options_.store.sqlite_vfs);
    DatabaseOptions options = ConnectionOptions(options_);
    options.name = file_.directory->PathOf(file_.name);
    if (immutable) options.name = UriPath(options.name) + "?immutable=1";
    options.flags = (file_.read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE) |
                    (immutable ? SQLITE_OPEN_URI : 0);
    options.vfs = file_.vfs->name();
    absl::StatusOr<std::unique_ptr<Database>> db = Database::Open(std::move(options));
    if (!db.ok()) return db.status();
    file_.db = *std::move(db);
    if (absl::Status set = file_.db->Execute(sql::kConfigureConnection); !set.ok()) return set;
    absl::StatusOr<SchemaState> state = InspectSchema(*file_.db, kApplicationId);
    if (!state.ok()) return state.status();
    return Accept(*state, exclusive);
  }

  absl::StatusOr<Outcome> Accept(const SchemaState& state, bool exclusive) {
    file_.version = state.version;
    switch (state.kind) {
      case SchemaState::kEmpty:
        // A few bytes that are no database look empty to SQLite; they are someone's all the same. A
        // database of one page without content is what a creation leaves that was killed early.
        if (HasBytes() && !file_.db->Integer(sql::kFileBytes).value_or(0)) {
          return absl::DataLossError("it is no cache of this library");
        }
        if (file_.read_only) {
          return absl::NotFoundError(absl::StrCat(options_.store.path, " is empty"));
        }
        if (!exclusive) return Outcome::kNeedsExclusive;
        if (absl::Status made = CreateSchema(*file_.db); !made.ok()) return made;
        file_.version = kSchemaVersion;
        break;
      case SchemaState::kForeign:
        return absl::DataLossError("it is no cache of this library");
      case SchemaState::kOlder:
        if (file_.read_only) break;
        if (!exclusive) return Outcome::kNeedsExclusive;
        if (absl::Status migrated = MigrateSchema(*file_.db); !migrated.ok()) return migrated;
        file_.version = kSchemaVersion;
        break;
      case SchemaState::kReadable:
        if (!file_.read_only) {
          return absl::FailedPreconditionError(absl::StrCat(
              "a newer library wrote it (schema ", state.version, ") and lets this one read only"));
        }
        break;
      case SchemaState::kUnreadable:
        return absl::FailedPreconditionError(absl::StrCat(
            "a newer library wrote it (schema ", state.version, ") and it is left untouched"));
      case SchemaState::kWritable:
        break;
    }
    if (!file_.read_only) {
      // SQLite reads a write version it does not know (a flipped bit) as "read-only", for ever.
      if (sqlite3_db_readonly(file_.db->handle(), "main") == 1 && file_.version == kSchemaVersion &&
          file_.directory->MayWriteFile(file_.name)) {
        return absl::DataLossError("its header forbids writing, which none of ours does");
      }
      if (absl::Status set = file_.db->Execute(sql::kConfigureWriter); !set.ok()) return set;
      file_.in_use_fd = file_.directory->MarkInUse(file_.name + ".in-use");
    }
    return Outcome::kOpen;
  }

  // Asked again after the connection has rolled back what a killed creation left.
  bool HasBytes() const {
    absl::StatusOr<FileIdentity> now = file_.directory->CheckFile(file_.name);
    return now.ok() && now->size_bytes > 0;
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
    if (options_.store.on_event) {
      options_.store.on_event(
          {.kind = CacheEventKind::kSetAside, .layer = "user", .detail = *aside});
    }
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

CacheFile::CacheFile(CacheFile&& other) noexcept { *this = std::move(other); }

CacheFile& CacheFile::operator=(CacheFile&& other) noexcept {
  // What was open is closed by the destructor of `other`, in its order.
  std::swap(directory, other.directory);
  std::swap(vfs, other.vfs);
  std::swap(db, other.db);
  std::swap(name, other.name);
  std::swap(identity, other.identity);
  std::swap(read_only, other.read_only);
  std::swap(version, other.version);
  std::swap(set_aside_files, other.set_aside_files);
  std::swap(in_use_fd, other.in_use_fd);
  return *this;
}

CacheFile::~CacheFile() {
  db.reset();
  vfs.reset();
  if (in_use_fd >= 0) close(in_use_fd);
}

bool CacheFile::StillInPlace() const {
  if (directory == nullptr) return true;
  absl::StatusOr<FileIdentity> now = directory->CheckFile(name);
  return now.ok() && now->SameFile(identity);
}

absl::StatusOr<CacheFile> OpenCacheFile(const CacheFileOptions& options, const Logger& log) {
  absl::StatusOr<CacheFile> file = Opener(options, options.store.read_only, log).Run();
  // Waiting twice for the same lock would double the bound on blocking.
  if (file.ok() || options.store.read_only || absl::IsUnavailable(file.status())) return file;
  absl::StatusOr<CacheFile> readable = Opener(options, /*read_only=*/true, log).Run();
  if (!readable.ok()) return file.status();
  log.Warning(absl::StrCat("the cache ", options.store.path, " can be read but not written (",
                           file.status().message(), "); nothing new is kept"));
  return readable;
}

absl::StatusOr<CacheFile> OpenMemoryCache(const CacheFileOptions& options) {
  CacheFile file;
  DatabaseOptions connection = ConnectionOptions(options);
  connection.name = ":memory:";
  connection.flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_MEMORY;
  absl::StatusOr<std::unique_ptr<Database>> db = Database::Open(std::move(connection));
  if (!db.ok()) return db.status();
  file.db = *std::move(db);
  file.version = kSchemaVersion;
  if (absl::Status made = CreateSchema(*file.db); !made.ok()) return made;
  return file;
}

}  // namespace whet
