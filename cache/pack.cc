#include "cache/pack.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "cache/entry_codec.h"
#include "cache/entry_rows.h"
#include "cache/schema.h"
#include "src/base/files.h"

namespace whet {
namespace {

absl::Status Refusal(const std::string& path, absl::string_view why) {
  return absl::PermissionDeniedError(absl::StrCat("cannot trust pack ", path, ": ", why));
}

// A signature says more than an owner does; without one the owner has to do.
absl::Status CheckTrust(const struct stat& info, const Seal& seal, const std::string& path,
                        const std::vector<std::string>& trusted_keys) {
  if (!trusted_keys.empty()) {
    if (!seal.is_signed) return Refusal(path, "it is not signed, and signatures are asked for");
    if (std::find(trusted_keys.begin(), trusted_keys.end(), seal.public_key) ==
        trusted_keys.end()) {
      return Refusal(path, absl::StrCat("it is signed with ", FormatPackPublicKey(seal.public_key),
                                        ", which is not among the trusted keys"));
    }
    return absl::OkStatus();
  }
  if (info.st_uid != 0 && info.st_uid != geteuid()) {
    return Refusal(path, absl::StrCat("it belongs to user ", info.st_uid,
                                      "; sign it and trust its key, or change its owner"));
  }
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return Refusal(path, "others may write it; chmod go-w it, or sign it and trust its key");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Pack>> Pack::Open(const std::string& path,
                                                 const PackOptions& options, const Logger& log) {
  // O_NONBLOCK: opening a FIFO must not wait for its other end.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return ErrnoStatus(errno, "open pack", path);
  absl::StatusOr<SealedFile> sealed = ReadSeal(fd, path);
  struct stat info = {};
  absl::Status trusted = sealed.status();
  if (trusted.ok()) {
    trusted = fstat(fd, &info) != 0 ? ErrnoStatus(errno, "inspect", path)
                                    : CheckTrust(info, sealed->seal, path, options.trusted_keys);
  }
  if (!trusted.ok()) {
    close(fd);
    return trusted;
  }
  std::unique_ptr<Pack> pack(new Pack(path, options, log));
  pack->vfs_ = std::make_unique<PackVfs>(fd, *std::move(sealed));
  MutexLock lock(pack->mutex_);
  absl::StatusOr<std::unique_ptr<Database>> db = Database::Open(
      {.name = "pack",
       .flags = SQLITE_OPEN_READONLY,
       .vfs = pack->vfs_->name(),
       .value_limit_bytes = static_cast<int64_t>(ZSTD_compressBound(options.object_limit_bytes)) +
                            kDocumentLimitBytes + 4 * kRecordLimitBytes});
  absl::Status usable = db.status();
  absl::StatusOr<SchemaState> state = SchemaState();
  if (usable.ok()) {
    pack->db_ = *std::move(db);
    state = InspectSchema(*pack->db_, kPackApplicationId);
    usable = state.status();
  }
  if (usable.ok()) usable = pack->db_->Execute(sql::kConfigureConnection);
  if (!usable.ok()) {
    return absl::DataLossError(absl::StrCat(
        "cannot open pack ", path, ": ",
        pack->vfs_->tampered() ? "its bytes are not what was sealed" : usable.message()));
  }
  if (state->kind == SchemaState::kEmpty || state->kind == SchemaState::kForeign) {
    return absl::DataLossError(
        absl::StrCat("cannot open pack ", path, ": it is no pack of Whet's"));
  }
  if (state->kind == SchemaState::kUnreadable) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cannot open pack ", path, ": a newer library wrote it (schema ", state->version, ")"));
  }
  pack->version_ = state->version;
  Query manifest(*pack->db_, sql::kGetMeta);
  manifest.BindBytes(1, "manifest");
  absl::StatusOr<bool> row = manifest.Step();
  if (row.ok() && *row) pack->manifest_ = std::string(manifest.Bytes(0));
  return pack;
}

Pack::~Pack() {
  MutexLock lock(mutex_);
  db_.reset();
}

// One line and one event for a pack that turned bad; it only misses from then on.
void Pack::Report(const absl::Status& failure) {
  if (failed_ || !(vfs_->tampered() || absl::IsDataLoss(failure))) return;
  failed_ = true;
  ++counters_.damaged_entries;
  const std::string why =
      vfs_->tampered() ? "its bytes are not what was sealed" : std::string(failure.message());
  if (options_.on_event) {
    options_.on_event({.kind = CacheEventKind::kPackRefused, .layer = path_, .detail = why});
  }
  log_.Warning(absl::StrCat("the pack ", path_, " is damaged and no longer used: ", why));
}

std::optional<CodeEntry> Pack::Find(bool by_request, absl::string_view wanted) {
  const Selects& selects = SelectsOf(version_);
  std::optional<CodeRow> row;
  {
    MutexLock lock(mutex_);
    if (!failed_) {
      absl::StatusOr<std::optional<CodeRow>> read = FindCodeRow(
          *db_, by_request ? selects.find_code_by_request : selects.find_code, HashColumn(wanted));
      if (read.ok()) {
        row = *std::move(read);
      } else {
        Report(read.status());
      }
    }
    if (!row.has_value() || wanted != (by_request ? row->entry.request : row->entry.key)) {
      ++counters_.code_misses;
      return std::nullopt;
    }
  }
  absl::StatusOr<CodeEntry> entry = DecodeRow(*std::move(row), options_.object_limit_bytes);
  MutexLock lock(mutex_);
  if (!entry.ok()) {
    ++counters_.damaged_entries;
    ++counters_.code_misses;
    return std::nullopt;
  }
  ++counters_.code_hits;
  counters_.bytes_read += static_cast<int64_t>(entry->object.size());
  return *std::move(entry);
}

std::optional<CodeEntry> Pack::FindCode(absl::string_view key) {
  return Find(/*by_request=*/false, key);
}

std::optional<CodeEntry> Pack::FindCodeByRequest(absl::string_view request) {
  return Find(/*by_request=*/true, request);
}

std::vector<bool> Pack::HaveWinners(const std::vector<std::string>& keys) {
  MutexLock lock(mutex_);
  if (failed_) return std::vector<bool>(keys.size());
  return HaveWinnerRows(*db_, keys);
}

std::optional<WinnerEntry> Pack::FindWinner(absl::string_view key) {
  MutexLock lock(mutex_);
  std::optional<WinnerRow> row;
  if (!failed_) {
    absl::StatusOr<std::optional<WinnerRow>> read =
        FindWinnerRow(*db_, SelectsOf(version_).find_winner, HashColumn(key));
    if (read.ok()) {
      row = *std::move(read);
    } else {
      Report(read.status());
    }
  }
  if (!row.has_value() || row->entry.key != key) {
    ++counters_.winner_misses;
    return std::nullopt;
  }
  if (!IsIntact(*row)) {
    ++counters_.damaged_entries;
    ++counters_.winner_misses;
    return std::nullopt;
  }
  ++counters_.winner_hits;
  return std::move(row->entry);
}

absl::Status Pack::Verify() {
  absl::StatusOr<std::vector<CodeEntry>> code = ListCode();
  if (!code.ok()) return code.status();
  absl::StatusOr<std::vector<WinnerEntry>> winners = ListWinners();
  if (!winners.ok()) return winners.status();
  for (const CodeEntry& entry : *code) {
    if (FindCode(entry.key).has_value()) continue;
    return absl::DataLossError(absl::StrCat("pack ", path_, " is damaged: code object ",
                                            absl::BytesToHexString(HashColumn(entry.key)),
                                            " cannot be read"));
  }
  for (const WinnerEntry& entry : *winners) {
    if (FindWinner(entry.key).has_value()) continue;
    return absl::DataLossError(absl::StrCat("pack ", path_, " is damaged: winner ",
                                            absl::BytesToHexString(HashColumn(entry.key)),
                                            " cannot be read"));
  }
  MutexLock lock(mutex_);
  absl::Status bytes = vfs_->VerifyAll();
  if (bytes.ok()) return bytes;
  return absl::DataLossError(absl::StrCat("pack ", path_, " is damaged: ", bytes.message()));
}

absl::StatusOr<std::vector<CodeEntry>> Pack::ListCode() {
  MutexLock lock(mutex_);
  return ListCodeRows(*db_, SelectsOf(version_).list_code);
}

absl::StatusOr<std::vector<WinnerEntry>> Pack::ListWinners() {
  MutexLock lock(mutex_);
  return ListWinnerRows(*db_, SelectsOf(version_).list_winners);
}

absl::StatusOr<StoreUsage> Pack::Usage() {
  MutexLock lock(mutex_);
  StoreUsage usage;
  absl::StatusOr<int64_t> code = db_->Integer(sql::kCountCode);
  if (!code.ok()) return code.status();
  absl::StatusOr<int64_t> winners = db_->Integer(sql::kCountWinners);
  if (!winners.ok()) return winners.status();
  usage.code_entries = *code;
  usage.winner_entries = *winners;
  usage.used_bytes = usage.file_bytes = vfs_->seal().database_bytes;
  return usage;
}

absl::Status Pack::ReadOnly() const {
  return absl::UnavailableError(
      absl::StrCat("cannot write into pack ", path_, ": packs are read-only"));
}

absl::Status Pack::PutCode(const CodeEntry&) { return ReadOnly(); }
absl::Status Pack::EraseCode(absl::string_view) { return ReadOnly(); }
absl::Status Pack::PutWinner(const WinnerEntry&) { return ReadOnly(); }
absl::Status Pack::EraseWinner(absl::string_view) { return ReadOnly(); }
absl::StatusOr<int64_t> Pack::Shrink(int64_t) { return ReadOnly(); }

void Pack::RemoveCode(absl::string_view key, absl::string_view reason) {
  {
    MutexLock lock(mutex_);
    ++counters_.load_failures;
  }
  log_.Warning(absl::StrCat("a code object of the pack ", path_, " is unusable (key ",
                            absl::BytesToHexString(HashColumn(key)), "): ", reason));
}

absl::StatusOr<std::vector<QuarantineRecord>> Pack::ListQuarantine() {
  return std::vector<QuarantineRecord>();
}

StoreCounters Pack::counters() const {
  MutexLock lock(mutex_);
  return counters_;
}

}  // namespace whet
