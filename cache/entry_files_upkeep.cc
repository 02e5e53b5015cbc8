// What the store does beside finding and keeping: walking its directory, giving room back, and
// telling what it holds.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cache/entry_file_format.h"
#include "cache/entry_files_internal.h"
#include "src/base/files.h"

namespace whet {
namespace {

// A file left by a writer that died is removed once it is this old.
constexpr int64_t kAbandonedSeconds = 24 * 3600;

}  // namespace

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

}  // namespace whet
