#include "cache/entry_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "cache/entry_codec.h"
#include "cache/entry_file_format.h"
#include "src/base/files.h"

namespace whet {
namespace {

constexpr int64_t kTouchIntervalSeconds = 3600;
// A file left by a writer that died is removed once it is this old.
constexpr int64_t kAbandonedSeconds = 24 * 3600;
// After this many new bytes the directory is walked to see whether something has to give way.
constexpr int64_t kWalkEveryBytes = 64 << 20;
constexpr int kTries = 2;

std::string HexOf(absl::string_view bytes) { return absl::BytesToHexString(HashColumn(bytes)); }

std::string NameOf(absl::string_view kind, const std::string& hex) {
  return absl::StrCat(kind, "/", hex.substr(0, 2), "/", hex);
}

std::string CodeName(absl::string_view key) { return NameOf("code", HexOf(key)); }
std::string RequestName(absl::string_view request) { return NameOf("request", HexOf(request)); }
std::string WinnerName(absl::string_view key) { return NameOf("winner", HexOf(key)); }

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// The same file may be written by nobody but us, as for every file of the cache.
bool IsTrusted(const struct stat& info) {
  return S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
         (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

}  // namespace

struct EntryFileStore::FoundFile {
  std::string bytes;
  int64_t used_unix_s = 0;
  ino_t inode = 0;
};

struct EntryFileStore::ListedFile {
  std::string name;
  int64_t bytes = 0;
  int64_t used_unix_s = 0;
};

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

absl::StatusOr<EntryFileStore::FoundFile> EntryFileStore::ReadEntry(const std::string& name) const {
  const int64_t limit = EntryFileLimit(options_.object_limit_bytes);
  int error = ENOENT;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    Descriptor fd(openat(directory_->fd(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    struct stat info;
    if (fd.get() < 0 || fstat(fd.get(), &info) != 0) {
      error = errno;
      if (error == ESTALE) continue;
      break;
    }
    if (!IsTrusted(info)) {
      return absl::PermissionDeniedError(absl::StrCat("cannot trust ", name));
    }
    if (info.st_size > limit) return absl::DataLossError(absl::StrCat(name, " is too large"));
    FoundFile file{.bytes = std::string(info.st_size, '\0'),
                   .used_unix_s = info.st_mtim.tv_sec,
                   .inode = info.st_ino};
    size_t done = 0;
    error = 0;
    while (done < file.bytes.size()) {
      const ssize_t got = pread(fd.get(), file.bytes.data() + done, file.bytes.size() - done,
                                static_cast<off_t>(done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        error = got < 0 ? errno : EIO;
        break;
      }
      done += static_cast<size_t>(got);
    }
    if (error == 0) return file;
    if (error != ESTALE) break;
  }
  return ErrnoStatus(error, "read", JoinPath(directory_->path(), name));
}

// See the header for why this order needs no lock.
absl::Status EntryFileStore::WriteEntry(const std::string& name, const std::string& bytes,
                                        const std::string& second_name) {
  if (options_.read_only) return absl::UnavailableError("cannot write the cache: it is read-only");
  const int at = directory_->fd();
  for (const std::string& target : {name, second_name}) {
    if (target.empty()) continue;
    const size_t first = target.find('/'), last = target.rfind('/');
    mkdirat(at, target.substr(0, first).c_str(), 0700);
    mkdirat(at, target.substr(0, last).c_str(), 0700);
  }
  // Unique among nodes, processes and threads; O_EXCL guards what chance leaves.
  std::random_device random;
  const std::string temporary =
      absl::StrCat(name, ".tmp-", absl::Hex(random()), absl::Hex(random()), "-", next_temporary_++);
  const std::string path = JoinPath(directory_->path(), name);
  absl::Status status;
  struct stat written = {};
  {
    Descriptor fd(
        openat(at, temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (fd.get() < 0) return ErrnoStatus(errno, "create", path);
    for (size_t done = 0; status.ok() && done < bytes.size();) {
      const ssize_t put = write(fd.get(), bytes.data() + done, bytes.size() - done);
      if (put < 0 && errno != EINTR) status = ErrnoStatus(errno, "write", path);
      if (put > 0) done += static_cast<size_t>(put);
    }
    if (status.ok() && fsync(fd.get()) != 0) status = ErrnoStatus(errno, "sync", path);
    if (status.ok() && fstat(fd.get(), &written) != 0) status = ErrnoStatus(errno, "inspect", path);
  }
  if (status.ok() && !second_name.empty()) {
    // A second name for the same file, put in place the same way. Without hard links the code is
    // still found by its key.
    const std::string link = absl::StrCat(temporary, ".link");
    if (linkat(at, temporary.c_str(), at, link.c_str(), 0) == 0) {
      if (renameat(at, link.c_str(), at, second_name.c_str()) != 0) unlinkat(at, link.c_str(), 0);
    }
  }
  if (status.ok() && renameat(at, temporary.c_str(), at, name.c_str()) != 0) {
    // A network client that sends a rename twice may see its own success as ENOENT.
    const int error = errno;
    struct stat placed;
    const bool done = error == ENOENT &&
                      fstatat(at, name.c_str(), &placed, AT_SYMLINK_NOFOLLOW) == 0 &&
                      placed.st_ino == written.st_ino;
    if (!done) status = ErrnoStatus(error, "rename", path);
  }
  // Not before it is in place: until then its time is the file server's, see RemoveAbandoned.
  if (status.ok()) SetTime(name);
  if (!status.ok()) {
    unlinkat(at, temporary.c_str(), 0);
    return status;
  }
  for (const std::string& target : {name, second_name}) {
    if (target.empty()) continue;
    Descriptor folder(openat(at, target.substr(0, target.rfind('/')).c_str(),
                             O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    // Some network file systems refuse to sync a directory; their rename is durable by itself.
    if (folder.get() >= 0 && fsync(folder.get()) != 0 && errno != EINVAL && errno != ENOTSUP) {
      return ErrnoStatus(errno, "sync the directory of", path);
    }
  }
  return absl::OkStatus();
}

void EntryFileStore::Touch(const std::string& name, int64_t used_unix_s) const {
  if (options_.read_only) return;
  const int64_t now = NowUnixSeconds();
  if (now - used_unix_s < kTouchIntervalSeconds && used_unix_s <= now + kTouchIntervalSeconds) {
    return;
  }
  SetTime(name);
}

void EntryFileStore::SetTime(const std::string& name) const {
  const timespec now = {NowUnixSeconds(), 0};
  const timespec times[2] = {now, now};
  utimensat(directory_->fd(), name.c_str(), times, AT_SYMLINK_NOFOLLOW);
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

absl::Status EntryFileStore::Erase(const std::string& name) {
  if (options_.read_only) return absl::UnavailableError("cannot write the cache: it is read-only");
  if (unlinkat(directory_->fd(), name.c_str(), 0) == 0 || errno == ENOENT) return absl::OkStatus();
  return ErrnoStatus(errno, "remove", JoinPath(directory_->path(), name));
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

std::vector<EntryFileStore::ListedFile> EntryFileStore::ListFiles(const char* kind) const {
  std::vector<ListedFile> files, temporaries;
  int64_t newest_change_s = 0;
  const std::string root = JoinPath(directory_->path(), kind);
  absl::StatusOr<std::vector<std::string>> folders = ListDirectory(root);
  if (!folders.ok()) return files;
  for (const std::string& folder : *folders) {
    absl::StatusOr<std::vector<std::string>> names = ListDirectory(JoinPath(root, folder));
    if (!names.ok()) continue;
    for (const std::string& file : *names) {
      const std::string name = absl::StrCat(kind, "/", folder, "/", file);
      struct stat info;
      if (fstatat(directory_->fd(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
      if (!IsTrusted(info)) continue;
      newest_change_s = std::max<int64_t>(newest_change_s, info.st_ctim.tv_sec);
      if (file.find(".tmp-") != std::string::npos) {
        temporaries.push_back({name, info.st_size, info.st_mtim.tv_sec});
        continue;
      }
      files.push_back({name, info.st_size, info.st_mtim.tv_sec});
    }
  }
  RemoveAbandoned(temporaries, newest_change_s);
  return files;
}

// Nodes' clocks may be days apart, so none of them is asked: both times are the file server's. One
// that is being written is never a day older than the newest change beside it.
void EntryFileStore::RemoveAbandoned(const std::vector<ListedFile>& temporaries,
                                     int64_t newest_change_s) const {
  if (options_.read_only) return;
  for (const ListedFile& file : temporaries) {
    if (newest_change_s - file.used_unix_s <= kAbandonedSeconds) continue;
    unlinkat(directory_->fd(), file.name.c_str(), 0);
  }
}

absl::StatusOr<std::vector<CodeEntry>> EntryFileStore::ListCode() {
  std::vector<CodeEntry> entries;
  for (const ListedFile& listed : ListFiles("code")) {
    absl::StatusOr<FoundFile> file = ReadEntry(listed.name);
    if (!file.ok()) continue;
    absl::StatusOr<CodeEntry> entry =
        ParseCodeFile(file->bytes, options_.object_limit_bytes, /*with_object=*/false);
    if (!entry.ok()) continue;
    entry->facts.used_unix_s = file->used_unix_s;
    entries.push_back(*std::move(entry));
  }
  std::stable_sort(entries.begin(), entries.end(), [](const CodeEntry& a, const CodeEntry& b) {
    return a.created_unix_s < b.created_unix_s;
  });
  return entries;
}

absl::StatusOr<std::vector<WinnerEntry>> EntryFileStore::ListWinners() {
  std::vector<WinnerEntry> entries;
  for (const ListedFile& listed : ListFiles("winner")) {
    absl::StatusOr<FoundFile> file = ReadEntry(listed.name);
    if (!file.ok()) continue;
    absl::StatusOr<WinnerEntry> entry = ParseWinnerFile(file->bytes);
    if (!entry.ok()) continue;
    entry->facts.used_unix_s = file->used_unix_s;
    entries.push_back(*std::move(entry));
  }
  std::stable_sort(entries.begin(), entries.end(), [](const WinnerEntry& a, const WinnerEntry& b) {
    return a.created_unix_s < b.created_unix_s;
  });
  return entries;
}

absl::StatusOr<int64_t> EntryFileStore::Shrink(int64_t target_bytes) {
  if (options_.read_only) return absl::UnavailableError("cannot shrink the cache: it is read-only");
  int64_t used = 0, evicted = 0;
  struct Candidate {
    int64_t generation;
    ListedFile file;
    std::string second_name;
  };
  std::vector<Candidate> code;
  std::vector<ListedFile> winners = ListFiles("winner");
  for (const ListedFile& file : winners) used += file.bytes;
  for (ListedFile& file : ListFiles("code")) used += file.bytes, code.push_back({0, file, ""});
  if (used <= target_bytes) return 0;
  for (Candidate& candidate : code) {
    absl::StatusOr<FoundFile> bytes = ReadEntry(candidate.file.name);
    if (!bytes.ok()) continue;
    absl::StatusOr<CodeEntry> entry =
        ParseCodeFile(bytes->bytes, options_.object_limit_bytes, /*with_object=*/false);
    if (!entry.ok()) continue;
    candidate.generation = entry->facts.generation;
    candidate.second_name = RequestName(entry->request);
  }
  std::sort(code.begin(), code.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(a.generation, a.file.used_unix_s, a.file.name) <
           std::tie(b.generation, b.file.used_unix_s, b.file.name);
  });
  std::sort(winners.begin(), winners.end(), [](const ListedFile& a, const ListedFile& b) {
    return std::tie(a.used_unix_s, a.name) < std::tie(b.used_unix_s, b.name);
  });
  for (const Candidate& candidate : code) {
    if (used <= target_bytes) break;
    struct stat first, second;
    const int at = directory_->fd();
    if (!candidate.second_name.empty() &&
        fstatat(at, candidate.file.name.c_str(), &first, AT_SYMLINK_NOFOLLOW) == 0 &&
        fstatat(at, candidate.second_name.c_str(), &second, AT_SYMLINK_NOFOLLOW) == 0 &&
        first.st_ino == second.st_ino) {
      Erase(candidate.second_name).IgnoreError();
    }
    if (!Erase(candidate.file.name).ok()) continue;
    used -= candidate.file.bytes;
    ++evicted;
  }
  for (const ListedFile& file : winners) {
    if (used <= target_bytes) break;
    if (!Erase(file.name).ok()) continue;
    used -= file.bytes;
    ++evicted;
  }
  Count(&StoreCounters::evicted_entries, evicted);
  Emit({.kind = CacheEventKind::kEvicted, .detail = absl::StrCat(evicted)});
  return evicted;
}

void EntryFileStore::EvictNowAndThen(int64_t written_bytes) {
  if (options_.size_limit_bytes <= 0) return;
  {
    MutexLock lock(mutex_);
    unchecked_bytes_ += written_bytes;
    if (unchecked_bytes_ < std::min(kWalkEveryBytes, options_.size_limit_bytes / 20)) return;
    unchecked_bytes_ = 0;
  }
  int64_t used = 0;
  for (const char* const kind : {"code", "winner"}) {
    for (const ListedFile& file : ListFiles(kind)) used += file.bytes;
  }
  if (used <= options_.size_limit_bytes) return;
  Shrink(options_.size_limit_bytes - options_.size_limit_bytes / 20).status().IgnoreError();
}

absl::StatusOr<StoreUsage> EntryFileStore::Usage() {
  StoreUsage usage;
  for (const ListedFile& file : ListFiles("code")) {
    ++usage.code_entries;
    usage.used_bytes += file.bytes;
  }
  for (const ListedFile& file : ListFiles("winner")) {
    ++usage.winner_entries;
    usage.used_bytes += file.bytes;
  }
  usage.file_bytes = usage.used_bytes;
  return usage;
}

absl::StatusOr<std::vector<QuarantineRecord>> EntryFileStore::ListQuarantine() {
  std::vector<QuarantineRecord> records;
  for (const ListedFile& listed : ListFiles("quarantine")) {
    absl::StatusOr<FoundFile> file = ReadEntry(listed.name);
    if (!file.ok()) continue;
    absl::StatusOr<QuarantineRecord> record = ParseQuarantineFile(file->bytes);
    if (record.ok()) records.push_back(*std::move(record));
  }
  return records;
}

StoreCounters EntryFileStore::counters() const {
  MutexLock lock(mutex_);
  return counters_;
}

}  // namespace whet
