#include "cache/store.h"

#include "absl/strings/str_cat.h"
#include "cache/entry_files.h"
#include "cache/sqlite_store.h"

namespace whet {

std::unique_ptr<Store> Store::Open(const StoreOptions& options, const Logger& log) {
  if (options.path.empty()) return SqliteStore::Open(options, log);
  FileSystem file_system;
  if (options.file_system.has_value()) {
    file_system = {*options.file_system, "given by the caller"};
  } else {
    file_system = DetectFileSystem(options.path);
  }
  if (file_system.kind == FileSystemKind::kLocal) return SqliteStore::Open(options, log);
  absl::StatusOr<std::unique_ptr<EntryFileStore>> files = EntryFileStore::Open(options, log);
  if (!files.ok()) return SqliteStore::Open(options, log, files.status().message());
  log.Info(absl::StrCat("the cache ", options.path, " lies on a network file system (",
                        file_system.name, "); it is kept as one file per entry in ", options.path,
                        ".entries"));
  return *std::move(files);
}

}  // namespace whet
