#include "tests/cache/fault_vfs.h"

#include <signal.h>
#include <unistd.h>

#include <utility>

namespace whet {
namespace {

struct FaultFile {
  sqlite3_file base;  // must be first: SQLite sees only this
  FaultVfs* vfs;
  sqlite3_file* real;  // in the bytes behind this struct
};

sqlite3_file* Real(sqlite3_file* file) { return reinterpret_cast<FaultFile*>(file)->real; }

}  // namespace

struct FaultMethods {
  static int Count(sqlite3_file* file) { return reinterpret_cast<FaultFile*>(file)->vfs->Count(); }

  static int Close(sqlite3_file* file) { return Real(file)->pMethods->xClose(Real(file)); }
  static int Read(sqlite3_file* file, void* out, int size, sqlite3_int64 offset) {
    if (const int code = Count(file); code != SQLITE_OK) {
      return code == SQLITE_FULL ? SQLITE_IOERR_READ : code;
    }
    return Real(file)->pMethods->xRead(Real(file), out, size, offset);
  }
  static int Write(sqlite3_file* file, const void* bytes, int size, sqlite3_int64 offset) {
    if (const int code = Count(file); code != SQLITE_OK) {
      // Half of it arrives, as on a full disk or at a pulled plug.
      Real(file)->pMethods->xWrite(Real(file), bytes, size / 2, offset);
      return code;
    }
    return Real(file)->pMethods->xWrite(Real(file), bytes, size, offset);
  }
  static int Truncate(sqlite3_file* file, sqlite3_int64 size) {
    if (const int code = Count(file); code != SQLITE_OK) return code;
    return Real(file)->pMethods->xTruncate(Real(file), size);
  }
  static int Sync(sqlite3_file* file, int) { return Count(file); }
  static int FileSize(sqlite3_file* file, sqlite3_int64* size) {
    return Real(file)->pMethods->xFileSize(Real(file), size);
  }
  static int Lock(sqlite3_file* file, int level) {
    if (const int code = Count(file); code != SQLITE_OK) return SQLITE_IOERR_LOCK;
    return Real(file)->pMethods->xLock(Real(file), level);
  }
  static int Unlock(sqlite3_file* file, int level) {
    return Real(file)->pMethods->xUnlock(Real(file), level);
  }
  static int CheckReservedLock(sqlite3_file* file, int* held) {
    return Real(file)->pMethods->xCheckReservedLock(Real(file), held);
  }
  static int FileControl(sqlite3_file* file, int operation, void* argument) {
    return Real(file)->pMethods->xFileControl(Real(file), operation, argument);
  }
  static int SectorSize(sqlite3_file* file) {
    return Real(file)->pMethods->xSectorSize(Real(file));
  }
  static int Characteristics(sqlite3_file* file) {
    return Real(file)->pMethods->xDeviceCharacteristics(Real(file));
  }
  static int ShmMap(sqlite3_file* file, int page, int size, int extend, void volatile** out) {
    if (const int code = Count(file); code != SQLITE_OK) return SQLITE_IOERR_SHMMAP;
    return Real(file)->pMethods->xShmMap(Real(file), page, size, extend, out);
  }
  static int ShmLock(sqlite3_file* file, int offset, int count, int flags) {
    return Real(file)->pMethods->xShmLock(Real(file), offset, count, flags);
  }
  static void ShmBarrier(sqlite3_file* file) { Real(file)->pMethods->xShmBarrier(Real(file)); }
  static int ShmUnmap(sqlite3_file* file, int remove) {
    return Real(file)->pMethods->xShmUnmap(Real(file), remove);
  }

  static int Open(sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags,
                  int* out_flags) {
    static constexpr sqlite3_io_methods kMethods = {
        .iVersion = 2,
        .xClose = &Close,
        .xRead = &Read,
        .xWrite = &Write,
        .xTruncate = &Truncate,
        .xSync = &Sync,
        .xFileSize = &FileSize,
        .xLock = &Lock,
        .xUnlock = &Unlock,
        .xCheckReservedLock = &CheckReservedLock,
        .xFileControl = &FileControl,
        .xSectorSize = &SectorSize,
        .xDeviceCharacteristics = &Characteristics,
        .xShmMap = &ShmMap,
        .xShmLock = &ShmLock,
        .xShmBarrier = &ShmBarrier,
        .xShmUnmap = &ShmUnmap,
        .xFetch = nullptr,
        .xUnfetch = nullptr,
    };
    FaultVfs* const self = static_cast<FaultVfs*>(vfs->pAppData);
    FaultFile* const fault = reinterpret_cast<FaultFile*>(file);
    file->pMethods = nullptr;
    fault->vfs = self;
    fault->real = reinterpret_cast<sqlite3_file*>(fault + 1);
    if (self->Count() != SQLITE_OK) return SQLITE_CANTOPEN;
    const int code = self->real_->xOpen(self->real_, name, fault->real, flags, out_flags);
    if (code == SQLITE_OK) file->pMethods = &kMethods;
    return code;
  }
  static int Delete(sqlite3_vfs* vfs, const char* name, int) {
    FaultVfs* const self = static_cast<FaultVfs*>(vfs->pAppData);
    if (self->Count() != SQLITE_OK) return SQLITE_IOERR_DELETE;
    return self->real_->xDelete(self->real_, name, /*syncDir=*/0);
  }
};

FaultVfs::FaultVfs(std::string name)
    : name_(std::move(name)), vfs_(*sqlite3_vfs_find(nullptr)), real_(sqlite3_vfs_find(nullptr)) {
  vfs_.szOsFile = static_cast<int>(sizeof(FaultFile)) + real_->szOsFile;
  vfs_.pNext = nullptr;
  vfs_.zName = name_.c_str();
  vfs_.pAppData = this;
  vfs_.xOpen = &FaultMethods::Open;
  vfs_.xDelete = &FaultMethods::Delete;
  sqlite3_vfs_register(&vfs_, /*makeDflt=*/0);
}

FaultVfs::~FaultVfs() { sqlite3_vfs_unregister(&vfs_); }

void FaultVfs::FailAt(int n, bool persistent, int code) {
  Disarm();
  persistent_ = persistent;
  code_ = code;
  fail_at_ = n;
}

void FaultVfs::DieAt(int n) {
  Disarm();
  die_ = true;
  fail_at_ = n;
}

void FaultVfs::Disarm() {
  fail_at_ = 0;
  calls_ = 0;
  die_ = false;
  fired_ = false;
}

int FaultVfs::Count() {
  const int n = ++calls_;
  const int at = fail_at_;
  if (at == 0 || n < at || (n > at && !persistent_)) return SQLITE_OK;
  fired_ = true;
  if (die_) kill(getpid(), SIGKILL);
  return code_;
}

}  // namespace whet
