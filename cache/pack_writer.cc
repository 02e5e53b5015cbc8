#include "cache/pack_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "cache/entry_codec.h"
#include "cache/pack.h"
#include "cache/pack_seal.h"
#include "cache/schema.h"
#include "cache/sqlite_db.h"
#include "src/base/files.h"

namespace whet {
namespace {

// What SQLite notes about its own version in every file (offset 96), made the same for all.
constexpr int64_t kSqliteVersionOffset = 96;
constexpr char kSqliteVersionBytes[] = {'\x00', '\x2e', '\x63', '\x00'};

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

absl::Status WriteExactly(int fd, absl::string_view bytes, int64_t offset,
                          const std::string& path) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t put = pwrite(fd, bytes.data() + done, bytes.size() - done,
                               static_cast<off_t>(offset) + static_cast<off_t>(done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return ErrnoStatus(errno, "write", path);
    done += static_cast<size_t>(put);
  }
  return absl::OkStatus();
}

std::string ManifestText(const PackManifest& manifest, const PackSummary& summary,
                         int64_t object_bytes) {
  PackManifest sorted = manifest;
  std::sort(sorted.targets.begin(), sorted.targets.end());
  std::sort(sorted.toolchains.begin(), sorted.toolchains.end());
  nlohmann::json json;
  json["format"] = "whet pack 1";
  json["contents"] = {{"code", summary.code_entries},
                      {"winners", summary.winner_entries},
                      {"object_bytes", object_bytes}};
  json["targets"] = sorted.targets;
  json["toolchains"] = sorted.toolchains;
  json["templates"] = sorted.templates;
  // Names come from outside and need not be UTF-8; dump would throw.
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

absl::Status AddCode(Database& db, int64_t id, CodeEntry entry, int level) {
  entry.created_unix_s = 0;
  const StoredObject stored = EncodeObject(entry.object, level);
  const std::string key_hash = HashColumn(entry.key);
  const std::string request_hash = HashColumn(entry.request);
  const std::string checksum = CodeChecksum(entry);
  Query put(db, sql::kPutCode);
  put.BindBytes(1, key_hash);
  put.BindBytes(2, request_hash);
  put.BindBytes(3, entry.key);
  put.BindBytes(4, entry.request);
  put.BindInt(5, static_cast<int64_t>(entry.object.size()));
  put.BindInt(6, static_cast<int64_t>(stored.codec));
  put.BindBytes(7, checksum);
  put.BindInt(8, 0);
  put.BindInt(9, 0);
  put.BindInt(10, entry.facts.generation);
  if (absl::Status status = put.Run(); !status.ok()) return status;
  Query object(db, sql::kPutObject);
  object.BindInt(1, id);
  object.BindBytes(2, entry.attributes);
  object.BindBytes(3, stored.bytes);
  return object.Run();
}

absl::Status AddWinner(Database& db, WinnerEntry entry) {
  entry.created_unix_s = 0;
  const std::string key_hash = HashColumn(entry.key);
  const std::string checksum = WinnerChecksum(entry);
  Query put(db, sql::kPutWinner);
  put.BindBytes(1, key_hash);
  put.BindBytes(2, entry.key);
  put.BindBytes(3, entry.variant);
  put.BindBytes(4, entry.code_key);
  put.BindBytes(5, entry.evidence);
  put.BindBytes(6, checksum);
  put.BindInt(7, 0);
  put.BindInt(8, 0);
  put.BindInt(9, entry.facts.generation);
  put.BindInt(10, entry.protocol);
  put.BindInt(11, entry.evidence_count);
  return put.Run();
}

template <typename Entry>
std::vector<Entry> WantedByHash(std::vector<Entry> all,
                                const std::function<bool(const Entry&)>& want) {
  std::vector<std::pair<std::string, Entry>> hashed;
  for (Entry& entry : all) {
    if (want && !want(entry)) continue;
    std::string hash = HashColumn(entry.key);
    hashed.emplace_back(std::move(hash), std::move(entry));
  }
  std::sort(hashed.begin(), hashed.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Entry> wanted;
  for (auto& [hash, entry] : hashed) wanted.push_back(std::move(entry));
  return wanted;
}

// The database part of a pack, in a new file at `path`.
absl::StatusOr<PackSummary> WriteDatabase(const std::string& path, Store& source,
                                          const PackWriterOptions& options) {
  absl::StatusOr<std::vector<CodeEntry>> all_code = source.ListCode();
  if (!all_code.ok()) return all_code.status();
  absl::StatusOr<std::vector<WinnerEntry>> all_winners = source.ListWinners();
  if (!all_winners.ok()) return all_winners.status();
  const std::vector<CodeEntry> code =
      WantedByHash<CodeEntry>(*std::move(all_code), options.want_code);
  const std::vector<WinnerEntry> winners =
      WantedByHash<WinnerEntry>(*std::move(all_winners), options.want_winner);
  absl::StatusOr<std::unique_ptr<Database>> opened = Database::Open(
      // SQLite takes a name that begins with "file:" for a URI.
      {.name = path[0] == '/' ? path : "./" + path,
       .flags = SQLITE_OPEN_READWRITE,
       .value_limit_bytes = 1'000'000'000});
  if (!opened.ok()) return opened.status();
  Database& db = **opened;
  // Nobody sees the file before it is whole, so it needs neither journal nor sync.
  absl::Status status = db.Execute(sql::kConfigurePackWriter);
  if (status.ok()) status = CreatePackSchema(db);
  if (status.ok()) status = db.Execute("BEGIN");
  PackSummary summary;
  int64_t object_bytes = 0;
  for (const CodeEntry& listed : code) {
    if (!status.ok()) break;
    std::optional<CodeEntry> entry = source.FindCode(listed.key);
    if (!entry.has_value()) {
      return absl::DataLossError(absl::StrCat("cannot write pack ", path, ": code object ",
                                              absl::BytesToHexString(HashColumn(listed.key)),
                                              " of ", source.path(),
                                              " cannot be read; verify the cache"));
    }
    entry->facts.generation = listed.facts.generation;
    object_bytes += static_cast<int64_t>(entry->object.size());
    status = AddCode(db, ++summary.code_entries, *std::move(entry), options.compression_level);
  }
  for (const WinnerEntry& listed : winners) {
    if (!status.ok()) break;
    std::optional<WinnerEntry> entry = source.FindWinner(listed.key);
    if (!entry.has_value()) continue;
    entry->facts.generation = listed.facts.generation;
    status = AddWinner(db, *std::move(entry));
    ++summary.winner_entries;
  }
  if (status.ok()) {
    const std::string manifest = ManifestText(options.manifest, summary, object_bytes);
    Query meta(db, sql::kPutMeta);
    meta.BindBytes(1, "manifest");
    meta.BindBytes(2, manifest);
    status = meta.Run();
  }
  if (status.ok()) status = db.Execute("COMMIT");
  if (!status.ok()) return status;
  return summary;
}

absl::StatusOr<Seal> AppendDigests(int fd, const std::string& path) {
  struct stat info;
  if (fstat(fd, &info) != 0) return ErrnoStatus(errno, "inspect", path);
  Seal seal;
  seal.database_bytes = info.st_size;
  std::string digests;
  std::string chunk;
  for (int64_t offset = 0; offset < info.st_size; offset += kChunkBytes) {
    chunk.resize(static_cast<size_t>(std::min<int64_t>(kChunkBytes, info.st_size - offset)));
    for (size_t done = 0; done < chunk.size();) {
      const ssize_t got = pread(fd, chunk.data() + done, chunk.size() - done,
                                static_cast<off_t>(offset) + static_cast<off_t>(done));
      if (got <= 0) return ErrnoStatus(got < 0 ? errno : EIO, "read", path);
      done += static_cast<size_t>(got);
    }
    const ChunkDigest digest = DigestOf(chunk);
    digests.append(reinterpret_cast<const char*>(digest.data()), digest.size());
  }
  seal.root = DigestOf(digests);
  if (absl::Status written = WriteExactly(fd, digests, info.st_size, path); !written.ok()) {
    return written;
  }
  return seal;
}

// Everything between a temporary name and the final one: `fill` writes the file.
absl::Status ReplaceFile(const std::string& path,
                         const std::function<absl::Status(const std::string& temporary)>& fill) {
  std::random_device random;
  const std::string temporary =
      absl::StrCat(path, ".tmp-", absl::Hex(random()), absl::Hex(random()));
  const int made = open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (made < 0) return ErrnoStatus(errno, "create", path);
  close(made);
  absl::Cleanup remove = [&temporary] { unlink(temporary.c_str()); };
  if (absl::Status filled = fill(temporary); !filled.ok()) return filled;
  const int fd = open(temporary.c_str(), O_RDONLY | O_CLOEXEC);
  const bool synced = fd >= 0 && fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  if (!synced) return ErrnoStatus(error, "sync", path);
  if (rename(temporary.c_str(), path.c_str()) != 0) return ErrnoStatus(errno, "rename", path);
  std::move(remove).Cancel();
  const int directory = open(DirectoryOf(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory >= 0) {
    fsync(directory);
    close(directory);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SealPackDatabase(const std::string& path, const std::string& secret_key) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, "open", path);
  absl::Cleanup close_fd = [fd] { close(fd); };
  if (absl::Status patched =
          WriteExactly(fd, absl::string_view(kSqliteVersionBytes, sizeof kSqliteVersionBytes),
                       kSqliteVersionOffset, path);
      !patched.ok()) {
    return patched;
  }
  absl::StatusOr<Seal> seal = AppendDigests(fd, path);
  if (!seal.ok()) return seal.status();
  if (!secret_key.empty()) {
    if (absl::Status done = SignSeal(*seal, secret_key); !done.ok()) return done;
  }
  const off_t end = lseek(fd, 0, SEEK_END);
  return WriteExactly(fd, FormatSeal(*seal), end, path);
}

absl::StatusOr<PackSummary> WritePack(const std::string& path, Store& source,
                                      const PackWriterOptions& options) {
  PackSummary summary;
  absl::Status written = ReplaceFile(path, [&](const std::string& temporary) -> absl::Status {
    absl::StatusOr<PackSummary> database = WriteDatabase(temporary, source, options);
    if (!database.ok()) return database.status();
    summary = *database;
    absl::Status sealed = SealPackDatabase(temporary, options.secret_key);
    struct stat info;
    if (sealed.ok() && stat(temporary.c_str(), &info) == 0) summary.file_bytes = info.st_size;
    return sealed;
  });
  if (!written.ok()) return written;
  return summary;
}

absl::Status SignPack(const std::string& path, const std::string& secret_key) {
  // Nobody should sign what they have not read; and no keys are asked for, since the point is to
  // put one there.
  absl::StatusOr<std::unique_ptr<Pack>> pack =
      Pack::Open(path, {.trusted_keys = {}}, Logger([](LogLevel, absl::string_view) {}));
  if (!pack.ok()) return pack.status();
  if (absl::Status intact = (*pack)->Verify(); !intact.ok()) return intact;
  return ReplaceFile(path, [&](const std::string& temporary) -> absl::Status {
    const int from = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (from < 0) return ErrnoStatus(errno, "open", path);
    absl::Cleanup close_from = [from] { close(from); };
    const int to = open(temporary.c_str(), O_RDWR | O_CLOEXEC);
    if (to < 0) return ErrnoStatus(errno, "open", temporary);
    absl::Cleanup close_to = [to] { close(to); };
    absl::StatusOr<SealedFile> sealed = ReadSeal(from, path);
    if (!sealed.ok()) return sealed.status();
    std::string block(1 << 20, '\0');
    int64_t offset = 0;
    const int64_t end = sealed->seal.database_bytes +
                        static_cast<int64_t>(sealed->digests.size() * sizeof(ChunkDigest));
    while (offset < end) {
      const ssize_t got = pread(
          from, block.data(),
          static_cast<size_t>(std::min<int64_t>(end - offset, static_cast<int64_t>(block.size()))),
          static_cast<off_t>(offset));
      if (got <= 0) return ErrnoStatus(got < 0 ? errno : EIO, "read", path);
      if (absl::Status put = WriteExactly(
              to, absl::string_view(block.data(), static_cast<size_t>(got)), offset, temporary);
          !put.ok()) {
        return put;
      }
      offset += got;
    }
    if (absl::Status done = SignSeal(sealed->seal, secret_key); !done.ok()) return done;
    return WriteExactly(to, FormatSeal(sealed->seal), end, temporary);
  });
}

}  // namespace whet
