#include "cache/pack_vfs.h"

#include <errno.h>
#include <sqlite3.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace whet {
namespace {

constexpr size_t kCachedChunks = 4;

struct PackFile {
  sqlite3_file base;  // must be first: SQLite sees only this
  PackVfs* pack;
};

}  // namespace

// SQLite's callbacks.
struct PackVfsMethods {
  static int Read(sqlite3_file* file, void* out, int size, sqlite3_int64 offset) {
    PackVfs& pack = *reinterpret_cast<PackFile*>(file)->pack;
    const int64_t end = pack.file_.seal.database_bytes;
    char* to = static_cast<char*>(out);
    while (size > 0 && offset < end) {
      const std::string* const chunk = pack.Chunk(offset / kChunkBytes);
      if (chunk == nullptr) return pack.tampered_ ? SQLITE_IOERR_CORRUPTFS : SQLITE_IOERR_READ;
      const int64_t within = offset % kChunkBytes;
      const int64_t part = std::min<int64_t>(size, static_cast<int64_t>(chunk->size()) - within);
      memcpy(to, chunk->data() + within, static_cast<size_t>(part));
      to += part;
      offset += part;
      size -= static_cast<int>(part);
    }
    if (size == 0) return SQLITE_OK;
    memset(to, 0, static_cast<size_t>(size));
    return SQLITE_IOERR_SHORT_READ;
  }
  static int FileSize(sqlite3_file* file, sqlite3_int64* size) {
    *size = reinterpret_cast<PackFile*>(file)->pack->file_.seal.database_bytes;
    return SQLITE_OK;
  }
  static int Close(sqlite3_file*) { return SQLITE_OK; }
  static int Write(sqlite3_file*, const void*, int, sqlite3_int64) { return SQLITE_READONLY; }
  static int Truncate(sqlite3_file*, sqlite3_int64) { return SQLITE_READONLY; }
  static int Sync(sqlite3_file*, int) { return SQLITE_OK; }
  static int Lock(sqlite3_file*, int) { return SQLITE_OK; }
  static int CheckReservedLock(sqlite3_file*, int* held) {
    *held = 0;
    return SQLITE_OK;
  }
  static int FileControl(sqlite3_file*, int, void*) { return SQLITE_NOTFOUND; }
  static int SectorSize(sqlite3_file*) { return 4096; }
  static int Characteristics(sqlite3_file*) { return SQLITE_IOCAP_IMMUTABLE; }

  static int Open(sqlite3_vfs* vfs, const char*, sqlite3_file* file, int flags, int* out_flags) {
    static constexpr sqlite3_io_methods kMethods = {
        .iVersion = 1,
        .xClose = &Close,
        .xRead = &Read,
        .xWrite = &Write,
        .xTruncate = &Truncate,
        .xSync = &Sync,
        .xFileSize = &FileSize,
        .xLock = &Lock,
        .xUnlock = &Lock,
        .xCheckReservedLock = &CheckReservedLock,
        .xFileControl = &FileControl,
        .xSectorSize = &SectorSize,
        .xDeviceCharacteristics = &Characteristics,
        .xShmMap = nullptr,
        .xShmLock = nullptr,
        .xShmBarrier = nullptr,
        .xShmUnmap = nullptr,
        .xFetch = nullptr,
        .xUnfetch = nullptr,
    };
    file->pMethods = nullptr;
    if ((flags & SQLITE_OPEN_MAIN_DB) == 0) return SQLITE_CANTOPEN;
    file->pMethods = &kMethods;
    reinterpret_cast<PackFile*>(file)->pack = static_cast<PackVfs*>(vfs->pAppData);
    if (out_flags != nullptr) *out_flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_MAIN_DB;
    return SQLITE_OK;
  }
  static int Delete(sqlite3_vfs*, const char*, int) { return SQLITE_READONLY; }
  static int Access(sqlite3_vfs*, const char*, int, int* result) {
    *result = 0;  // neither journal nor log, whatever lies beside the pack
    return SQLITE_OK;
  }
  static int FullPathname(sqlite3_vfs*, const char* name, int capacity, char* out) {
    sqlite3_snprintf(capacity, out, "%s", name);
    return SQLITE_OK;
  }
};

PackVfs::PackVfs(int fd, SealedFile file)
    : fd_(fd), file_(std::move(file)), vfs_(std::make_unique<sqlite3_vfs>()) {
  // Time, randomness and sleeping are the system's.
  *vfs_ = *sqlite3_vfs_find(nullptr);
  name_ = absl::StrFormat("whet-pack-%p", static_cast<void*>(vfs_.get()));
  vfs_->iVersion = 1;
  vfs_->szOsFile = sizeof(PackFile);
  vfs_->pNext = nullptr;
  vfs_->zName = name_.c_str();
  vfs_->pAppData = this;
  vfs_->xOpen = &PackVfsMethods::Open;
  vfs_->xDelete = &PackVfsMethods::Delete;
  vfs_->xAccess = &PackVfsMethods::Access;
  vfs_->xFullPathname = &PackVfsMethods::FullPathname;
  sqlite3_vfs_register(vfs_.get(), /*makeDflt=*/0);
}

PackVfs::~PackVfs() {
  sqlite3_vfs_unregister(vfs_.get());
  close(fd_);
}

const std::string* PackVfs::Chunk(int64_t index) {
  ++uses_;
  for (CachedChunk& chunk : chunks_) {
    if (chunk.index != index) continue;
    chunk.last_use = uses_;
    return &chunk.bytes;
  }
  if (chunks_.size() < kCachedChunks) chunks_.emplace_back();
  CachedChunk& slot = *std::min_element(
      chunks_.begin(), chunks_.end(),
      [](const CachedChunk& a, const CachedChunk& b) { return a.last_use < b.last_use; });
  slot.index = -1;
  slot.last_use = uses_;
  const int64_t offset = index * kChunkBytes;
  slot.bytes.resize(static_cast<size_t>(std::min(kChunkBytes, file_.seal.database_bytes - offset)));
  for (size_t done = 0; done < slot.bytes.size();) {
    const ssize_t got = pread(fd_, slot.bytes.data() + done, slot.bytes.size() - done,
                              static_cast<off_t>(offset) + static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) tampered_ = true;  // it was shortened after it was opened
    if (got <= 0) return nullptr;
    done += static_cast<size_t>(got);
  }
  if (DigestOf(slot.bytes) != file_.digests[static_cast<size_t>(index)]) {
    tampered_ = true;
    return nullptr;
  }
  slot.index = index;
  return &slot.bytes;
}

absl::Status PackVfs::VerifyAll() {
  for (size_t i = 0; i < file_.digests.size(); ++i) {
    if (Chunk(static_cast<int64_t>(i)) == nullptr) {
      return absl::DataLossError(
          absl::StrCat("bytes ", i * kChunkBytes, " and on are not what was sealed"));
    }
  }
  return absl::OkStatus();
}

}  // namespace whet
