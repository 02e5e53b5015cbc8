#include "cache/entry_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "cache/entry_codec.h"
#include "cache/entry_file_format.h"
#include "cache/entry_files_internal.h"
#include "src/base/files.h"

namespace whet {

EntryFileStore::EntryFileStore(const StoreOptions& options, const Logger& log,
                               std::unique_ptr<PinnedDirectory> directory)
    : options_(options),
      log_(log),
      directory_(std::move(directory)),
      unchecked_bytes_(kWalkEveryBytes) {}

absl::StatusOr<std::unique_ptr<EntryFileStore>> EntryFileStore::Open(const StoreOptions& options,
                                                                     const Logger& log) {
  // The directory above is checked as well: who may write it could replace ours.
  const std::string path = options.path + kEntriesSuffix;
  const size_t slash = path.rfind('/');
  const std::string parent = slash == std::string::npos ? "." : path.substr(0, slash);
  auto above = PinnedDirectory::Open(parent, /*create=*/!options.read_only);
  if (!above.ok()) return above.status();
  auto directory = PinnedDirectory::Open(path, /*create=*/!options.read_only);
  if (!directory.ok()) return directory.status();
  std::unique_ptr<EntryFileStore> store(new EntryFileStore(options, log, *std::move(directory)));
  return store;
}

int64_t EntryFileStore::NowUnixSeconds() const {
  return absl::ToUnixSeconds(options_.clock->Now());
}

void EntryFileStore::Emit(CacheEvent event) const {
  if (!options_.on_event) return;
  event.layer = "user";
  options_.on_event(event);
}

int64_t EntryFileStore::Count(int64_t StoreCounters::*counter, int64_t by) {
  MutexLock lock(mutex_);
  return counters_.*counter += by;
}

void EntryFileStore::Quarantine(const std::string& hash, absl::string_view reason) {
  const std::string name = NameOf("quarantine", hash);
  QuarantineRecord record{
      .key_hash = hash, .reason = std::string(reason), .count = 1, .last_unix_s = NowUnixSeconds()};
  absl::StatusOr<FoundFile> old = ReadEntry(name);
  if (old.ok()) {
    absl::StatusOr<QuarantineRecord> parsed = ParseQuarantineFile(old->bytes);
    if (parsed.ok()) record.count += parsed->count;
  }
  WriteEntry(name, FormatQuarantineFile(record), "").IgnoreError();
}

void EntryFileStore::DropDamaged(const std::string& name, const FoundFile& file) {
  const std::string hash = name.substr(name.rfind('/') + 1);
  // Only while it is the same file: another node may have made it again. Between this look and the
  // removal it still may; then its entry is made once more.
  struct stat info;
  if (!options_.read_only &&
      fstatat(directory_->fd(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
      info.st_ino == file.inode) {
    unlinkat(directory_->fd(), name.c_str(), 0);
    Quarantine(hash, "wrong checksum or size");
  }
  Emit({.kind = CacheEventKind::kDamaged, .key_hash = hash});
  if (Count(&StoreCounters::damaged_entries) > 1) return;
  log_.Warning(absl::StrCat("an entry of the cache ", directory_->path(),
                            " was damaged and is made again (", name,
                            "; further ones are only counted)"));
}

std::optional<CodeEntry> EntryFileStore::Find(bool by_request, absl::string_view wanted) {
  const std::string name = by_request ? RequestName(wanted) : CodeName(wanted);
  absl::StatusOr<FoundFile> file = ReadEntry(name);
  if (file.ok()) {
    absl::StatusOr<CodeEntry> entry =
        ParseCodeFile(file->bytes, options_.object_limit_bytes, /*with_object=*/true);
    if (!entry.ok()) {
      DropDamaged(name, *file);
    } else if (wanted == (by_request ? entry->request : entry->key)) {
      Touch(name, file->used_unix_s);
      entry->facts.used_unix_s = file->used_unix_s;
      Count(&StoreCounters::code_hits);
      Count(&StoreCounters::bytes_read, static_cast<int64_t>(entry->object.size()));
      return *std::move(entry);
    }
  }
  Count(&StoreCounters::code_misses);
  return std::nullopt;
}

std::optional<CodeEntry> EntryFileStore::FindCode(absl::string_view key) {
  return Find(/*by_request=*/false, key);
}

std::optional<CodeEntry> EntryFileStore::FindCodeByRequest(absl::string_view request) {
  return Find(/*by_request=*/true, request);
}

absl::Status EntryFileStore::PutCode(const CodeEntry& given) {
  if (absl::Status limits = CheckCodeLimits(given, options_.object_limit_bytes); !limits.ok()) {
    return limits;
  }
  CodeEntry entry = given;
  if (entry.created_unix_s == 0) entry.created_unix_s = NowUnixSeconds();
  const std::string bytes = FormatCodeFile(entry, options_.generation);
  if (options_.size_limit_bytes > 0 &&
      static_cast<int64_t>(bytes.size()) > options_.size_limit_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot store a code object of ", entry.object.size(),
                     " bytes: the whole cache may use ", options_.size_limit_bytes));
  }
  absl::Status status = WriteEntry(CodeName(entry.key), bytes, RequestName(entry.request));
  if (!status.ok()) {
    Count(&StoreCounters::failed_writes);
    return status;
  }
  Count(&StoreCounters::code_writes);
  Count(&StoreCounters::bytes_written, static_cast<int64_t>(entry.object.size()));
  EvictNowAndThen(static_cast<int64_t>(bytes.size()));
  return status;
}

void EntryFileStore::RemoveCode(absl::string_view key, absl::string_view reason) {
  const std::string hash = HexOf(key);
  absl::Status status = EraseCode(key);
  if (status.ok()) Quarantine(hash, reason);
  Count(&StoreCounters::load_failures);
  Emit({.kind = CacheEventKind::kLoadFailure, .key_hash = hash, .detail = std::string(reason)});
  log_.Warning(absl::StrCat("a code object of the cache ", directory_->path(),
                            status.ok() ? " was dropped: " : " is unusable and stays: ", reason));
}

absl::Status EntryFileStore::EraseCode(absl::string_view key) {
  const std::string name = CodeName(key);
  // Its second name goes with it, when that still means this entry.
  absl::StatusOr<FoundFile> file = ReadEntry(name);
  if (file.ok()) {
    absl::StatusOr<CodeEntry> entry =
        ParseCodeFile(file->bytes, options_.object_limit_bytes, /*with_object=*/false);
    if (entry.ok()) {
      absl::StatusOr<FoundFile> second = ReadEntry(RequestName(entry->request));
      if (second.ok() && second->bytes == file->bytes) {
        if (absl::Status erased = Erase(RequestName(entry->request)); !erased.ok()) return erased;
      }
    }
  }
  return Erase(name);
}

std::optional<WinnerEntry> EntryFileStore::FindWinner(absl::string_view key) {
  const std::string name = WinnerName(key);
  absl::StatusOr<FoundFile> file = ReadEntry(name);
  if (file.ok()) {
    absl::StatusOr<WinnerEntry> entry = ParseWinnerFile(file->bytes);
    if (!entry.ok()) {
      DropDamaged(name, *file);
    } else if (entry->key == key) {
      Touch(name, file->used_unix_s);
      entry->facts.used_unix_s = file->used_unix_s;
      Count(&StoreCounters::winner_hits);
      return *std::move(entry);
    }
  }
  Count(&StoreCounters::winner_misses);
  return std::nullopt;
}

std::vector<bool> EntryFileStore::HaveWinners(const std::vector<std::string>& keys) {
  std::vector<bool> have(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    have[i] =
        faccessat(directory_->fd(), WinnerName(keys[i]).c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
  }
  return have;
}

absl::Status EntryFileStore::PutWinner(const WinnerEntry& given) {
  if (absl::Status limits = CheckWinnerLimits(given); !limits.ok()) return limits;
  WinnerEntry entry = given;
  if (entry.created_unix_s == 0) entry.created_unix_s = NowUnixSeconds();
  const std::string bytes = FormatWinnerFile(entry, options_.generation);
  absl::Status status = WriteEntry(WinnerName(entry.key), bytes, "");
  Count(status.ok() ? &StoreCounters::winner_writes : &StoreCounters::failed_writes);
  if (status.ok()) EvictNowAndThen(static_cast<int64_t>(bytes.size()));
  return status;
}

absl::Status EntryFileStore::EraseWinner(absl::string_view key) { return Erase(WinnerName(key)); }

StoreCounters EntryFileStore::counters() const {
  MutexLock lock(mutex_);
  return counters_;
}

}  // namespace whet
